"""`stowplan` with the steps of its event loop measured.

Run as `python -m tests.bench.load.serve_in_steps REPORT serve ...`. On SIGUSR1 the longest steps
since the last time are added to the file REPORT, as a line of JSON. The loop is asyncio's own,
because uvloop runs callbacks where nothing sees them; its TLS takes longer.
"""

from __future__ import annotations

import asyncio
import signal
import sys
from pathlib import Path
from typing import Final

import msgspec
import uvloop

from tests.bench.steps import Step, Steps
from webhook.cli.entry_point import main as stowplan

_SHOWN: Final = 12


class StepReport(msgspec.Struct, frozen=True):
    """The steps since the last report.

    Attributes:
        count: of all.
        seconds: of the processor, in all.
        longest: the longest of them first.
    """

    count: int
    seconds: float
    longest: list[Step]


def main() -> None:
    """Run the command line in `sys.argv` after the name of the report."""
    report = Path(sys.argv.pop(1))
    steps = Steps()

    def write(*_: object) -> None:
        told = StepReport(steps.count, steps.seconds, steps.take(_SHOWN))
        with report.open("ab") as file:
            file.write(msgspec.json.encode(told) + b"\n")

    signal.signal(signal.SIGUSR1, write)
    uvloop.new_event_loop = asyncio.new_event_loop  # type: ignore[assignment]
    stowplan()


if __name__ == "__main__":
    main()
