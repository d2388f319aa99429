from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import jsonpatch
import pytest

from engine.model import api
from engine.model.hold import (
    HOLD_GATE,
    HOLD_REASONS_ANNOTATION,
    RELEASE_BY_ANNOTATION,
    RELEASING_ANNOTATION,
)
from engine.model.pod import pod_of
from engine.model.time import SECOND, Micros
from engine.pipeline import Scope
from engine.placement import ADVICE_ANNOTATION
from engine.policy import load_policies
from engine.quota import queues_pods
from engine.view import ClusterState
from tests.webhook.admission.test_placement import Queue, review_of
from webhook.admission.handler import Outcome, ReviewResult
from webhook.admission.hold import GangHolds, PodHolder
from webhook.admission.placement import PlacementReviews
from webhook.cluster import Cluster
from webhook.placement.explanations import Explanations
from webhook.placement.held_pods import HeldPods, HoldGuard, ObservedLease
from webhook.placement.live_policies import PolicyCounts
from webhook.placement.placer import Placer

NOON = Micros(1_767_614_400 * SECOND)  # 2026-01-05T12:00:00Z
HELD = {HOLD_REASONS_ANNOTATION: "order", RELEASE_BY_ANNOTATION: "2026-01-05T12:01:00Z"}
SYSTEM_CRITICAL = 2_000_000_000

POLICY = """
apiVersion: stowplan.dev/v1alpha1
kind: PlacementPolicy
metadata: {{name: {name}}}
spec:
  priority: {priority}
  mode: {mode}
  match: {{objectSelector: {{matchLabels: {{{labels}}}}}}}
  scores: [{{name: is-b, expression: "node.name == 'node-b' ? 1 : 0"}}]
  placement: {{at: {at}, releaseInOrder: {holds}}}
"""


def policy(
    name: str, at: str = "Binding", *, labels: str = "", mode: str = "Enforce", priority: int = 0
) -> str:
    """Return a policy; one that decides at binding has its pods released in order."""
    holds = "true" if at == "Binding" else "false"
    return POLICY.format(name=name, at=at, holds=holds, labels=labels, mode=mode, priority=priority)


@dataclass(frozen=True, kw_only=True)
class Lease(ObservedLease):
    holder: str = "a replica"
    annotations: Mapping[str, str] = field(default_factory=lambda: {RELEASING_ANNOTATION: "true"})
    age_seconds: float = 1.0


class World:
    """Reviews of new pods, with a guard and a clock that a test moves."""

    def __init__(
        self, state: ClusterState, folder: Path, *, decides_bindings: bool = False
    ) -> None:
        self.state = state
        self.lease = Lease()
        self.has_pod_groups = True
        self.queue = Queue(is_crowded=False)
        self.refused = Counter[str]()
        self.explanations = Explanations(9)
        self.counts = PolicyCounts()
        self.seconds, self.tick = 0.0, 0.0
        self._file = folder / "policy.yaml"
        self.policies = load_policies([])
        self.held = HeldPods(self._now, most=10)
        cluster = Cluster(state=state, now=self._now, is_live=True)
        self.placer = Placer(
            view=state.view,
            now=self._now,
            scope=Scope(),
            explanations=self.explanations,
            assumed=cluster,
            decides_bindings=decides_bindings,
        )
        holder = PodHolder(
            self.placer,
            HoldGuard(lambda: self.lease, self.held),
            queues=lambda namespace, _: queues_pods(state.view(), namespace, "Enforce"),
            gangs=GangHolds(state.view, lambda: self.has_pod_groups),
            now=self._now,
            seconds=60,
            counts=self.counts,
            count_refusal=lambda reason: self.refused.update([reason]),
        )
        self.reviews = PlacementReviews(
            self.placer,
            lambda: self.policies,
            self._clock,
            self.counts,
            holder,
            queue=self.queue,
        )

    def load(self, *policies: str, only_audit: bool = False) -> World:
        self._file.write_text("\n---\n".join(policies))
        loaded = load_policies([self._file])
        self.policies = loaded.in_audit_mode() if only_audit else loaded
        return self

    def review(self, pod: dict[str, Any] | None = None, **parts: Any) -> ReviewResult:  # noqa: ANN401 - parts of a request
        return self.reviews.review(review_of(object=pod or manifest(), **parts))

    def need_not_wait(self, **parts: Any) -> bool:  # noqa: ANN401 - parts of a request
        return self.reviews.without_waiting(review_of(object=manifest(), **parts)) is not None

    @property
    def assumed(self) -> int:
        return int(self.state.view().assumed.sum())

    def _clock(self) -> float:
        self.seconds += self.tick
        return self.seconds

    def _now(self) -> Micros:
        return NOON


def manifest(
    metadata: dict[str, Any] | None = None,
    **spec: Any,  # noqa: ANN401 - fields of a pod
) -> dict[str, Any]:
    return {
        "metadata": {"generateName": "web-", **(metadata or {})},
        "spec": {"containers": [{"name": "c"}], **spec},
    }


def patched(pod: dict[str, Any], result: ReviewResult) -> dict[str, Any]:
    after: dict[str, Any] = jsonpatch.apply_patch(pod, json.loads(result.response.patch or b"[]"))
    return after


def gates(*names: str) -> list[dict[str, str]]:
    return [{"name": name} for name in names]


@pytest.fixture
def world(state: ClusterState, tmp_path: Path) -> World:
    return World(state, tmp_path).load(policy("late"))


@pytest.fixture
def binding(state: ClusterState, tmp_path: Path) -> World:
    """Where bindings are decided, so that nothing is when a pod is created."""
    return World(state, tmp_path, decides_bindings=True).load(policy("late"))


def test_a_pod_of_an_order_is_held_and_nothing_else(binding: World) -> None:
    world = binding
    result = world.review()
    assert result.outcome is Outcome.HELD
    after = patched(manifest(), result)
    assert after == manifest({"annotations": HELD}, schedulingGates=gates(HOLD_GATE))
    assert result.response.warnings == ()
    assert result.response.audit_annotations["policies"] == "late"
    assert world.assumed == 0
    assert len(world.explanations) == 0
    assert not any(world.counts.decisions(world.policies).values())


def test_where_no_bindings_are_decided_a_held_pod_has_advice(world: World) -> None:
    after = patched(manifest(), world.review())
    assert after["metadata"]["annotations"].items() >= HELD.items()
    assert ADVICE_ANNOTATION in after["metadata"]["annotations"]
    assert world.assumed == 0
    assert world.counts.decisions(world.policies)["late", "Enforce", "placed"] == 1


def test_a_pod_for_which_others_may_be_evicted_is_held(binding: World) -> None:
    preempting = policy("late", "Admission").replace("releaseInOrder: false", "preemption: DryRun")
    after = patched(manifest(), binding.load(preempting).review())
    assert after["metadata"]["annotations"][HOLD_REASONS_ANNOTATION] == "preemption"


def test_a_second_round_of_admission_changes_nothing(world: World) -> None:
    once = patched(manifest(), world.review())
    again = world.review(once)
    assert again.outcome is Outcome.HELD
    assert again.response.patch is None


PROMISING = policy("late").replace(
    "scores:", "filters: [{name: f, expression: \"'disk' in node.labels\"}]\n  scores:"
)
DISK = [{"matchExpressions": [{"key": "disk", "operator": "Exists"}]}]


def test_a_held_pod_has_what_filters_promise_whoever_releases_it(binding: World) -> None:
    world = binding
    once = patched(manifest(), world.load(PROMISING).review())
    required = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": DISK}}
    assert once == manifest(
        {"annotations": HELD},
        schedulingGates=gates(HOLD_GATE),
        affinity={"nodeAffinity": required},
    )
    again = world.review(once)
    assert again.outcome is Outcome.HELD
    assert again.response.patch is None
    assert len(world.explanations) == 0


def test_a_held_pod_is_told_which_filter_it_cannot_have(binding: World) -> None:
    world = binding
    either = PROMISING.replace(
        "'disk' in node.labels", "'disk' in node.labels || 'x' in node.labels"
    )
    own = [{"matchExpressions": [{"key": f"k{i}", "operator": "Exists"}]} for i in range(16)]
    required = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": own}}
    result = world.load(either).review(manifest(affinity={"nodeAffinity": required}))
    assert result.outcome is Outcome.HELD
    assert result.response.warnings == (
        "filter f is not required of nodes: it takes too many terms",
    )


@pytest.mark.parametrize(
    "pod",
    [
        manifest(priority=1_000_000_000),
        manifest(priority=SYSTEM_CRITICAL),
        manifest(schedulingGroup={"podGroupName": "gang"}),
        manifest(schedulingGates=gates("example.org/theirs")),
        manifest(schedulingGates=gates(HOLD_GATE, "example.org/theirs")),
        manifest({"labels": {"kueue.x-k8s.io/queue-name": "team"}}),
        manifest({"annotations": {"kueue.x-k8s.io/workload": "job-1"}}),
    ],
)
def test_pods_that_must_not_wait_for_us_are_advised(world: World, pod: dict[str, Any]) -> None:
    result = world.review(pod)
    assert result.outcome is Outcome.PLACED
    after = patched(pod, result)
    assert after["spec"].get("schedulingGates") == pod["spec"].get("schedulingGates")
    assert not HELD.keys() & after["metadata"]["annotations"].keys()
    assert not world.refused  # nobody meant to hold it


def test_pods_of_system_classes_are_left_alone(world: World) -> None:
    result = world.review(
        manifest(priority=SYSTEM_CRITICAL, priorityClassName="system-node-critical")
    )
    assert result.outcome is Outcome.ABSTAINED
    assert result.response.patch is None


@pytest.mark.parametrize(
    ("pod", "namespace"),
    [
        (manifest({"ownerReferences": [{"kind": "DaemonSet"}]}), "shop"),
        (manifest({"annotations": {"kubernetes.io/config.mirror": "a"}}), "shop"),
        (manifest(nodeName="node-a"), "shop"),
        (manifest(priority=SYSTEM_CRITICAL, priorityClassName="system-node-critical"), "shop"),
        (manifest(schedulerName="volcano"), "shop"),
        (manifest(), "kube-system"),
    ],
)
def test_pods_that_are_never_advised_are_never_held(
    world: World, pod: dict[str, Any], namespace: str
) -> None:
    result = world.review(pod, namespace=namespace)
    assert result.outcome is Outcome.ABSTAINED
    assert result.response.patch is None
    assert not world.refused


def test_pods_that_are_too_large_to_be_advised_are_not_held(world: World) -> None:
    crowd = manifest(tolerations=[{"key": str(number)} for number in range(501)])
    giant = manifest({"annotations": {"a": "x" * 300_000}})
    for pod in (crowd, giant):
        result = world.review(pod)
        assert result.outcome is Outcome.TOO_LARGE
        assert result.response.patch is None


@pytest.mark.parametrize(
    ("policies", "outcome"),
    [
        ([policy("late", priority=1), policy("now", "Admission")], Outcome.HELD),
        ([policy("late"), policy("now", "Admission", priority=1)], Outcome.PLACED),
        ([policy("late", labels="a: b"), policy("now", "Admission")], Outcome.PLACED),
        ([policy("late", mode="Audit")], Outcome.ABSTAINED),
        ([policy("late", mode="Audit", priority=1), policy("now", "Admission")], Outcome.PLACED),
        ([policy("now", "Admission")], Outcome.PLACED),
    ],
)
def test_the_policy_of_the_highest_priority_that_acts_decides_when(
    world: World, policies: list[str], outcome: Outcome
) -> None:
    result = world.load(*policies).review()
    assert result.outcome is outcome
    assert not world.refused


def test_nothing_is_held_where_all_policies_only_audit(world: World) -> None:
    result = world.load(policy("late"), only_audit=True).review()
    assert result.outcome is Outcome.ABSTAINED
    assert result.response.patch is None
    assert "audited-decision" in result.response.audit_annotations


@pytest.mark.parametrize(
    ("lease", "reason"),
    [
        (Lease(holder=""), "no_leader"),
        (Lease(age_seconds=15.0), "no_leader"),
        (Lease(annotations={}), "not_releasing"),
    ],
)
def test_where_the_guard_refuses_a_pod_gets_the_advice_of_before_and_is_counted(
    world: World, lease: Lease, reason: str
) -> None:
    world.lease = lease
    refused = world.review()
    advised = world.load(policy("late", "Admission")).review()
    assert refused.outcome is Outcome.PLACED
    assert patched(manifest(), refused) == patched(manifest(), advised)
    assert world.assumed == 1  # the one review twice: it has one uid
    assert world.refused == {reason: 1}


@pytest.mark.parametrize(
    ("namespace", "outcome"), [("shop", Outcome.PLACED), ("mail", Outcome.HELD)]
)
def test_no_more_pods_of_a_namespace_are_held_than_its_share(
    world: World, namespace: str, outcome: Outcome
) -> None:
    for number in range(10):
        pod = pod_of(
            api.Pod(
                metadata=api.ObjectMeta(name=str(number), namespace=namespace),
                spec=api.PodSpec(scheduling_gates=[api.PodSchedulingGate(name=HOLD_GATE)]),
            )
        )
        world.held.pod_changed(pod, 1, b"")
    assert world.review().outcome is outcome
    assert world.refused == ({"full": 1} if outcome is Outcome.PLACED else {})


def test_a_dry_run_shows_the_hold_and_leaves_no_trace(world: World) -> None:
    result = world.review(dryRun=True)
    assert patched(manifest(), result)["spec"]["schedulingGates"] == gates(HOLD_GATE)
    world.lease = Lease(holder="")
    assert world.review(dryRun=True).outcome is Outcome.PLACED
    assert not world.refused
    assert world.assumed == 0


@pytest.mark.parametrize(
    "forged", [{}, {RELEASE_BY_ANNOTATION: "2126-01-05T12:00:00Z"}, {**HELD, "a": "b"}]
)
def test_a_forged_hold_is_no_way_around_a_policy(world: World, forged: dict[str, str]) -> None:
    pod = manifest({"annotations": forged}, schedulingGates=gates(HOLD_GATE))
    by_filter = policy("now", "Admission").replace(
        "scores:", "filters: [{name: f, expression: \"'disk' in node.labels\"}]\n  scores:"
    )
    result = world.load(by_filter).review(pod)
    terms = patched(pod, result)["spec"]["affinity"]["nodeAffinity"]
    assert "disk" in json.dumps(terms["requiredDuringSchedulingIgnoredDuringExecution"])


def test_a_forged_hold_says_no_more_than_a_true_one(binding: World) -> None:
    world = binding
    forged = {HOLD_REASONS_ANNOTATION: "x", RELEASE_BY_ANNOTATION: "2126-01-05T12:00:00Z"}
    pod = manifest({"annotations": forged}, schedulingGates=gates(HOLD_GATE))
    after = patched(pod, world.review(pod))
    assert after == manifest({"annotations": HELD}, schedulingGates=gates(HOLD_GATE))


def test_a_pod_that_is_held_in_the_second_round_counts_nowhere(world: World) -> None:
    world.lease = Lease(holder="")
    advised = patched(manifest(), world.review(uid="u-1"))
    assert ADVICE_ANNOTATION in advised["metadata"]["annotations"]
    assert world.assumed == 1
    world.lease = Lease()
    assert world.review(advised, uid="u-2", dryRun=True).outcome is Outcome.HELD
    assert world.assumed == 1
    assert world.review(advised, uid="u-2").outcome is Outcome.HELD
    assert world.assumed == 0


def test_under_load_an_advice_is_not_shared_with_a_pod_that_may_be_held(world: World) -> None:
    world.tick = 0.011  # a decision takes more than a tenth of the time
    world.lease = Lease(holder="")
    assert world.review(uid="u-1").outcome is Outcome.PLACED
    assert world.review(uid="u-2").outcome is Outcome.SHARED
    assert world.refused == {"no_leader": 2}
    world.lease = Lease()
    assert world.review(uid="u-3").outcome is Outcome.HELD
    world.lease = Lease(holder="")
    assert world.review(uid="u-4").outcome is Outcome.SHARED  # a hold was not stored either


def test_under_load_only_a_pod_that_may_be_held_waits_in_any_case(world: World) -> None:
    world.tick = 0.011  # a decision takes more than a tenth of the time
    world.queue.may_wait = False
    world.lease = Lease(holder="")
    assert world.review(uid="u-1").outcome is Outcome.PLACED
    assert world.need_not_wait(uid="u-2")
    world.lease = Lease()
    assert not world.need_not_wait(uid="u-3")


def test_under_load_pods_that_are_not_held_share_decisions_as_before(world: World) -> None:
    world.load(policy("late", labels="a: b"), policy("now", "Admission"))
    world.tick = 0.011  # a decision takes more than a tenth of the time
    assert world.review(uid="u-1").outcome is Outcome.PLACED
    assert world.review(uid="u-2").outcome is Outcome.SHARED
    assert not world.refused


# A hold is never late.


def at_once(world: World, pod: dict[str, Any] | None = None) -> ReviewResult | None:
    return world.reviews.without_waiting(review_of(object=pod or manifest()))


def too_late(world: World, pod: dict[str, Any] | None = None) -> ReviewResult:
    request = review_of(object=pod or manifest())
    return world.reviews.undecided(request, Outcome.DEADLINE, "no time was left")


def test_a_hold_that_takes_no_decision_waits_for_none(binding: World) -> None:
    binding.queue.is_overloaded, binding.queue.may_wait = True, False
    for policies in (policy("late"), PROMISING):
        at = at_once(binding.load(policies))
        assert at == binding.review()
        assert at is not None
        assert at.outcome is Outcome.HELD


def test_a_hold_waits_where_a_decision_is_made_of_the_pod(binding: World, world: World) -> None:
    audits = policy("audits", "Admission", mode="Audit")
    assert at_once(binding.load(policy("late"), audits)) is None
    assert at_once(world) is None  # it is advised, as no bindings are decided


def test_where_there_is_no_time_for_a_decision_a_pod_is_held_with_promises_alone(
    world: World, binding: World
) -> None:
    expected = patched(manifest(), binding.load(PROMISING).review())
    result = too_late(world.load(PROMISING))
    assert result.outcome is Outcome.HELD
    assert patched(manifest(), result) == expected
    world.queue.is_overloaded = True
    assert patched(manifest(), world.review()) == expected
    assert not any(world.counts.decisions(world.policies).values())


def test_where_there_is_no_time_a_pod_that_is_not_to_be_held_passes_unmodified(
    world: World,
) -> None:
    crowd = manifest(tolerations=[{"key": str(number)} for number in range(501)])
    giant = manifest({"annotations": {"a": "x" * 300_000}})
    for pod in (crowd, giant, manifest(priority=SYSTEM_CRITICAL)):
        result = too_late(world, pod)
        assert (result.outcome, result.response.patch) == (Outcome.DEADLINE, None)
        assert not (at := at_once(world, pod)) or at.outcome is not Outcome.HELD
    world.lease = Lease(holder="")
    result = too_late(world)
    assert (result.outcome, result.response.patch) == (Outcome.DEADLINE, None)
    assert result.response.warnings == ("stowplan gave no placement advice: no time was left",)
    request = review_of(object=manifest(), operation="UPDATE")
    result = world.reviews.undecided(request, Outcome.DEADLINE, "no time was left")
    assert (result.outcome, result.response.patch) == (Outcome.DEADLINE, None)
