"""Memory and latency while all pods are listed anew: `python -m tests.bench.load.relist`.

The API server forgets its history and cuts the watch, as after an upgrade of the control plane: a
`stowplan serve` that knows all pods lists them once more, and answers reviews meanwhile. What else
runs on the machine makes them wait, too; with `--steps` it is told how much processor time the
longest steps of the event loop take, which no answer can pass.
"""

from __future__ import annotations

import argparse
import os
import signal
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import msgspec

from tests.bench.generate import GeneratedCluster
from tests.bench.load.parts import STOWPLAN
from tests.bench.load.reviews import Reviews
from tests.bench.load.serve_in_steps import StepReport
from tests.bench.load.stage import Plan, Stage, staged

_POLICY: Final = Path(__file__).parent.parent / "policy.yaml"
_EVENTS: Final = 200
_REVIEWS: Final = 500
_PAUSE_SECONDS: Final = 0.02
_RELISTS: Final = "stowplan_source_relists_total"
_REPORT: Final = "steps.jsonl"
_MODULE: Final = "tests.bench.load.serve_in_steps"


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.ArgumentDefaultsHelpFormatter
    )
    parser.add_argument("--nodes", type=int, default=5_000)
    parser.add_argument("--pods", type=int, default=150_000)
    parser.add_argument("--relists", type=int, default=3)
    parser.add_argument("--steps", action="store_true", help="measure the steps of the event loop")
    asked = parser.parse_args()
    workloads = GeneratedCluster(nodes=asked.nodes, pods=asked.pods).workloads
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        report = folder / _REPORT
        plan = Plan(
            nodes=asked.nodes,
            pods=asked.pods,
            events=_EVENTS,
            policy=_POLICY,
            program=(sys.executable, "-m", _MODULE, str(report)) if asked.steps else STOWPLAN,
        )
        with staged(plan, folder) as stage:
            bodies = iter(Reviews(workloads, _REVIEWS, dry_run=True))
            stage.api_server.begin_events()
            print(
                f"ready        {_memory(stage)}; after {stage.server.ready_after:.0f} s,"
                f" {stage.server.ready_with:.0f} s of the processor",
                flush=True,
            )
            for number in range(1, asked.relists + 1):
                _show_steps(stage, report)
                before, began = _relists(stage), time.monotonic()
                stage.api_server.forget_history()
                waited = list(_reviews_until_listed(stage, bodies, before))
                print(
                    f"relist {number}     {_memory(stage)}; took {time.monotonic() - began:4.1f} s;"
                    f" {len(waited)} reviews, p50 {statistics.median(waited):.0f},"
                    f" longest {max(waited):.0f} ms",
                    flush=True,
                )
            _show_steps(stage, report)


def _reviews_until_listed(stage: Stage, bodies: Iterator[bytes], before: int) -> Iterator[float]:
    """Send reviews one after the other until all pods are listed; yield milliseconds of each."""
    while True:
        began = time.perf_counter()
        stage.server.review(next(bodies))
        yield (time.perf_counter() - began) * 1e3
        if _relists(stage) > before:
            return
        time.sleep(_PAUSE_SECONDS)


def _show_steps(stage: Stage, file: Path) -> None:
    """Print the longest steps since the last time, if they are measured."""
    if stage.plan.program == STOWPLAN or stage.server.pid is None:
        return
    known = _lines(file)
    os.kill(stage.server.pid, signal.SIGUSR1)
    while len(lines := _lines(file)) == len(known):
        time.sleep(_PAUSE_SECONDS)
    report = msgspec.json.decode(lines[-1], type=StepReport)
    print(f"  {report.seconds:.1f} s of the processor in {report.count:,} steps; the longest:")
    for step in report.longest:
        collecting = f", {step.collecting * 1e3:.1f} of it garbage" if step.collecting else ""
        print(f"  {step.seconds * 1e3:8.1f} ms{collecting}  {step.what}", flush=True)


def _lines(file: Path) -> list[bytes]:
    """Return the reports that are written to their end."""
    return file.read_bytes().split(b"\n")[:-1] if file.exists() else []


def _relists(stage: Stage) -> int:
    return int(stage.server.scrape().value(_RELISTS, source="pods") or 0)


def _memory(stage: Stage) -> str:
    usage = stage.server.usage
    return f"{usage.resident_mib:4.0f} MiB resident, {usage.peak_mib:4.0f} at most so far"


if __name__ == "__main__":
    main()
