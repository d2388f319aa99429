"""Memory and latency while all pods are listed anew: `python -m tests.bench.load.relist`.

The API server forgets its history and cuts the watch, as after an upgrade of the control plane: a
`stowplan serve` that knows all pods lists them once more, and answers reviews meanwhile.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from tests.bench.generate import GeneratedCluster
from tests.bench.load.reviews import Reviews
from tests.bench.load.stage import Plan, Stage, staged

_POLICY: Final = Path(__file__).parent.parent / "policy.yaml"
_EVENTS: Final = 200
_REVIEWS: Final = 500
_PAUSE_SECONDS: Final = 0.02
_RELISTS: Final = "stowplan_source_relists_total"


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.ArgumentDefaultsHelpFormatter
    )
    parser.add_argument("--nodes", type=int, default=5_000)
    parser.add_argument("--pods", type=int, default=150_000)
    parser.add_argument("--relists", type=int, default=3)
    asked = parser.parse_args()
    workloads = GeneratedCluster(nodes=asked.nodes, pods=asked.pods).workloads
    plan = Plan(nodes=asked.nodes, pods=asked.pods, events=_EVENTS, policy=_POLICY)
    with tempfile.TemporaryDirectory() as folder, staged(plan, Path(folder)) as stage:
        bodies = iter(Reviews(workloads, _REVIEWS, dry_run=True))
        stage.api_server.begin_events()
        print(f"ready        {_memory(stage)}", flush=True)
        for number in range(1, asked.relists + 1):
            before, began = _relists(stage), time.monotonic()
            stage.api_server.forget_history()
            waited = list(_reviews_until_listed(stage, bodies, before))
            print(
                f"relist {number}     {_memory(stage)}; took {time.monotonic() - began:4.1f} s;"
                f" {len(waited)} reviews, p50 {statistics.median(waited):.0f},"
                f" longest {max(waited):.0f} ms",
                flush=True,
            )


def _reviews_until_listed(stage: Stage, bodies: Iterator[bytes], before: int) -> Iterator[float]:
    """Send reviews one after the other until all pods are listed; yield milliseconds of each."""
    while True:
        began = time.perf_counter()
        stage.server.review(next(bodies))
        yield (time.perf_counter() - began) * 1e3
        if _relists(stage) > before:
            return
        time.sleep(_PAUSE_SECONDS)


def _relists(stage: Stage) -> int:
    return int(stage.server.scrape().value(_RELISTS, source="pods") or 0)


def _memory(stage: Stage) -> str:
    usage = stage.server.usage
    return f"{usage.resident_mib:4.0f} MiB resident, {usage.peak_mib:4.0f} at most so far"


if __name__ == "__main__":
    main()
