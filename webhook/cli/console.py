"""Consoles of the commands: as wide as the terminal, and wide enough without one.

Names and texts of a cluster are written by others. What a terminal may obey, or show in another
order, is shown as an escape, here and nowhere else.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable
from typing import Any

from rich.console import Console, ConsoleOptions, RenderableType
from rich.segment import Segment
from rich.text import Text

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
    """Return standard output."""
    return _console(stderr=False)


def errors() -> Console:
    """Return standard error, for notes and mistakes."""
    return _console(stderr=True)


def _console(*, stderr: bool) -> Console:
    console = _Visible(stderr=stderr, highlight=False)
    if console.is_terminal or "COLUMNS" in os.environ:
        return console
    return _Visible(stderr=stderr, highlight=False, soft_wrap=True, width=_WIDTH_OF_A_PIPE)
