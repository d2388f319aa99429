"""`--watch`: a command is run again whenever one of its files changes, until Ctrl-C."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final, NoReturn

from engine.errors import InvalidFileError
from webhook.cli import console

_EVERY_SECONDS: Final = 0.3


def run_on_changes(
    paths: Sequence[Path], run: Callable[[], object], *, written: Path | None
) -> NoReturn:
    """Run at once, and again after each change of files; mistakes are shown and end nothing.

    Args:
        paths: files, and folders with all files in and below them.
        run: the command; it prints its results.
        written: a file that it writes, whose changes do not count.

    Raises:
        KeyboardInterrupt: by Ctrl-C.
    """
    notes = console.errors()
    while True:
        before = _state(paths, written)  # taken first: a change while it runs is not missed
        try:
            run()
        except InvalidFileError as error:
            notes.print(str(error), markup=False, soft_wrap=True)
        notes.print("[dim]waiting for changes; Ctrl-C ends[/]")
        while _state(paths, written) == before:
            time.sleep(_EVERY_SECONDS)
        _wait_for_the_last_write(paths, written)
        notes.rule(style="dim")


def _state(paths: Sequence[Path], written: Path | None) -> frozenset[tuple[str, int, int, int]]:
    """Return what changes when files do."""
    from webhook.background import fingerprint  # noqa: PLC0415 - it needs an event loop's modules

    output = None if written is None else written.absolute()
    return frozenset(state for state in fingerprint(paths) if Path(state[0]).absolute() != output)


def _wait_for_the_last_write(paths: Sequence[Path], written: Path | None) -> None:
    """Return when nothing changes any more: editors write in several steps."""
    before = None
    while (now := _state(paths, written)) != before:
        before = now
        time.sleep(_EVERY_SECONDS)
