"""Files that commands write what they have found to."""

from __future__ import annotations

from pathlib import Path

from engine.errors import StowplanError


class CannotWriteError(StowplanError):
    """The output file cannot be written."""


def require_place_for(file: Path) -> None:
    """Refuse a file that cannot be written, before what is to be written takes minutes.

    Raises:
        CannotWriteError: it is a folder, or in none.
    """
    if file.is_dir():
        raise CannotWriteError(f"`{file}` is a folder\nhint: name a file in it")
    if not file.parent.is_dir():
        raise CannotWriteError(f"there is no folder `{file.parent}`")
