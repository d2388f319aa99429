"""How long a plan of reclaim takes in a large cluster.

Run as `python -m tests.bench.bench_reclaim [--nodes N --pods P]`. Times are medians of the
processor time in milliseconds and depend on the machine: compare the ratios, which are to scoring
all nodes one by one in the same run.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from statistics import median

from engine.model.elastic_quota import UPSTREAM_GROUP, QuotaKey
from engine.model.node import Node
from engine.model.pod import Pod
from engine.model.request import PlacementRequest
from engine.model.resources import Amounts
from engine.policy import PolicySet
from engine.reclaim import (
    Candidate,
    NoPlan,
    Plan,
    QuotaAccount,
    Situation,
    plan_reclaim,
    running_pod_of,
)
from engine.view import ClusterState
from tests.bench.bench_view import machine
from tests.bench.measuring import baseline_of, clock
from tests.engine.measured_cluster import GI, NOW, node, pod, seconds_ago
from tests.engine.policy.worlds import policy

_ROUNDS = 5
_CORES = 16
_BORROWERS = 20  # namespaces
_POLICY = "filters: [{plugin: LoadAware}, {name: few, expression: node.podCount < 200}]\n"


def main() -> None:
    """Run the benchmark and print its figures."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--nodes", type=int, default=5_000)
    parser.add_argument("--pods", type=int, default=10_000)
    size = parser.parse_args()
    print(machine())
    policies = PolicySet([policy(_POLICY, "policy")])
    situation = _situation(size.nodes, size.pods, policies)
    floor = baseline_of(situation.view) / 1000
    print(f"scoring {size.nodes:,} nodes one by one     {floor:8.1f} ms   1.00")
    full = replace(situation, cohort_room={"cpu": 0, "memory": 0})
    per_node = max(size.pods // size.nodes, 1)
    for name, given, cores in (
        ("one victim on a node", situation, _CORES // per_node),
        ("all borrowers of a node", situation, _CORES),
        ("room in the cohort alone", full, 0),
        ("no plan: too large for a node", situation, _CORES + 1),
    ):
        _time(name, floor, partial(_plan, given, cores))


def _time(name: str, floor: float, run: Callable[[], Plan | NoPlan]) -> None:
    spent = []
    for _ in range(_ROUNDS):
        start = clock()
        result = run()
        spent.append((clock() - start) / 1e6)
    outcome = (
        f"{len(result.victims)} victims" if isinstance(result, Plan) else f"{result.reason.value}"
    )
    took = median(spent)
    print(f"  {name:32} {took:8.1f} ms {took / floor:6.2f}   {outcome}", flush=True)


def _plan(situation: Situation, cores: int) -> Plan | NoPlan:
    requests = {"cpu": f"{cores}" if cores else "1m"}
    preemptor = pod("preemptor", requests=requests, metadata=_metadata("shop", "preemptor"))
    request = PlacementRequest(pod=preemptor, raw=b"{}")
    return plan_reclaim(request, (_quota("shop"),), situation)


def _situation(nodes: int, pods: int, policies: PolicySet) -> Situation:
    """Return a cluster full of pods of quotas that borrow two thirds of it."""
    state = ClusterState()
    state.track_sums(policies.sum_profiles)
    for i in range(nodes):
        state.set_node(_node(i))
    used: dict[str, dict[str, int]] = {}
    candidates = []
    milli = _CORES * 1000 * nodes // pods
    for i in range(pods):
        bound = _pod(i, nodes, milli)
        state.set_pod(bound, seen_at=seconds_ago(3600 + i % 1000))
        running, entry = running_pod_of(bound), state.entry(bound.key)
        assert running is not None
        assert entry is not None
        candidates.append(Candidate(pod=running, entry=entry, quotas=(_quota(bound.namespace),)))
        amounts = used.setdefault(bound.namespace, {"cpu": 0, "memory": 0, "pods": 0})
        for name, amount in (("cpu", milli), ("memory", GI), ("pods", 1)):
            amounts[name] += amount
    least = {space: {"cpu": amounts["cpu"] // 3} for space, amounts in used.items()}
    return Situation(
        view=state.view(),
        policies=policies,
        candidates=candidates,
        accounts={
            _quota(space): QuotaAccount(guaranteed=least[space], used=amounts)
            for space, amounts in used.items()
        }
        | {_quota("shop"): QuotaAccount(guaranteed={"cpu": 10**9}, used=_NOTHING)},
        cohort_room={},
        lendable={"cpu": _CORES * 1000 * nodes, "memory": 64 * GI * nodes},
        now=NOW,
    )


_NOTHING: Amounts = {}


def _node(i: int) -> Node:
    # A sliver is free, so that a tiny pod fits where the cohort alone has no room.
    return node(f"node-{i:05}", cpu=f"{_CORES * 1000 + 10}m", memory="64Gi", pods="250")


def _pod(i: int, nodes: int, milli: int) -> Pod:
    return pod(
        f"p{i}",
        f"node-{i % nodes:05}",
        requests={"cpu": f"{milli}m", "memory": "1Gi"},
        metadata=_metadata(f"team-{(i // nodes + i) % _BORROWERS}", f"p{i}"),
        priority=i % 3 * 10,
    )


def _metadata(namespace: str, name: str) -> dict[str, str]:
    return {"namespace": namespace, "name": name, "uid": name}


def _quota(namespace: str) -> QuotaKey:
    return namespace, UPSTREAM_GROUP, "quota"


if __name__ == "__main__":
    main()
