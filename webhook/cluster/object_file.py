"""Files of objects, such as snapshots: a list in JSON, an object per line.

So they are written, and read, with one object in memory at a time.
"""

from __future__ import annotations

import os
import re
import secrets
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import BinaryIO, TypeVar

import msgspec
import yaml

from engine.documents import (
    Composer,
    Document,
    LimitExceededError,
    MapNode,
    Node,
    ScalarNode,
    Source,
    fatal_problem,
    index_of,
)
from engine.errors import Diagnostic, InvalidFileError
from webhook.cluster.objects import (
    FORM_HINT,
    NO_KIND,
    NO_OBJECT,
    UNREADABLE,
    FieldPath,
    describe,
    group_of,
    item_kind,
    parse,
    path_text,
)

# Objects in YAML, in the form of `kubectl get -o yaml`.
#
# A list is read item by item, so that memory depends on the largest object, not on the file. YAML
# takes about 0.5 ms for a pod of 4 KB, twenty times as long as JSON; some 40 % of it are PyYAML's.


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
        return msgspec.json.decode(self.raw, type=kind)

    def plain(self) -> object:
        return msgspec.json.decode(self.raw)

    def problem(self, path: FieldPath, message: str, hint: str) -> Diagnostic:
        place = path_text((*self.place, *path))
        located = f"{place}: {message}" if place else message
        return Diagnostic(file=self.file, message=located, hint=hint)


def read_json(data: bytes, file: str) -> Iterator[JsonObject]:
    """Yield the objects in a JSON text: the items of a list of any kind, or a single object."""
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


_LONGEST_OBJECT = 4 * 2**20
"""Characters of an object that are read: the API server takes none above 3 MiB."""

_SHORT_TEXT = 2**18
"""Characters of a text that is read in any case, for its mistakes; one of 12 MiB takes minutes."""

_KIND = re.compile(r"kind[\"']?\s*:")


@dataclass(frozen=True, slots=True)
class YamlObject:
    """An `ApiObject` in YAML; `place` is the path to it from the top of its document."""

    document: Document
    place: FieldPath
    group: str
    kind: str
    end: int

    def decode(self, kind: type[_T]) -> _T:
        return msgspec.convert(self.document.value, type=kind)

    def plain(self) -> object:
        return self.document.value

    def problem(self, path: FieldPath, message: str, hint: str) -> Diagnostic:
        place = path_text((*self.place, *path))
        located = f"{place}: {message}" if place else message
        return self.document.problem(path, located, hint=hint)


def read_yaml(text: str, file: str) -> Iterator[YamlObject | Diagnostic]:
    """Yield the objects in a YAML text, and the mistakes in those that cannot be read."""
    source = Source(file, text)
    composer = Composer(source)
    if len(text) > _SHORT_TEXT and not _KIND.search(text):
        first = len(text) - len(text.lstrip())
        raise InvalidFileError([source.problem_at(first, NO_KIND, FORM_HINT)])
    try:
        for event in composer.root_events():
            if isinstance(event, yaml.MappingStartEvent):
                yield from _objects(composer, source, event)
            elif not _is_empty(event):
                raise InvalidFileError([source.problem_at(index_of(event), NO_OBJECT, FORM_HINT)])
    except (yaml.YAMLError, LimitExceededError) as error:
        raise InvalidFileError([*composer.problems, fatal_problem(source, error)]) from error


def _is_empty(event: yaml.Event) -> bool:
    """Whether it is a document without content."""
    return (
        isinstance(event, yaml.ScalarEvent)
        and not event.value
        and not event.style
        and event.tag is None
    )


def _objects(
    composer: Composer, source: Source, event: yaml.MappingStartEvent
) -> Iterator[YamlObject | Diagnostic]:
    """Yield the objects of a document that has begun: the items of a list, or a single object."""
    start = index_of(event)
    fields: list[tuple[ScalarNode, Node]] = []
    unnamed: list[YamlObject] | None = None
    composer.limit = start + _LONGEST_OBJECT
    for key, value in composer.entries(1):
        if key.text == "items" and isinstance(value, yaml.SequenceStartEvent):
            unnamed = yield from _items(composer, source)
        else:
            fields.append((key, composer.node(value, 2)))
    head = _object(MapNode(start, tuple(fields)), (), composer, source)
    has_kind = any(key.text == "kind" for key, _ in fields)
    if not has_kind or (isinstance(head, YamlObject) and not head.kind):
        raise InvalidFileError([source.problem_at(start, NO_KIND, FORM_HINT)])
    if isinstance(head, list):
        yield from head
    elif unnamed is None:
        yield head
    else:
        for item in unnamed:
            yield replace(item, group=head.group, kind=item_kind(head.kind))


def _items(
    composer: Composer, source: Source
) -> Generator[YamlObject | Diagnostic, None, list[YamlObject]]:
    """Yield the items of a list that has begun; return those that leave their kind to the list.

    The list names it at its end, so they wait.
    """
    unnamed = []
    for number, event in enumerate(composer.events):
        composer.limit = index_of(event) + _LONGEST_OBJECT
        if isinstance(event, yaml.SequenceEndEvent):
            break
        found = _object(composer.node(event, 3), ("items", number), composer, source)
        if isinstance(found, list):
            yield from found
        elif found.kind or not isinstance(found.document.value, dict):
            yield found
        else:
            unnamed.append(found)
    return unnamed


def _object(
    root: Node, place: FieldPath, composer: Composer, source: Source
) -> YamlObject | list[Diagnostic]:
    """Return an object, or the mistakes that composing it found."""
    problems, composer.problems = composer.problems, []
    if problems:
        return problems
    try:
        document = Document(source, root)
    except InvalidFileError as error:
        return list(error.problems)
    fields = document.value if isinstance(document.value, dict) else {}
    api_version, kind = fields.get("apiVersion"), fields.get("kind")
    return YamlObject(
        document=document,
        place=place,
        group=group_of(api_version) if isinstance(api_version, str) else "",
        kind=kind if isinstance(kind, str) else "",
        end=root.index,
    )


_HEAD = b'{"apiVersion":"v1","kind":"List","items":['
_SEPARATOR = b",\n"
_END = b"\n]}\n"
_LAST_LINE = b"]}"


class ObjectFile:
    """Appends objects; those after a size can be removed again."""

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self.size = 0  # bytes written so far
        self._write(_HEAD)

    def add(self, encoded: bytes) -> None:
        self._write(b"\n" if self.size == len(_HEAD) else _SEPARATOR)
        self._write(encoded)

    def truncate(self, size: int) -> None:
        """Remove everything written since the file had a size."""
        self._file.seek(size)
        self._file.truncate()
        self.size = size

    def end(self) -> None:
        self._write(_END)

    def _write(self, data: bytes) -> None:
        self._file.write(data)
        self.size += len(data)


@contextmanager
def object_file(path: Path) -> Iterator[ObjectFile]:
    """Write a file of objects that replaces any other at the end of the block, if complete."""
    partial = path.with_name(f".{path.name}.{secrets.token_hex(4)}.partial")
    try:
        with partial.open("xb") as file:
            objects = ObjectFile(file)
            yield objects
            objects.end()
            file.flush()
            os.fsync(file.fileno())
        partial.replace(path)
    finally:
        partial.unlink(missing_ok=True)


def read_object_file(path: Path) -> Iterator[JsonObject] | None:
    """Return the objects of a file, None if it is not one with an object per line.

    It is read twice: once they are returned, all objects are known to be well-formed.
    """
    if not path.is_file():
        return None  # a pipe can be read only once
    with path.open("rb") as file:
        return _file_objects(path) if _has_an_object_per_line(file) else None


def _has_an_object_per_line(file: BinaryIO) -> bool:
    if file.readline() != _HEAD + b"\n":
        return False
    is_last = True  # of none so far
    for number, line in enumerate(file):
        if line.rstrip() == _LAST_LINE:
            return is_last and not file.read().strip()
        if is_last and number:
            return False
        is_last = not line.endswith(_SEPARATOR)
        try:
            decode_item_head(_without_separator(line))
        except UNREADABLE:
            return False
    return False


def _file_objects(path: Path) -> Iterator[JsonObject]:
    end = 0
    with path.open("rb") as file:
        file.readline()
        for number, line in enumerate(file):
            raw = _without_separator(line)
            if raw == _LAST_LINE:
                return
            end += len(line)
            head = decode_item_head(raw)
            group = group_of(head.api_version)
            yield JsonObject(str(path), ("items", number), group, head.kind, end, raw)


def _without_separator(line: bytes) -> bytes:
    return line.rstrip().removesuffix(b",")
