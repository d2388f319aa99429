"""What the start of a command takes, beside that of Python with numpy. Run as a module."""

from __future__ import annotations

import resource
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Final

_RUNS: Final = 3
_ROOT: Final = Path(__file__).parents[2]
_PROGRAM: Final = str(Path(sys.executable).with_name("stowplan"))
_POLICY: Final = str(_ROOT / "policies" / "balanced" / "policy.yaml")


def version() -> Sequence[float]:
    """Show the version."""
    return _spent(_PROGRAM, "--version")


def lint() -> Sequence[float]:
    """Lint one policy."""
    return _spent(_PROGRAM, "lint", _POLICY)


def numpy() -> Sequence[float]:
    """Start Python and import numpy."""
    return _spent(sys.executable, "-c", "import numpy")


def _spent(*command: str) -> list[float]:
    """Return the CPU nanoseconds of a few runs."""
    spent = []
    for _ in range(_RUNS):
        before = _of_children()
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)  # noqa: S603 - our own
        spent.append(1e9 * (_of_children() - before))
    return spent


def _of_children() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


if __name__ == "__main__":
    for measure in (numpy, version, lint):
        print(f"{measure.__doc__}: {min(measure()) / 1e6:.0f} ms of CPU")
