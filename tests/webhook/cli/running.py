"""Running commands: in this process where that is enough, in one of their own where it is not."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from subprocess import PIPE, Popen
from typing import IO, TypeAlias

ROOT = Path(__file__).parents[3]
PROGRAM = Path(sys.executable).with_name("stowplan")
DATA = ROOT / "webhook" / "demo"
POD, QUOTA_POD = DATA / "pods" / "1-limits.yaml", DATA / "pods" / "2-quota.yaml"
CLUSTER = ("--cluster", DATA / "cluster.yaml")
POLICIES = ("--policies", DATA / "policies")


@dataclass(frozen=True, slots=True)
class Ran:
    """Result of a command."""

    status: object
    out: str
    err: str


Stowplan: TypeAlias = Callable[..., Ran]
"""Runs the command line with some arguments."""


def process(*arguments: str | Path, stdout: IO[str] | int = PIPE, **env: str) -> Popen[str]:
    """Start a command as a process of its own; it has no terminal."""
    inherited = {name: value for name, value in os.environ.items() if name != "COLUMNS"}
    return Popen(  # noqa: S603 - our own program
        [PROGRAM, *arguments],
        cwd=ROOT,
        env={**inherited, **env},
        stdin=PIPE,
        stdout=stdout,
        stderr=PIPE,
        text=True,
    )
