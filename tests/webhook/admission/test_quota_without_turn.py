"""Mode Queue judges every pod: those that are never held, by min, cohort and queue."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import count
from typing import Any

import jsonpatch
import msgspec
import pytest

from engine.model.decision import ADVICE_ANNOTATION, Advice
from engine.model.hold import HOLD_GATE, HOLD_REASONS_ANNOTATION, RELEASING_ANNOTATION
from engine.model.time import SECOND, Micros
from engine.pipeline import Scope
from engine.policy import load_policies
from engine.quota import queues_pods
from engine.quota.queueing import CohortLending, QueueRules
from engine.view import ClusterState
from tests.builders import node_from, pod_from, quota_from
from tests.webhook.admission.test_placement import Queue, review_of
from tests.webhook.admission.test_quota import asking, changing
from webhook.admission.handler import Outcome, ReviewResult
from webhook.admission.hold import GangHolds, PodHolder
from webhook.admission.placement import PlacementReviews
from webhook.admission.quota import QuotaReviews
from webhook.cluster import Cluster
from webhook.placement.explanations import Explanations
from webhook.placement.held_pods import HeldPods, HoldGuard, ObservedLease
from webhook.placement.live_policies import PolicyCounts
from webhook.placement.placer import Placer
from webhook.quota import MemoryStore, ObservedCluster, ObservedPods, QuotaConfig, QuotaLedger

NOON = Micros(1_767_614_400 * SECOND)  # 2026-01-05T12:00:00Z
ADMITTED, DENIED = Outcome.ADMITTED, Outcome.QUOTA_DENIED


@dataclass(frozen=True, kw_only=True)
class Lease(ObservedLease):
    holder: str = "a replica"
    annotations: Mapping[str, str] = field(default_factory=lambda: {RELEASING_ANNOTATION: "true"})
    age_seconds: float = 1.0


class World:
    """One node of 10 cores, and two namespaces with a quota of min 5 and max 10 each.

    A pod that is reviewed is stored and bound if it is admitted, or stored with its gate.
    """

    def __init__(self, *, rules: QueueRules | None = None) -> None:
        self.state, self.pods = ClusterState(), ObservedPods()
        self._versions = count(10)
        allocatable = {"cpu": "10", "memory": "64Gi", "pods": "110"}
        ready = {"type": "Ready", "status": "True"}
        status = {"allocatable": allocatable, "conditions": [ready]}
        node = {"metadata": {"name": "n"}, "status": status}
        self.state.set_node(node_from(node))
        for namespace in ("good", "evil"):
            self.state.set_namespace(namespace, {"kubernetes.io/metadata.name": namespace})
            self.limit(namespace, "5", "10")
        self.held = HeldPods(lambda: NOON)
        cluster = Cluster(state=self.state, now=lambda: NOON, is_live=True)
        placer = Placer(
            view=self.state.view,
            now=lambda: NOON,
            scope=Scope(),
            explanations=Explanations(9),
            assumed=cluster,
        )
        holder = PodHolder(
            placer,
            HoldGuard(Lease, self.held),
            queues=lambda namespace, _: queues_pods(self.state.view(), namespace, "Queue"),
            gangs=GangHolds(self.state.view, lambda: True),
            now=lambda: NOON,
            seconds=60,
            counts=PolicyCounts(),
        )
        self._placement = PlacementReviews(
            placer,
            lambda: load_policies([]),
            lambda: 0.0,
            PolicyCounts(),
            holder,
            queue=Queue(is_crowded=False),
        )
        observed = ObservedCluster(
            view=self.state.view,
            pods=self.pods,
            requests=lambda key, scheduled: self.state.requests(key, scheduled=scheduled),
        )
        lending = CohortLending(
            rules or QueueRules(excluded_namespaces=frozenset({"kube-system"})),
            self.state.view,
            self.state.assumed_pods,
            counted=self.state.requests,
            version_of=self.pods.version,
            clock=lambda: 0.0,
        )
        self._quota = QuotaReviews(
            ledger=QuotaLedger(observed, MemoryStore(), QuotaConfig(), lending=lending),
            view=self.state.view,
            mode="Queue",
            excluded_namespaces=["kube-system"],
            version_of=self.pods.version,
        )

    def limit(self, namespace: str, least: str | None, most: str | None) -> None:
        spec = {"min": {"cpu": least} if least else {}, "max": {"cpu": most} if most else {}}
        name = {"namespace": namespace, "name": "team"}
        quota = {
            "apiVersion": "scheduling.x-k8s.io/v1alpha1",
            "kind": "ElasticQuota",
            "metadata": {**name, "uid": f"quota-{namespace}", "resourceVersion": "5"},
            "spec": spec,
        }
        self.state.set_quota(quota_from(quota))

    async def create(self, namespace: str, name: str, pod: Any, *, asks: bool = True) -> Outcome:  # noqa: ANN401 - a pod
        """Create a pod as an API server does; it asks `/mutate` unless selectors exempt it."""
        metadata = {**pod.get("metadata", {}), "namespace": namespace, "name": name, "uid": name}
        pod = {**pod, "metadata": metadata}
        if asks:
            answer = self._placement.review(review_of(object=pod, namespace=namespace))
            if answer.response.patch:
                pod = jsonpatch.apply_patch(pod, answer.response.patch.decode())
        result = await self.judge(namespace, name, pod)
        if result.response.allowed:
            is_gated = bool(pod["spec"].get("schedulingGates"))
            self.store(pod if is_gated else {**pod, "spec": {**pod["spec"], "nodeName": "n"}})
        return result.outcome

    async def judge(self, namespace: str, name: str, pod: Any, **more: Any) -> ReviewResult:  # noqa: ANN401 - a pod
        return await self._quota.review(asking(name, namespace, object=pod, **more))

    async def resize(self, pod: dict[str, Any], cpu: str) -> Outcome:
        metadata = {**pod["metadata"], "resourceVersion": "9"}
        old = {**pod, "metadata": metadata}
        new = {**old, "spec": with_cpu(cpu)["spec"]}
        request = msgspec.structs.replace(changing(old, new), namespace=metadata["namespace"])
        return (await self._quota.review(request)).outcome

    def store(self, pod: Any) -> None:  # noqa: ANN401 - a pod
        stored = pod_from(pod)
        self.state.set_pod(stored, seen_at=NOON)
        self.pods.observe(stored.namespace, stored.uid, next(self._versions))


def with_cpu(cpu: str = "1", **spec: object) -> dict[str, Any]:
    container = {"name": "c", "resources": {"requests": {"cpu": cpu}}}
    return {"spec": {"containers": [container], **spec}}


def with_amounts(**amounts: str) -> dict[str, Any]:
    return {"spec": {"containers": [{"name": "c", "resources": {"requests": amounts}}]}}


def of_many_containers() -> dict[str, Any]:
    made = with_cpu()
    made["spec"]["containers"] += [{"name": f"c{number}"} for number in range(109)]
    return made


QUEUED = {
    "metadata": {"annotations": {HOLD_REASONS_ANNOTATION: "quota"}},
    **with_cpu(schedulingGates=[{"name": HOLD_GATE}]),
}
MARKS = {
    "a label of Kueue": {"metadata": {"labels": {"kueue.x-k8s.io/queue-name": "x"}}, **with_cpu()},
    "a gate of one's own": with_cpu(schedulingGates=[{"name": "evil/x"}]),
    "a scheduling group": with_cpu(schedulingGroup={"podGroupName": "x"}),
    "another scheduler": with_cpu(schedulerName="mine"),
    "many containers": of_many_containers(),
    "an opt-out": {"metadata": {"labels": {"stowplan.dev/placement": "disabled"}}, **with_cpu()},
    "a label of DaemonSets": {
        "metadata": {"labels": {"pod-template-generation": "1"}},
        **with_cpu(),
    },
}
EXEMPT = {"an opt-out", "a label of DaemonSets"}  # by the chart's objectSelector


@pytest.fixture
def world() -> World:
    return World()


async def created(world: World, pod: Any, *, many: int, asks: bool = True) -> Counter[Outcome]:  # noqa: ANN401 - a pod
    """Create pods one after the other in `evil`."""
    names = [f"e{number}" for number in range(many)]
    return Counter([await world.create("evil", name, pod, asks=asks) for name in names])


@pytest.mark.parametrize("mark", MARKS)
async def test_beyond_min_no_pod_gets_what_a_neighbour_waits_for(world: World, mark: str) -> None:
    # Of 10 cores good uses 2 and waits for 3 more within min; evil has 5 of its own and no more.
    for name in ("g0", "g1"):
        world.store({**with_cpu(nodeName="n"), "metadata": {"namespace": "good", "name": name}})
    for name in ("g2", "g3", "g4"):
        assert await world.create("good", name, with_cpu()) is Outcome.QUEUED
    outcomes = await created(world, MARKS[mark], many=12, asks=mark not in EXEMPT)
    assert outcomes == {ADMITTED: 5, DENIED: 7}


async def test_a_pod_that_others_keep_from_its_turn_keeps_nobody(world: World) -> None:
    # As above, but those that wait have a gate that nobody ever removes.
    for name in ("g0", "g1"):
        world.store({**with_cpu(nodeName="n"), "metadata": {"namespace": "good", "name": name}})
    gates = [{"name": HOLD_GATE}, {"name": "evil/x"}]
    for name in ("g2", "g3", "g4"):
        metadata = {**QUEUED["metadata"], "namespace": "good", "name": name, "uid": name}
        world.store({**with_cpu(schedulingGates=gates), "metadata": metadata})
    outcomes = await created(world, MARKS["another scheduler"], many=12)
    assert outcomes == {ADMITTED: 8, DENIED: 4}


async def test_what_min_does_not_name_is_borrowed(world: World) -> None:
    # Of 64 GiB good waits for 40 within min; evil has a min of cpu alone, and 24 GiB are one of 16.
    quota = {
        "metadata": {"namespace": "good", "name": "team", "uid": "quota-good"},
        "spec": {"min": {"cpu": "5", "memory": "40Gi"}, "max": {"cpu": "10"}},
    }
    world.state.set_quota(quota_from(quota))
    for number in range(4):
        asks = with_amounts(cpu="1", memory="10Gi")
        assert await world.create("good", f"g{number}", asks) is Outcome.QUEUED
    large = with_amounts(cpu="10m", memory="16Gi")
    large["spec"]["schedulerName"] = "mine"
    assert await created(world, large, many=3) == {ADMITTED: 1, DENIED: 2}


@pytest.mark.parametrize("mark", MARKS)
async def test_what_nobody_waits_for_is_lent_up_to_max(world: World, mark: str) -> None:
    world.limit("evil", "5", "8")
    outcomes = await created(world, MARKS[mark], many=12, asks=mark not in EXEMPT)
    assert outcomes == {ADMITTED: 8, DENIED: 4}


@pytest.mark.parametrize("mark", MARKS)
async def test_beyond_the_room_of_the_cohort_nothing_is_lent(world: World, mark: str) -> None:
    # Of 10 cores good uses 3, and nobody waits: 7 are left.
    for name in ("g0", "g1", "g2"):
        world.store({**with_cpu(nodeName="n"), "metadata": {"namespace": "good", "name": name}})
    outcomes = await created(world, MARKS[mark], many=12, asks=mark not in EXEMPT)
    assert outcomes == {ADMITTED: 7, DENIED: 5}


async def test_within_min_a_pod_is_admitted_whatever_others_use_and_wait_for(world: World) -> None:
    world.limit("good", "0", "20")
    for number in range(10):
        name = {"namespace": "good", "name": f"g{number}"}
        world.store({**with_cpu(nodeName="n"), "metadata": name})
    assert await world.create("good", "waits", with_cpu()) is Outcome.QUEUED
    assert await created(world, MARKS["another scheduler"], many=6) == {ADMITTED: 5, DENIED: 1}


async def test_what_waits_beyond_the_max_of_its_quota_keeps_nobody(world: World) -> None:
    # good waits for 9 cores, of which its max leaves it 1: of 10 cores 4 + 1 are taken.
    world.limit("good", "0", "5")
    for number in range(4):
        name = {"namespace": "good", "name": f"g{number}"}
        world.store({**with_cpu(nodeName="n"), "metadata": name})
    for number in range(9):
        assert await world.create("good", f"w{number}", with_cpu()) is Outcome.QUEUED
    world.limit("evil", "0", "10")
    assert await created(world, MARKS["another scheduler"], many=7) == {ADMITTED: 5, DENIED: 2}


async def test_a_pod_that_never_fits_the_cohort_keeps_nobody(world: World) -> None:
    world.limit("good", "5", None)
    assert await world.create("good", "huge", with_cpu("11")) is Outcome.QUEUED
    assert await created(world, MARKS["another scheduler"], many=11) == {ADMITTED: 10, DENIED: 1}


async def test_a_pod_is_denied_by_the_name_of_its_quota_and_told_why(world: World) -> None:
    world.limit("evil", "0", "20")
    await created(world, MARKS["another scheduler"], many=10)
    pod = {**MARKS["another scheduler"], "metadata": {"name": "one-more"}}
    response = (await world.judge("evil", "one-more", pod)).response
    assert response.status is not None
    assert response.status.message == (
        "exceeded quota: cohort of team, requested: cpu=1, used: cpu=10, limited: cpu=10: a pod"
        " that is not held and beyond min goes after all that wait, which count as used"
    )


async def test_admitted_pods_count_before_any_view_has_them(world: World) -> None:
    # Nothing is stored: 3 of each quota at the same time, of 10 cores, by a min of 0.
    for namespace in ("good", "evil"):
        world.limit(namespace, "0", "10")
    verdicts = []
    for number in range(6):
        for namespace in ("good", "evil"):
            name = f"{namespace}-{number}"
            pod = {**MARKS["another scheduler"], "metadata": {"name": name, "uid": name}}
            verdicts.append((await world.judge(namespace, name, pod)).outcome)
    assert Counter(verdicts) == {ADMITTED: 10, DENIED: 2}


async def test_a_dry_run_is_judged_and_takes_nothing(world: World) -> None:
    world.limit("evil", "0", "20")
    pod = {**with_cpu("10", schedulerName="mine"), "metadata": {"name": "e"}}
    for name in ("a", "b"):
        result = await world.judge("evil", name, pod, dryRun=True)
        assert result.outcome is ADMITTED
    assert await world.create("evil", "e", pod) is ADMITTED


async def test_advice_is_no_reason_to_count_a_pod_twice(world: World) -> None:
    # Two pods of 5 of 10 cores: /mutate counts each on the node before /validate sees it, and the
    # first is created and not bound.
    world.limit("evil", "0", "20")
    for name in ("a", "b"):
        advice = {"advice": name, "nodes": ["n"], "id": name}
        annotations = {ADVICE_ANNOTATION: json.dumps(advice)}
        metadata = {"namespace": "evil", "name": name, "uid": name, "annotations": annotations}
        pod = {**with_cpu("5"), "metadata": metadata}
        model = pod_from(pod)
        world.state.assume(model, Advice(nodes=("n",), id=name), at=NOON)
        assert (await world.judge("evil", name, pod)).outcome is ADMITTED
        world.store(pod)
    assert world.state.view().assumed.sum() == 2


async def test_a_resize_beyond_min_waits_for_nobody_to_wait(world: World) -> None:
    assert await world.create("evil", "e", MARKS["another scheduler"]) is ADMITTED
    for number in range(6):
        assert await world.create("good", f"g{number}", with_cpu()) is Outcome.QUEUED
    pod = {**with_cpu(), "metadata": {"namespace": "evil", "name": "e", "uid": "e"}}
    assert await world.resize(pod, "6") is DENIED  # 5 more: 1 of them beyond min, of 10 - 1 - 6
    assert await world.resize(pod, "5") is ADMITTED


async def test_a_pod_that_ends_its_wait_has_had_its_turn(world: World) -> None:
    # The leader released it; /validate compares it with max, as it always did.
    world.limit("evil", "0", "10")
    for number in range(10):
        assert await world.create("good", f"g{number}", with_cpu()) is Outcome.QUEUED
    metadata = {"namespace": "evil", "name": "e", "uid": "e", "resourceVersion": "9"}
    old = {**QUEUED, "metadata": {**QUEUED["metadata"], **metadata}}
    released = {**with_cpu(), "metadata": metadata}
    request = msgspec.structs.replace(changing(old, released, by=""), namespace="evil")
    assert (await world._quota.review(request)).outcome is ADMITTED  # noqa: SLF001


async def test_in_other_modes_and_without_quota_nothing_changes(world: World) -> None:
    world.state.set_namespace("evil", {}, quota_mode="Enforce")
    for number in range(10):
        assert await world.create("good", f"g{number}", with_cpu()) is Outcome.QUEUED
    assert await created(world, MARKS["another scheduler"], many=12) == {ADMITTED: 10, DENIED: 2}
    assert await world.create("elsewhere", "x", with_cpu("9")) is ADMITTED
