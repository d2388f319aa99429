"""Writing of a file of objects: a list in JSON, an object per line."""

from __future__ import annotations

import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

_HEAD = b'{"apiVersion":"v1","kind":"List","items":['
_END = b"\n]}\n"


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
        self._write(b"\n" if self.size == len(_HEAD) else b",\n")
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
