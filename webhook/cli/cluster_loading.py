"""Loading of recorded clusters, with progress and every mistake shown."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path

from rich.console import Console
from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeElapsedColumn

from engine.model.time import Micros, date, micros
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


def moment_of(recording: Recording, now: datetime | None) -> tuple[Micros, str]:
    """Return the moment at which ages count, and its origin.

    Args:
        recording: the cluster.
        now: as `--now` says; None if it is not given.
    """
    if now is not None:
        return micros(now), "as `--now` says"
    if recording.recorded_at:
        return recording.recorded_at, "the newest moment in the recording"
    return micros(datetime.now(UTC)), "now: the recording names no moment"


def moment_text(moment: Micros) -> str:
    """Return a moment as people write it."""
    return date(moment).isoformat().replace("+00:00", "Z")
