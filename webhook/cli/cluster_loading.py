"""Loading of recorded clusters, with progress and every mistake shown."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from rich.console import Console
from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeElapsedColumn

from webhook.cluster import Recording, load_recorded
from webhook.cluster.watch.event_applier import PodObserver


def load_cluster(
    paths: Sequence[Path], console: Console, *, observers: Sequence[PodObserver] = ()
) -> Recording:
    """Return a recorded cluster; objects that cannot be used are reported, the rest is loaded.

    Args:
        paths: files and folders.
        console: for notes and progress.
        observers: called for each pod.

    Raises:
        InvalidFileError: a file cannot be read at all.
    """
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        DownloadColumn(binary_units=True),
        TimeElapsedColumn(),
    )
    with Progress(
        *columns, console=console, transient=True, disable=not console.is_terminal
    ) as progress:
        task = progress.add_task("loading the cluster", total=None)
        recording = load_recorded(
            paths,
            progress=lambda done, total: progress.update(task, completed=done, total=total),
            observers=observers,
        )
    for problem in recording.problems:
        console.print(str(problem), markup=False, soft_wrap=True)
    return recording
