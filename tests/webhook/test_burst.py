"""Many pods within one metric period: each must see where those before it were sent.

Nothing is bound and nothing measured meanwhile, so all that a replica knows of the burst is what it
advised itself and the pods that its watch has told it of. Where the pods end up is compared with a
greedy ideal, worked out below from the documented formulas in fractions, one pod after the other.
"""

from __future__ import annotations

import json
import statistics
from collections import Counter, deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import jsonpatch
import msgspec
import pytest

from engine.model import api
from engine.model.decision import ADVICE_ANNOTATION, Advice
from engine.model.pod import Pod, pod_of
from engine.model.usage import PodUsage
from engine.pipeline import Scope
from engine.policy import PolicySet, load_policies
from engine.view import ClusterState
from tests.engine.measured_cluster import NOW, node, pod, report, seconds_ago
from webhook.admission import wire
from webhook.admission.placement import PlacementReviews
from webhook.cluster import Cluster
from webhook.placement.live_policies import PolicyCounts
from webhook.placement.placer import Placer

POLICY = """
apiVersion: stowplan.dev/v1alpha1
kind: PlacementPolicy
metadata: {name: burst}
spec:
  scores:
    - plugin: LimitAware
      args: {defaultLimitToAllocatableRatio: {cpu: 400}, scoringResourceWeights: {cpu: 1}}
    - plugin: LoadAware
      args: {resourceWeights: {cpu: 1}}
"""
PODS = 200
LIMIT = 400  # millicores of each new pod; LoadAware expects it to use 85 % of that
EXPECTED = 340


@dataclass(frozen=True)
class Machine:
    """A node as it is before the burst, millicores."""

    name: str
    cpu: int
    limits: int
    usage: int


MACHINES = [
    Machine(
        f"node-{i:02}", cpu, limits=cpu * (i * 7 % 11 + 1) // 8, usage=cpu * (i * 13 % 10) // 20
    )
    for i in range(20)
    for cpu in [8_000 + 4_000 * (i % 5)]
]
"""8 to 24 cores; limits of 12 to 137 % of them, usage of 0 to 45 %."""


def ideal() -> Counter[str]:
    """Return how many pods each node gets if each goes where the policy's sum is the greatest.

    LimitAware: whole percents of 4 times the cpu that stay free, stretched over 0 to 100.
    LoadAware: whole percents of the cpu that stay free. Of equal sums the freest node wins.
    """
    counts: Counter[str] = Counter()
    for _ in range(PODS):
        after = {machine.name: counts[machine.name] + 1 for machine in MACHINES}
        free = {
            machine: 4 * machine.cpu - machine.limits - LIMIT * after[machine.name]
            for machine in MACHINES
        }
        idle = {
            machine: machine.cpu - machine.usage - EXPECTED * after[machine.name]
            for machine in MACHINES
        }
        room = {machine: 100 * free[machine] // (4 * machine.cpu) for machine in MACHINES}
        least, most = min(room.values()), max(room.values())
        scores = {
            machine: (
                100 * (room[machine] - least) // (most - least)
                + 100 * idle[machine] // machine.cpu,
                free[machine] / machine.cpu,
            )
            for machine in MACHINES
        }
        counts[max(MACHINES, key=scores.__getitem__).name] += 1
    return counts


def limit_shares(counts: Mapping[str, int]) -> list[float]:
    """Return limit / allocatable of every node."""
    return [
        (machine.limits + LIMIT * counts.get(machine.name, 0)) / machine.cpu for machine in MACHINES
    ]


def usage_shares(counts: Mapping[str, int]) -> list[float]:
    """Return estimated usage / allocatable of every node."""
    return [
        (machine.usage + EXPECTED * counts.get(machine.name, 0)) / machine.cpu
        for machine in MACHINES
    ]


class Replica:
    """A webhook with a view of its own."""

    def __init__(self, policies: PolicySet, *, assuming: bool = True) -> None:
        self.state = ClusterState()
        self.state.track_sums(policies.sum_profiles)
        for machine in MACHINES:
            made = node(machine.name, cpu=f"{machine.cpu}m", memory="64Gi", pods="110")
            self.state.set_node(replace(made, labels={"kubernetes.io/hostname": machine.name}))
            old = pod(f"old-{machine.name}", machine.name, limits={"cpu": f"{machine.limits}m"})
            self.state.set_pod(old, seen_at=seconds_ago(3600))
            measured = {old.name: PodUsage({"cpu": machine.usage}, is_prod=True)}
            self.state.set_usage(
                report(machine.name, {"cpu": machine.usage}, age=30, pods=measured)
            )
        self._known = Cluster(state=self.state, now=lambda: NOW, is_live=True)
        placer = Placer(
            view=self.state.view,
            now=lambda: NOW,
            scope=Scope(),
            assumed=self._known if assuming else None,
        )
        self._reviews = PlacementReviews(placer, lambda: policies, lambda: 0.0, PolicyCounts())

    def admitted(self, number: int) -> Pod:
        """Return the pod as the API server stores it once it is through its admission."""
        resources = {"limits": {"cpu": f"{LIMIT}m"}, "requests": {"cpu": "50m"}}
        sent = {
            "metadata": {"generateName": "web-"},
            "spec": {"containers": [{"name": "c", "resources": resources}]},
        }
        request = {
            "uid": f"review-{number}",
            "operation": "CREATE",
            "resource": {"group": "", "version": "v1", "resource": "pods"},
            "namespace": "shop",
            "object": sent,
        }
        body = {"apiVersion": wire.API_VERSION, "kind": wire.KIND, "request": request}
        response = self._reviews.review(wire.decode(json.dumps(body).encode())).response
        assert response.patch is not None
        stored: dict[str, Any] = jsonpatch.apply_patch(sent, json.loads(response.patch))
        stored["metadata"] |= {"name": f"web-{number}", "uid": f"pod-{number}"}
        return pod_of(msgspec.convert(stored, api.Pod), namespace="shop")

    def assumed(self) -> dict[str, int]:
        """Return how many pods the view assumes on each node."""
        view = self.state.view()
        return {name: int(view.assumed[row]) for name, row in view.rows.items() if name}


def advised(placed: Pod) -> str:
    return msgspec.json.decode(placed.annotations[ADVICE_ANNOTATION], type=Advice).nodes[0]


@pytest.fixture
def policies(tmp_path: Path) -> PolicySet:
    path = tmp_path / "burst.yaml"
    path.write_text(POLICY)
    return load_policies([path])


def burst(replicas: Sequence[Replica], lag: int) -> Counter[str]:
    """Return where the pods of a burst are sent.

    The replicas take turns, and each learns of a pod by watch once `lag` later ones were answered.
    """
    counts: Counter[str] = Counter()
    to_tell: deque[Pod] = deque()
    for number in range(PODS):
        new = replicas[number % len(replicas)].admitted(number)
        counts[advised(new)] += 1
        to_tell.append(new)
        if len(to_tell) > lag:
            _tell(replicas, to_tell.popleft())
    while to_tell:
        _tell(replicas, to_tell.popleft())
    return counts


def _tell(replicas: Sequence[Replica], new: Pod) -> None:
    for replica in replicas:
        replica.state.set_pod(new, seen_at=NOW)


def test_without_assumption_a_whole_burst_is_sent_to_one_node(policies: PolicySet) -> None:
    counts = Counter(advised(Replica(policies, assuming=False).admitted(i)) for i in range(PODS))
    assert list(counts.values()) == [PODS]


@pytest.mark.parametrize(("replicas", "lag"), [(1, 0), (1, 6), (1, PODS), (3, 0)])
def test_who_knows_all_of_a_burst_spreads_it_as_the_policy_means(
    policies: PolicySet, replicas: int, lag: int
) -> None:
    # One replica knows its own pods, told of or not, and three know all that they are told of at
    # once. Only where two nodes have equal sums may the choice be another than the ideal's.
    counts, best = burst([Replica(policies) for _ in range(replicas)], lag), ideal()
    assert all(abs(counts[machine.name] - best[machine.name]) <= 1 for machine in MACHINES)
    assert_spread(counts, pods_off=1)


@pytest.mark.parametrize(("lag", "unseen"), [(1, 1), (3, 2), (6, 4)])
def test_three_replicas_are_off_by_no_more_than_what_they_have_not_seen(
    policies: PolicySet, lag: int, unseen: int
) -> None:
    # Of the last 6 pods 4 are the other two replicas', and unseen: a replica may send as many too
    # many to a node, and passes it over once it is told of them.
    replicas = [Replica(policies) for _ in range(3)]
    counts = burst(replicas, lag)
    assert_spread(counts, pods_off=unseen)
    # In the end all have seen all, and none counts a pod of its own twice.
    for replica in replicas:
        assert replica.assumed() == {machine.name: counts[machine.name] for machine in MACHINES}


def assert_spread(counts: Counter[str], *, pods_off: int) -> None:
    """Check that shares are no more above the ideal's than by some pods on each node.

    That much on the least node for the greatest share, and on one of average size for the standard
    deviation.
    """
    least = min(machine.cpu for machine in MACHINES)
    average = statistics.mean(machine.cpu for machine in MACHINES)
    for shares, size in ((limit_shares, LIMIT), (usage_shares, EXPECTED)):
        got, best = shares(counts), shares(ideal())
        assert max(got) <= max(best) + pods_off * size / least
        assert statistics.pstdev(got) <= statistics.pstdev(best) + pods_off * size / average


@pytest.mark.parametrize("shares", [limit_shares, usage_shares])
def test_the_spread_of_one_node_for_all_is_far_outside_of_these_bounds(
    shares: Callable[[Mapping[str, int]], list[float]],
) -> None:
    alone = Counter({"node-00": PODS})
    assert statistics.pstdev(shares(alone)) > 3 * statistics.pstdev(shares(ideal()))
