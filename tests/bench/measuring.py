"""What benchmarks of decisions have in common: the cluster they run on, and how they measure."""

from __future__ import annotations

import gc
import os
import time
from collections.abc import Iterable
from pathlib import Path

import numpy as np

import webhook.serving.composition  # noqa: F401 (a replica holds it beside the view)
from engine.policy import PolicySet
from engine.view import ClusterState, ClusterView, Sum
from engine.view.axis import CPU, MEMORY
from webhook.cluster.object_file import read_json
from webhook.cluster.watch.event_applier import EventApplier

_GC_THRESHOLDS = (50_000, 20, 50)  # those of the server

clock = time.process_time_ns
"""CPU time of this process, in nanoseconds."""


class Timings:
    """CPU times of several things, in nanoseconds, printed as they are asked for."""

    def __init__(self, baseline: float) -> None:
        self._baseline = baseline
        self._spent: dict[str, list[int]] = {}

    def take(self, name: str, start: int) -> int:
        """Note the time since `start` under a name; return the time now."""
        now = clock()
        self.note(name, now - start)
        return now

    def note(self, name: str, spent: int) -> None:
        """Note a time under a name."""
        self._spent.setdefault(name, []).append(spent)

    def add(self, name: str, *parts: str) -> None:
        """Note the sums of other timings, one by one, under a name."""
        self._spent[name] = [sum(each) for each in zip(*map(self._spent.get, parts), strict=True)]

    def median(self, name: str) -> float:
        """Return the median of what was noted under a name."""
        return float(np.median(self._spent[name]))

    def show_heading(self) -> None:
        """Print what the columns of `show` are."""
        baseline = f"baseline {self._baseline:.0f} us"
        print(f"{baseline:34} {'p50':>9} {'p90':>9} {'p99':>9} {'ratio':>9}")

    def show(self) -> None:
        """Print the percentiles of all that was noted, and forget it."""
        for name, spent in self._spent.items():
            p50, p90, p99 = np.percentile(spent, (50, 90, 99)) / 1000
            ratio = p50 / self._baseline
            print(f"  {name:32} {p50:9.1f} {p90:9.1f} {p99:9.1f} {ratio:9.3f}", flush=True)
        self._spent.clear()


def loaded(objects: Iterable[bytes], policies: PolicySet) -> ClusterState:
    """Return the state of a cluster, read object by object as recorded files are.

    What is there is kept out of the way of the collector of garbage, as the server does.
    """
    spare_the_collector()
    applier = EventApplier()
    for text in objects:
        for found in read_json(text, "generated"):
            by_kind = applier.by_kind[found.group, found.kind]
            by_kind.apply(found.decode(by_kind.kind.wire))
    state = applier.finished()
    state.track_sums(policies.sum_profiles)
    state.view()
    spare_the_collector()
    return state


def spare_the_collector() -> None:
    """Keep what is there out of the way of the collector of garbage, as the server does."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(*_GC_THRESHOLDS)


def baseline_of(view: ClusterView) -> float:
    """Return how long it takes to score all nodes one by one by their limits, in microseconds."""
    offered = view.allocatable[[CPU, MEMORY]].T.tolist()
    limits = view.sums[Sum.LIMITS][[CPU, MEMORY]].T.tolist()
    spent = []
    for _ in range(20):
        start = clock()
        for (cpu, memory), (cpu_limits, memory_limits) in zip(offered, limits, strict=True):
            cpu_left = (cpu - cpu_limits) * 100 // cpu
            memory_left = (memory - memory_limits) * 100 // memory
            _ = (cpu_left + memory_left) // 2
        spent.append(clock() - start)
    return float(np.median(spent)) / 1000


def resident_mib() -> float:
    """Return the resident memory of this process (Linux)."""
    pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 2**20
