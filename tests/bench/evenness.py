"""How even nodes become by the score of LoadAware and by its strategy Balanced, pod by pod.

Run as `python -m tests.bench.evenness [--workload W] [--nodes N] [--pods N] [--pod-size PERCENT]
[--seeds N]`. Nodes and pods are those of `tests.e2e.bench_outcome`; each pod counts before the next
is decided, which is what decisions at binding come close to on a real control plane. Beside them
stands how many pods find no node below the threshold if all are known and the largest choose first.
"""

from __future__ import annotations

import argparse
import json
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

import numpy as np

from tests.e2e.outcome_arms import BALANCED, BINDING, policy_of
from tests.e2e.outcome_cluster import SOFT_TAINT, ideal, pods_of
from tests.e2e.outcome_figures import THRESHOLD, places_of
from tests.e2e.outcome_workload import (
    EXPECTED_PERCENT,
    WORKLOADS,
    Ask,
    Load,
    Machine,
    apps_of,
    asks_of,
    loads_of,
    machines_of,
)
from tests.e2e.workloads import pod

_MEBIBYTES_OF_A_CORE: Final = 4_096


def recording(machines: Sequence[Machine], loads: Mapping[str, Load]) -> str:
    """Return the nodes with what they use and what is requested of them, as JSON."""
    items = [item for one in machines for item in _items(one, loads[one.name])]
    return json.dumps({"apiVersion": "v1", "kind": "List", "items": items})


def _items(machine: Machine, load: Load) -> Iterator[Mapping[str, object]]:
    metadata = {"name": machine.name, "labels": {"topology.kubernetes.io/zone": machine.zone}}
    offers = {
        "cpu": f"{machine.cores}",
        "memory": f"{machine.cores * _MEBIBYTES_OF_A_CORE}Mi",
        "pods": "250",
    }
    yield {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": metadata,
        "spec": {"taints": [SOFT_TAINT] if machine.tainted else []},
        "status": {"allocatable": offers, "capacity": offers},
    }
    yield {
        "apiVersion": "metrics.k8s.io/v1beta1",
        "kind": "NodeMetrics",
        "metadata": metadata,
        "timestamp": datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
        "usage": {"cpu": f"{load.used}m", "memory": "4Gi"},
    }
    if load.requested:
        there = pod("before", f"on-{machine.name}", requests={"cpu": f"{load.requested}m"})
        there["spec"]["nodeName"] = machine.name
        # It has been there for long, so its usage is part of what is measured.
        scheduled = {"type": "PodScheduled", "status": "True"}
        there["status"] = {
            "conditions": [{**scheduled, "lastTransitionTime": "2026-01-01T00:00:00Z"}]
        }
        yield there


def left_by_largest_first(
    machines: Sequence[Machine], loads: Mapping[str, Load], asks: Sequence[Ask]
) -> int:
    """Return how many pods find no node below the threshold, the largest first.

    Each goes where it leaves the least below the threshold.
    """
    rooms = np.array(
        [
            (one.millicores - loads[one.name].requested, one.cores * _MEBIBYTES_OF_A_CORE)
            for one in machines
        ]
    )
    cold = np.array([THRESHOLD * one.millicores - loads[one.name].used for one in machines])
    left = 0
    for ask in sorted(asks, key=lambda it: -it.millicores):
        wanted, load = (ask.millicores, ask.mebibytes), ask.millicores * EXPECTED_PERCENT / 100
        fits = (rooms >= wanted).all(axis=1) & (cold >= load)
        if fits.any():
            best = int(np.where(fits, cold, np.inf).argmin())
            rooms[best] -= wanted
            cold[best] -= load
        else:
            left += 1
    return left


def main() -> None:
    """Place the pods of each seed twice, and print how even nodes are."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--workload", default=WORKLOADS[0], choices=WORKLOADS)
    parser.add_argument("--nodes", type=int, default=200)
    parser.add_argument("--pods", type=int, default=400)
    parser.add_argument("--pod-size", type=int, default=100, help="of the usual, in percent")
    parser.add_argument("--seeds", type=int, default=5, help="how many")
    given = parser.parse_args()
    machines = machines_of(given.workload, given.nodes)
    owners = {app: {"kind": "ReplicaSet", "name": app} for app in apps_of(given.workload)}
    for seed in range(given.seeds):
        loads = loads_of(given.workload, machines, seed)
        asks = asks_of(given.workload, given.pods, seed, given.pod_size)
        pods = pods_of("outcome", "pod", asks, owners)
        with tempfile.TemporaryDirectory() as folder:
            recorded = Path(folder, "recording.json")
            recorded.write_text(recording(machines, loads))
            plain, even = (
                places_of(
                    machines, loads, asks, ideal(recorded, policy_of(arm, Path(folder)), pods)
                )
                for arm in (BINDING, BALANCED)
            )
        print(
            f"seed {seed}: std {plain.spread:.4f} by LoadAware, {even.spread:.4f} by Balanced,"
            f" {100 * (1 - even.spread / plain.spread):.1f} % less (>= {even.least_spread:.4f});"
            f" nodes over {plain.over}, {even.over} (>= {even.least_over});"
            f" unbound {plain.unbound}, {even.unbound}, the largest first"
            f" {left_by_largest_first(machines, loads, asks)}",
            flush=True,
        )


if __name__ == "__main__":
    main()
