"""How long a plan of reclaim or preemption takes in a large cluster, and its longest step.

Run as `python -m tests.bench.bench_reclaim [--nodes N --pods P]`. Times are medians of the
processor time in milliseconds and depend on the machine: compare the ratios, which are to scoring
all nodes one by one in the same run. Other work waits for a step, and for no more.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from statistics import median

from engine.eviction import (
    Candidate,
    NoPlan,
    Plan,
    Preemption,
    QuotaAccount,
    Reclaim,
    Situation,
    Steps,
    plan_for_pod,
    running_pod_of,
)
from engine.model.decision import PlacementRequest
from engine.model.elastic_quota import UPSTREAM_GROUP, QuotaKey
from engine.model.gang import POD_GROUP_LABEL, Gang, GangKey, PodGroup
from engine.model.node import Node
from engine.model.pod import Pod
from engine.model.resources import Amounts
from engine.policy import PolicySet
from engine.view import ClusterState
from tests.bench.bench_view import machine
from tests.bench.measuring import baseline_of, clock, spare_the_collector
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
    situation = situation_of(size.nodes, size.pods, policies)
    floor = baseline_of(situation.view) / 1000
    print(f"scoring {size.nodes:,} nodes one by one     {floor:8.1f} ms   1.00")
    full = replace(situation, cohort_room={"cpu": 0, "memory": 0})
    milli = _CORES * 1000 * size.nodes // size.pods
    spare_the_collector()
    for name, given, cores in (
        ("one victim on a node", situation, milli),
        ("all borrowers of a node", situation, _CORES * 1000),
        ("room in the cohort alone", full, 1),
        ("no plan: too large for a node", situation, _CORES * 1000 + 100),
    ):
        _time(name, floor, partial(_reclaim, given, cores))
    gangs = situation_of(size.nodes, size.pods, policies, in_gangs=True)
    spare_the_collector()
    for name, given, cores in (
        ("preemption on one node", situation, milli),
        ("preemption, too large for a node", situation, _CORES * 1000 + 100),
        ("preemption of gangs", gangs, milli),
    ):
        _time(name, floor, partial(_preempt, given, cores))


def _time(name: str, floor: float, begin: Callable[[], Steps[Plan | NoPlan]]) -> None:
    totals, longest = [], []
    for _ in range(_ROUNDS):
        result, spent = timed(begin())
        totals.append(sum(spent) / 1e6)
        longest.append(max(spent) / 1e6)
    outcome = (
        f"{len(result.victims)} victims" if isinstance(result, Plan) else f"{result.reason.value}"
    )
    took = median(totals)
    print(
        f"  {name:32} {took:8.1f} ms {took / floor:6.2f}   longest step {median(longest):5.1f} ms"
        f"   {outcome}",
        flush=True,
    )


def timed(steps: Steps[Plan | NoPlan]) -> tuple[Plan | NoPlan, list[int]]:
    """Return what steps end with, and what each takes, in nanoseconds of processor time."""
    spent = []
    while True:
        start = clock()
        try:
            next(steps)
        except StopIteration as end:
            spent.append(clock() - start)
            return end.value, spent
        spent.append(clock() - start)


def _request(milli: int, priority: int = 0) -> PlacementRequest:
    requests = {"cpu": f"{milli}m"}
    metadata = _metadata("shop", "preemptor")
    preemptor = pod("preemptor", requests=requests, metadata=metadata, priority=priority)
    return PlacementRequest(pod=preemptor, raw=b"{}")


def plan_for_a_full_node(situation: Situation) -> Steps[Plan | NoPlan]:
    """Return the plan for a pod that wants a whole node."""
    return _reclaim(situation, _CORES * 1000)


def _reclaim(situation: Situation, milli: int) -> Steps[Plan | NoPlan]:
    return plan_for_pod(_request(milli), Reclaim((_quota("shop"),)), situation)


def _preempt(situation: Situation, milli: int) -> Steps[Plan | NoPlan]:
    return plan_for_pod(_request(milli, 100), Preemption((_quota("shop"),)), situation)


def situation_of(
    nodes: int, pods: int, policies: PolicySet, *, in_gangs: bool = False
) -> Situation:
    """Return a cluster full of pods of quotas that borrow two thirds of it.

    Args:
        nodes: how many there are.
        pods: how many there are, the same number on each node.
        policies: those in force.
        in_gangs: whether pods are gangs, of 2 each.
    """
    state = ClusterState()
    state.track_sums(policies.sum_profiles)
    for i in range(nodes):
        state.set_node(_node(i))
    used: dict[str, dict[str, int]] = {}
    candidates = []
    milli = _CORES * 1000 * nodes // pods
    for i in range(pods):
        bound = _pod(i, nodes, milli, f"gang-{i // 2}" if in_gangs else "")
        if in_gangs:
            key = GangKey(bound.namespace, bound.labels[POD_GROUP_LABEL])
            gang = Gang(key=key, min_member=2, total=2)
            state.set_extra(PodGroup(group=UPSTREAM_GROUP, gang=gang))
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


def _pod(i: int, nodes: int, milli: int, gang: str) -> Pod:
    return pod(
        f"p{i}",
        f"node-{i % nodes:05}",
        requests={"cpu": f"{milli}m", "memory": "1Gi"},
        metadata=_metadata(f"team-{(i // 2 if gang else i // nodes + i) % _BORROWERS}", f"p{i}")
        | ({"labels": {POD_GROUP_LABEL: gang}} if gang else {}),
        priority=i % 3 * 10,
    )


def _metadata(namespace: str, name: str) -> dict[str, str]:
    return {"namespace": namespace, "name": name, "uid": name}


def _quota(namespace: str) -> QuotaKey:
    return namespace, UPSTREAM_GROUP, "quota"


if __name__ == "__main__":
    main()
