"""Objects of the API as YAML documents, so that mistakes in them have a place like those in files.

They are laid out as `kubectl get -o yaml` does: keys in alphabetical order, lists not indented,
texts of several lines below a `|`.
"""

from __future__ import annotations

from typing import Any, Final

import yaml

from engine.documents.places import Document, read_documents, resolve_plain
from engine.documents.yaml_tree import DEEPEST
from engine.errors import Diagnostic, InvalidFileError

_WIDTH: Final = 1 << 20  # no text is folded: the column of a character is where it stands


class _Dumper(yaml.CSafeDumper):
    """Writes what `read_documents` reads as the same values."""

    def ignore_aliases(self, data: object) -> bool:  # noqa: ARG002 - PyYAML's interface
        """Return that equal parts are written out each."""
        return True


def _write_text(dumper: yaml.CSafeDumper, text: str) -> yaml.ScalarNode:
    if "\n" in text:
        return dumper.represent_scalar("tag:yaml.org,2002:str", text, style="|")
    means_other = not isinstance(resolve_plain(text), str)
    style = "'" if means_other else None
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style=style)


_Dumper.add_representer(str, _write_text)


def document_of(value: dict[str, Any], file: str) -> Document:
    """Return an object of the API as a document; its diagnostics name fields besides lines.

    Args:
        value: the object, as decoded from JSON.
        file: its name in diagnostics.

    Raises:
        InvalidFileError: it is too deep or too large to be read.
    """
    if _is_too_deep(value):
        raise InvalidFileError(
            [Diagnostic(file=file, message=f"nested deeper than {DEEPEST} levels")]
        )
    text = yaml.dump(value, Dumper=_Dumper, width=_WIDTH, allow_unicode=True)
    (document,) = read_documents(text.encode(errors="surrogatepass"), file)
    document.names_fields = True
    return document


def _is_too_deep(value: object) -> bool:
    level = [value]
    for _ in range(DEEPEST):
        level = [part for each in level for part in _parts(each)]
        if not level:
            return False
    return True


def _parts(value: object) -> list[object]:
    if isinstance(value, dict):
        return list(value.values())
    return value if isinstance(value, list) else []
