"""Consoles of the commands: as wide as the terminal, and wide enough without one."""

from __future__ import annotations

import os

from rich.console import Console

_WIDTH_OF_A_PIPE = 160
"""Width of tables without a terminal or `COLUMNS`; text is not wrapped then."""


def output() -> Console:
    """Return standard output."""
    return _console(stderr=False)


def errors() -> Console:
    """Return standard error, for notes and mistakes."""
    return _console(stderr=True)


def _console(*, stderr: bool) -> Console:
    console = Console(stderr=stderr, highlight=False)
    if console.is_terminal or "COLUMNS" in os.environ:
        return console
    return Console(stderr=stderr, highlight=False, soft_wrap=True, width=_WIDTH_OF_A_PIPE)
