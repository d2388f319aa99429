"""What it costs in spread if pods of one template share decisions, as they do under load.

Run as `python -m tests.bench.bench_sharing [--nodes N --pods P --created C --policies PATH ...]`.
Rollouts come to a generated cluster; each pod is bound to a node of its advice, either always the
first or each by turns, as pods that share do. What is printed for each way is how evenly limits
and requests for cpu lie on the nodes afterwards, beside a decision for each pod.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

import msgspec
import numpy as np
from rich.progress import track

from engine.model.pod import Pod
from engine.model.request import PlacementRequest
from engine.model.time import micros
from engine.pipeline import decide
from engine.placement import encode
from engine.policy import PolicySet, load_policies
from engine.view import ClusterState, Sum
from engine.view.axis import CPU
from tests.bench.arrivals import Arrivals
from tests.bench.generate import GeneratedCluster
from tests.bench.measuring import loaded
from tests.bench.texts import NOW

_POLICY = Path(__file__).with_name("policy.yaml")
_NOW = micros(NOW)
_WAYS = ((1, False), (6, False), (6, True), (16, True), (32, False), (32, True))


@dataclass(slots=True)
class _Shared:
    """The nodes that a decision advised, and how many pods went by it."""

    nodes: tuple[str, ...]
    pods: int = 0


def main() -> None:
    """Run the benchmark and print its figures."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--nodes", type=int, default=1_000)
    parser.add_argument("--pods", type=int, default=20_000)
    parser.add_argument("--created", type=int, default=4_000)
    parser.add_argument("--policies", type=Path, nargs="+", default=[_POLICY])
    asked = parser.parse_args()
    policies = load_policies(asked.policies)
    cluster = GeneratedCluster(nodes=asked.nodes, pods=asked.pods)
    print("pods a decision  nodes     limits: deviation  greatest  requests: deviation")
    for most, by_turns in _WAYS:
        state = loaded(cluster.objects(), policies)
        arrivals = list(islice(Arrivals(cluster.workloads).as_rollouts(), asked.created))
        _create(arrivals, state, policies, most=most, by_turns=by_turns)
        limits, requests = (_ratios(state, sums) for sums in (Sum.LIMITS, Sum.REQUESTS))
        how = "by turns" if by_turns else "the best"
        print(
            f"{most:15}  {how:9} {limits.std():17.4f} {limits.max():9.2f} {requests.std():20.4f}",
            flush=True,
        )


def _create(
    arrivals: Iterable[PlacementRequest],
    state: ClusterState,
    policies: PolicySet,
    *,
    most: int,
    by_turns: bool,
) -> None:
    """Let pods come; each workload has a decision for every `most` of its pods."""
    decided: dict[str, _Shared] = {}
    what, seen = f"{most} pods a decision", sys.stdout.isatty()
    for request in track(arrivals, description=what, transient=True, disable=not seen):
        workload = request.pod.labels["app.kubernetes.io/name"]
        shared = decided.get(workload)
        if shared is None or shared.pods >= most:
            shared = decided[workload] = _Shared(_advised(request, state, policies))
        if shared.nodes:
            node = shared.nodes[shared.pods % len(shared.nodes) if by_turns else 0]
            state.set_pod(_bound(request.pod, node), seen_at=_NOW)
        shared.pods += 1


def _advised(
    request: PlacementRequest, state: ClusterState, policies: PolicySet
) -> tuple[str, ...]:
    view = state.view()
    return encode(decide(request, policies, view, _NOW), request, view).advice.nodes


def _bound(pod: Pod, node: str) -> Pod:
    return msgspec.structs.replace(pod, node_name=node, scheduled_at=_NOW)


def _ratios(state: ClusterState, sums: Sum) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
    """Return a sum for cpu over what each node offers."""
    view = state.view()
    ratios: np.ndarray[tuple[int], np.dtype[np.float64]] = (
        view.sums[sums, CPU, view.valid] / view.allocatable[CPU, view.valid]
    )
    return ratios


if __name__ == "__main__":
    main()
