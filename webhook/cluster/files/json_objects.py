"""Objects in JSON, in the form of `kubectl get -o json` and `kubectl get --raw`."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TypeVar

import msgspec

from engine.errors import Diagnostic, InvalidFileError
from webhook.cluster.decode_errors import UNREADABLE, describe, parse
from webhook.cluster.objects import (
    FORM_HINT,
    NO_KIND,
    NO_OBJECT,
    FieldPath,
    group_of,
    item_kind,
    path_text,
)

_T = TypeVar("_T")


class _Head(msgspec.Struct, rename="camel", gc=False):
    """Fields that tell an object from a list; items stay undecoded, so mistakes stay apart."""

    api_version: str = ""
    kind: str = ""
    items: list[msgspec.Raw] | None = None


class _ItemHead(msgspec.Struct, rename="camel", gc=False):
    api_version: str = ""
    kind: str = ""


_MALFORMED = re.compile(r"JSON is malformed: (?P<problem>.*) \(byte (?P<byte>\d+)\)")
decode_item_head = msgspec.json.Decoder(_ItemHead).decode
"""Returns group and kind of an object; raises one of `UNREADABLE` if it is not JSON."""


@dataclass(frozen=True, slots=True)
class JsonObject:
    """An `ApiObject` in JSON; `place` is the path to it from the top of its file."""

    file: str
    place: FieldPath
    group: str
    kind: str
    end: int
    raw: bytes | msgspec.Raw

    def decode(self, kind: type[_T]) -> _T:
        """Return the object as a wire struct."""
        return msgspec.json.decode(self.raw, type=kind)

    def plain(self) -> object:
        """Return the object as dicts, lists and scalars."""
        return msgspec.json.decode(self.raw)

    def problem(self, path: FieldPath, message: str, hint: str) -> Diagnostic:
        """Return a mistake at one of its values."""
        place = path_text((*self.place, *path))
        located = f"{place}: {message}" if place else message
        return Diagnostic(file=self.file, message=located, hint=hint)


def read_json(data: bytes, file: str) -> Iterator[JsonObject]:
    """Yield the objects in a JSON text: the items of a list of any kind, or a single object.

    Raises:
        InvalidFileError: it is not JSON, or not an object of Kubernetes.
    """
    try:
        head = msgspec.json.decode(data, type=_Head)
    except UNREADABLE as error:
        raise InvalidFileError([_unreadable(data, file, error)]) from error
    if not head.kind:
        raise InvalidFileError([Diagnostic(file=file, message=NO_KIND, hint=FORM_HINT)])
    group = group_of(head.api_version)
    if head.items is None:
        yield JsonObject(file, (), group, head.kind, len(data), data)
        return
    kind = item_kind(head.kind)
    end = 0
    for number, raw in enumerate(head.items):
        end += len(raw)
        if kind:
            yield JsonObject(file, ("items", number), group, kind, end, raw)
        else:
            item = _item_head(raw)
            yield JsonObject(
                file, ("items", number), group_of(item.api_version), item.kind, end, raw
            )


def _item_head(raw: msgspec.Raw) -> _ItemHead:
    """Return group and kind of an item; empty where they cannot be read."""
    try:
        return decode_item_head(raw)
    except UNREADABLE:
        return _ItemHead()


def _unreadable(data: bytes, file: str, error: ValueError | RecursionError) -> Diagnostic:
    """Return the mistake that makes a whole file unreadable."""
    problem, _ = parse(error)
    if isinstance(error, msgspec.ValidationError):
        return Diagnostic(file=file, message=f"{NO_OBJECT}: {describe(problem)}")
    malformed = _MALFORMED.fullmatch(problem)
    if malformed is None:
        return Diagnostic(file=file, message=f"not JSON: {describe(problem)}")
    before = data[: int(malformed["byte"])].decode("utf-8", "replace")
    line = before.count("\n") + 1
    column = len(before) - before.rfind("\n")
    message = f"not JSON: {malformed['problem']}"
    return Diagnostic(file=file, message=message, line=line, column=column)
