"""What commands share: consoles, files, and `--watch`."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final, NoReturn

from rich.console import Console, ConsoleOptions, RenderableType
from rich.segment import Segment
from rich.text import Text

from engine.errors import InvalidFileError, StowplanError

# Consoles of the commands: as wide as the terminal, and wide enough without one.
#
# Names and texts of a cluster are written by others. What a terminal may obey, or show in another
# order, is shown as an escape, here and nowhere else.


_WIDTH_OF_A_PIPE = 160
"""Width of tables without a terminal or `COLUMNS`; text is not wrapped then."""


class _Visible(Console):
    """A console on which no text but its own styles reaches the terminal as a control character."""

    def render_str(self, text: str, **options: Any) -> Text:  # noqa: ANN401 (those of a console)
        """Return a text, with escapes that count for its width."""
        return super().render_str(visible(text), **options)

    def render(
        self, renderable: RenderableType, options: ConsoleOptions | None = None
    ) -> Iterable[Segment]:
        """Yield the segments of anything that is printed, however it was made."""
        for segment in super().render(renderable, options):
            is_own = bool(segment.control)
            yield segment if is_own else Segment(visible(segment.text), segment.style)


def visible(text: str) -> str:
    """Return a text with JSON's escapes for what is not printable, but for line ends and tabs."""
    if text.isprintable():
        return text
    return "".join(
        char if char.isprintable() or char in "\n\t" else json.dumps(char)[1:-1] for char in text
    )


def output() -> Console:
    return _console(stderr=False)


def errors() -> Console:
    """Return standard error, for notes and mistakes."""
    return _console(stderr=True)


def _console(*, stderr: bool) -> Console:
    console = _Visible(stderr=stderr, highlight=False)
    if console.is_terminal or "COLUMNS" in os.environ:
        return console
    return _Visible(stderr=stderr, highlight=False, soft_wrap=True, width=_WIDTH_OF_A_PIPE)


class CannotWriteError(StowplanError):
    """The output file cannot be written."""


def require_place_for(file: Path) -> None:
    """Refuse a file that cannot be written, before what is to be written takes minutes."""
    if file.is_dir():
        raise CannotWriteError(f"`{file}` is a folder\nhint: name a file in it")
    if not file.parent.is_dir():
        raise CannotWriteError(f"there is no folder `{file.parent}`")


def write_new(folder: Path, texts: Mapping[str, str]) -> None:
    """Write new files below a folder, which is made if need be."""
    taken = [str(folder / file) for file in texts if (folder / file).exists()]
    if taken:
        hint = "name another folder, such as `stowplan init my-policy`"
        raise StowplanError(f"there is `{'`, `'.join(taken)}` already\nhint: {hint}")
    for file, text in texts.items():
        (folder / file).parent.mkdir(parents=True, exist_ok=True)
        (folder / file).write_text(text, "utf-8")


def namespace_and_name(option: str, text: str) -> tuple[str, str]:
    """Return both parts of `NAMESPACE/NAME`."""
    namespace, _, name = text.partition("/")
    if not (namespace and name) or "/" in name:
        raise StowplanError(f"{option}: expected `NAMESPACE/NAME`, not `{text}`")
    return namespace, name


@contextmanager
def progress(what: str, total: int) -> Iterator[Callable[..., None]]:
    """Show on standard error how many pods of a total are done; yield what tells of more."""
    from rich import progress as bars  # noqa: PLC0415 - it takes as long as the version does

    notes = errors()
    columns = (bars.TextColumn(what), bars.BarColumn(), bars.MofNCompleteColumn())
    with bars.Progress(
        *columns,
        bars.TextColumn("pods"),
        bars.TimeElapsedColumn(),
        console=notes,
        transient=True,
        disable=not notes.is_terminal,
    ) as bar:
        task = bar.add_task("", total=total)
        yield lambda pods=1: bar.advance(task, pods)


_EVERY_SECONDS: Final = 0.3


def run_on_changes(
    paths: Sequence[Path], run: Callable[[], object], *, written: Path | None
) -> NoReturn:
    """Run at once, and again after each change of files; mistakes are shown and end nothing."""
    notes = errors()
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
