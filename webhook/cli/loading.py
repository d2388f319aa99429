"""Loading of policies and recorded clusters, with progress and every mistake shown."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from rich.console import Console
from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeElapsedColumn

from engine.errors import Diagnostic, InvalidFileError
from engine.policy import PolicySet, load_policies
from webhook.cluster import Recording, load_recorded

STANDARD_INPUT: Final = Path("-")
_MOST_READ = (1 << 20) + 1
"""Bytes: one more than a policy file may have, so that a larger one is seen to be too large."""


def load_policy_set(paths: Sequence[Path]) -> PolicySet:
    """Return the policies of files and folders, at least one; `-` is standard input.

    Raises:
        InvalidFileError: there is none, or something is wrong with them.
    """
    files = [path for path in paths if path != STANDARD_INPUT]
    texts = {} if len(files) == len(paths) else {"<stdin>": sys.stdin.buffer.read(_MOST_READ)}
    policies = load_policies(files, texts)
    if not policies:
        raise InvalidFileError(
            [Diagnostic(file=str(path), message="holds no policy") for path in paths]
        )
    return policies


def load_cluster(paths: Sequence[Path], console: Console) -> Recording:
    """Return a recorded cluster; objects that cannot be used are reported, the rest is loaded.

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
        )
    for problem in recording.problems:
        console.print(str(problem), markup=False, soft_wrap=True)
    return recording
