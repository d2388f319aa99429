"""Names of objects in the arguments of commands."""

from __future__ import annotations

from engine.errors import StowplanError


def namespace_and_name(option: str, text: str) -> tuple[str, str]:
    """Return both parts of `NAMESPACE/NAME`.

    Args:
        option: which it is the value of, such as `--lease`.
        text: as it was given.

    Raises:
        StowplanError: it has another form.
    """
    namespace, _, name = text.partition("/")
    if not (namespace and name) or "/" in name:
        raise StowplanError(f"{option}: expected `NAMESPACE/NAME`, not `{text}`")
    return namespace, name
