"""Files of objects, such as snapshots: a list in JSON, an object per line.

So they are written, and read, with one object in memory at a time.
"""

from __future__ import annotations

import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

from webhook.cluster.decode_errors import UNREADABLE
from webhook.cluster.files.json_objects import JsonObject, decode_item_head
from webhook.cluster.objects import group_of

_HEAD = b'{"apiVersion":"v1","kind":"List","items":['
_SEPARATOR = b",\n"
_END = b"\n]}\n"
_LAST_LINE = b"]}"


class ObjectFile:
    """Appends objects; those after a size can be removed again.

    Attributes:
        size: bytes written so far.
    """

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self.size = 0
        self._write(_HEAD)

    def add(self, encoded: bytes) -> None:
        """Write an object."""
        self._write(b"\n" if self.size == len(_HEAD) else _SEPARATOR)
        self._write(encoded)

    def truncate(self, size: int) -> None:
        """Remove everything written since the file had a size."""
        self._file.seek(size)
        self._file.truncate()
        self.size = size

    def end(self) -> None:
        """Write the end of the list."""
        self._write(_END)

    def _write(self, data: bytes) -> None:
        self._file.write(data)
        self.size += len(data)


@contextmanager
def object_file(path: Path) -> Iterator[ObjectFile]:
    """Write a file of objects that replaces any other at the end of the block, if it is complete.

    Raises:
        OSError: it cannot be written.
    """
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

    Raises:
        OSError: it cannot be read; also while objects are yielded.
    """
    if not path.is_file():
        return None  # a pipe can be read only once
    with path.open("rb") as file:
        return _objects(path) if _has_an_object_per_line(file) else None


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


def _objects(path: Path) -> Iterator[JsonObject]:
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
