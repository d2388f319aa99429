"""Loading what the arguments of a command name, with progress and every mistake shown."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from engine.errors import Problem
from webhook.cluster import Recording, load_recorded


def load_cluster(paths: Sequence[Path], console: Console) -> Recording:
    """Return a recorded cluster; objects that cannot be used are reported, the rest is loaded.

    Raises:
        InvalidFileError: a file cannot be read at all.
    """
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
    )
    with Progress(*columns, console=console, transient=True) as progress:
        task = progress.add_task("loading the cluster", total=None)
        recording = load_recorded(
            paths,
            progress=lambda done, total: progress.update(task, completed=done, total=total),
        )
    show_problems(recording.problems, console)
    return recording


def show_problems(problems: Sequence[Problem], console: Console) -> None:
    """Print mistakes, each with its place, source line and hint."""
    for problem in problems:
        console.print(str(problem), markup=False, highlight=False, soft_wrap=True)
