"""What both commands of this package can be told, and how they begin and end."""

from __future__ import annotations

import argparse
import os
import platform
import signal
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

from tests.bench.load.stage import Plan
from tests.bench.processor import processor

_POLICY = Path(__file__).parents[1] / "policy.yaml"
_WIDTH = 140  # of what is written to a file


def parser_of(description: str | None) -> argparse.ArgumentParser:
    """Return a parser of what both commands of this package can be told."""
    parser = argparse.ArgumentParser(
        description=description,
        formatter_class=argparse.ArgumentDefaultsHelpFormatter,
        epilog="What comes after `--` is for `stowplan serve`, as `-- --quota-mode=Off`.",
    )
    parser.add_argument("--nodes", type=int, default=5_000, help="nodes of the generated cluster")
    parser.add_argument("--pods", type=int, default=150_000, help="pods on them")
    parser.add_argument("--events", type=float, default=200, help="of pods and nodes, per second")
    parser.add_argument("--policies", type=Path, default=_POLICY, help="file with the policies")
    parser.add_argument("--json", type=Path, metavar="FILE", help="keep the figures there")
    parser.add_argument("--logs", type=Path, metavar="FOLDER", help="keep logs and files there")
    parser.add_argument("options", nargs="*", help=argparse.SUPPRESS)
    return parser


def plan_of(asked: argparse.Namespace) -> Plan:
    """Return what is to be staged."""
    return Plan(
        nodes=asked.nodes,
        pods=asked.pods,
        events=asked.events,
        policy=asked.policies,
        options=tuple(asked.options),
    )


@contextmanager
def folder_of(asked: argparse.Namespace) -> Iterator[Path]:
    """Yield a folder for files: the one that is asked for stays."""
    if asked.logs is not None:
        asked.logs.mkdir(parents=True, exist_ok=True)
        yield asked.logs
        return
    with tempfile.TemporaryDirectory() as folder:
        yield Path(folder)


def end_in_good_order() -> None:
    """Let a SIGTERM end this process as an exception does: with all that it started."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))


def machine() -> str:
    """Return processor, system and versions in one line."""
    return (
        f"{processor()}, {os.cpu_count()} cpus, {platform.system()} {platform.machine()},"
        f" Python {platform.python_version()}"
    )


def console() -> Console:
    """Return where figures are printed."""
    return Console(width=None if sys.stdout.isatty() else _WIDTH)


def progress(on: Console) -> Progress:
    """Return the bars of the long parts."""
    bar, left = BarColumn(), TimeRemainingColumn()
    return Progress(TextColumn("{task.description}"), bar, left, console=on)
