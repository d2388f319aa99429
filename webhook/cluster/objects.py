"""Kubernetes objects in files, before they are decoded."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Protocol, TypeAlias, TypeVar

from engine.errors import Diagnostic, StowplanError

FieldPath: TypeAlias = Sequence[str | int]
"""Keys and indexes that lead from an object to one of its values."""

NO_OBJECT = "expected an object of Kubernetes"
NO_KIND = "not an object of Kubernetes: it has no `kind`"
FORM_HINT = "`kubectl get -o yaml` writes objects, each with `apiVersion` and `kind`"

_T = TypeVar("_T")
_PLAIN_KEY = re.compile(r"[A-Za-z_][A-Za-z0-9_-]*")


class ApiObject(Protocol):
    """One object in a file, found but not decoded.

    Attributes:
        group: its API group, empty for the core group.
        kind: its kind.
        end: its end in the file, in bytes, roughly.
    """

    @property
    def group(self) -> str: ...  # noqa: D102 - see above
    @property
    def kind(self) -> str: ...  # noqa: D102 - see above
    @property
    def end(self) -> int: ...  # noqa: D102 - see above

    def decode(self, kind: type[_T]) -> _T:
        """Return the object as a wire struct.

        Raises:
            ValueError: a value has a type that the API never sends.
            RecursionError: it is nested too deeply.
        """

    def plain(self) -> object:
        """Return the object as dicts, lists and scalars; raises like `decode`."""

    def problem(self, path: FieldPath, message: str, hint: str) -> Diagnostic:
        """Return a mistake at one of its values; an empty path means the object as a whole."""


class ObjectError(StowplanError, ValueError):
    """An unusable value in an object, with its place."""

    def __init__(self, path: FieldPath, message: str) -> None:
        super().__init__(message)
        self.path = tuple(path)


def group_of(api_version: str) -> str:
    """Return the group in an `apiVersion`; that of `v1` is empty."""
    return api_version.partition("/")[0] if "/" in api_version else ""


def item_kind(list_kind: str) -> str:
    """Return the kind of the items of a list such as PodList; "" where each item has its own."""
    return list_kind.removesuffix("List")


def path_text(path: FieldPath) -> str:
    """Return a path in its usual form: `spec.containers[0].resources.limits["nvidia.com/gpu"]`."""
    text = ""
    for step in path:
        if isinstance(step, int):
            text += f"[{step}]"
        elif _PLAIN_KEY.fullmatch(step):
            text += f".{step}" if text else step
        else:
            text += f'["{step}"]'
    return text
