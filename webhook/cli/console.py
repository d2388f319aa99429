"""Where the commands print: as wide as the terminal, and wide enough where there is none."""

from __future__ import annotations

import os

from rich.console import Console

_WIDTH_OF_A_PIPE = 160
"""Of tables, where neither a terminal nor `COLUMNS` says how wide; text is not broken then."""


def output() -> Console:
    """Return standard output."""
    return _console(stderr=False)


def errors() -> Console:
    """Return standard error: what is not the answer that was asked for."""
    return _console(stderr=True)


def _console(*, stderr: bool) -> Console:
    console = Console(stderr=stderr, highlight=False)
    if console.is_terminal or "COLUMNS" in os.environ:
        return console
    return Console(stderr=stderr, highlight=False, soft_wrap=True, width=_WIDTH_OF_A_PIPE)
