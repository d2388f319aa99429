"""Files that commands write what they have found to."""

from __future__ import annotations

from collections.abc import Mapping
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


def write_new(folder: Path, texts: Mapping[str, str]) -> None:
    """Write new files below a folder, which is made if need be.

    Args:
        folder: where to.
        texts: by the names of the files below it.

    Raises:
        StowplanError: one is there already; then none is written.
    """
    taken = [str(folder / file) for file in texts if (folder / file).exists()]
    if taken:
        hint = "name another folder, such as `stowplan init my-policy`"
        raise StowplanError(f"there is `{'`, `'.join(taken)}` already\nhint: {hint}")
    for file, text in texts.items():
        (folder / file).parent.mkdir(parents=True, exist_ok=True)
        (folder / file).write_text(text, "utf-8")
