"""Random clusters, and a pod that wants room: within `min` of its quota, or of high priority."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import ModuleType

import msgspec
from hypothesis import strategies as st

import engine.eviction
from engine.eviction import (
    Candidate,
    GuardState,
    NoPlan,
    Plan,
    QuotaAccount,
    Situation,
    WorkloadKey,
    running_pod_of,
)
from engine.eviction.guards import OwnerHits
from engine.model.decision import PlacementRequest
from engine.model.disruption_budget import DisruptionBudget
from engine.model.elastic_quota import UPSTREAM_GROUP, QuotaKey
from engine.model.gang import Gang, GangKey, PodGroup
from engine.model.node import Node
from engine.model.pod import Pod
from engine.model.pod_classes import PreemptionToleration, PriorityClass
from engine.model.selectors import LabelSelector
from engine.model.time import Micros
from engine.policy import CompiledPolicy, PolicySet
from engine.view import ClusterState, counted_requests
from tests.engine.measured_cluster import NOW, node, pod, seconds_ago
from tests.engine.policy.worlds import policy

GANG_LABEL = "scheduling.x-k8s.io/pod-group"
OWN = "shop"
OTHERS = ("batch", "etl")
WITHOUT_QUOTA = "free"
_SPACES = (OWN, *OTHERS, WITHOUT_QUOTA)


def quota_key(namespace: str) -> QuotaKey:
    """Return the key of the quota of a namespace."""
    return namespace, UPSTREAM_GROUP, "quota"


@dataclass(frozen=True)
class ReclaimWorld:
    """Something to plan on.

    Attributes:
        minimums: `min` by namespace; others have no quota.
        cohort: what all quotas may use together.
        leaving: names of pods that plans under way evict.
        gangs: names of PodGroups, in every namespace of pods.
    """

    nodes: Sequence[Node]
    pods: Sequence[Pod]
    preemptor: Pod
    minimums: Mapping[str, Mapping[str, int]]
    cohort: Mapping[str, int]
    policies: PolicySet
    budgets: Sequence[DisruptionBudget] = ()
    classes: Mapping[str, PriorityClass] = field(default_factory=dict)
    guards: GuardState = field(default_factory=GuardState)
    at_limit: frozenset[str] = frozenset()
    exhausted: frozenset[WorkloadKey] = frozenset()
    leaving: frozenset[str] = frozenset()
    gangs: frozenset[str] = frozenset()
    now: Micros = NOW

    @property
    def request(self) -> PlacementRequest:
        """The request of the preemptor."""
        return PlacementRequest(pod=self.preemptor, raw=b"{}")

    @property
    def quotas(self) -> tuple[QuotaKey, ...]:
        """The quota of the preemptor."""
        return (quota_key(self.preemptor.namespace),)

    @property
    def leaving_pods(self) -> list[Pod]:
        """The pods of quotas that are leaving anyway; others count until they are gone."""
        of_quotas = [each for each in self.pods if each.namespace in self.minimums]
        return [each for each in of_quotas if each.deleting or each.name in self.leaving]

    def state(self) -> ClusterState:
        """Return the cluster."""
        state = ClusterState()
        state.track_sums(self.policies.sum_profiles)
        for each in self.nodes:
            state.set_node(each)
        for each_pod in self.pods:
            state.set_pod(each_pod, seen_at=NOW)
        for namespace in {each.namespace for each in self.pods}:
            for name in self.gangs:
                gang = Gang(key=GangKey(namespace, name), min_member=2, total=2)
                state.set_extra(PodGroup(group=UPSTREAM_GROUP, gang=gang))
        return state

    def gang_of(self, pod: Pod) -> list[Pod]:
        """Return all running members of the gang of a pod, itself alone where it has none."""
        name = pod.labels.get(GANG_LABEL)
        if name not in self.gangs:
            return [pod]
        return [
            each
            for each in self.pods
            if each.namespace == pod.namespace
            and each.labels.get(GANG_LABEL) == name
            and not (each.deleting or each.name in self.leaving)
        ]

    def used(self, namespace: str) -> dict[str, int]:
        """Return what the pods of a namespace request."""
        return total([each for each in self.pods if each.namespace == namespace])

    def situation(self) -> Situation:
        """Return what a plan is made from."""
        state = self.state()
        used = {space: self.used(space) for space in self.minimums}
        candidates = []
        for each in self.pods:
            running, entry = running_pod_of(each), state.entry(each.key)
            if running is not None and entry is not None and each.namespace in self.minimums:
                quotas = (quota_key(each.namespace),)
                candidates.append(Candidate(pod=running, entry=entry, quotas=quotas))
        in_use: dict[str, int] = {}
        for amounts in used.values():
            for name, amount in amounts.items():
                in_use[name] = in_use.get(name, 0) + amount
        return Situation(
            view=state.view(),
            policies=self.policies,
            candidates=candidates,
            accounts={
                quota_key(space): QuotaAccount(guaranteed=self.minimums[space], used=amounts)
                for space, amounts in used.items()
            },
            cohort_room={name: most - in_use.get(name, 0) for name, most in self.cohort.items()},
            lendable=self.cohort,
            budgets=self.budgets,
            classes=self.classes,
            guards=self.guards,
            at_limit=self.at_limit,
            exhausted=self.exhausted,
            leaving=frozenset(each.uid for each in self.pods if each.name in self.leaving),
            now=self.now,
        )


def total(pods: Sequence[Pod]) -> dict[str, int]:
    """Return what pods request together."""
    amounts: dict[str, int] = {}
    for each in pods:
        for name, amount in counted_requests(each.shape).items():
            amounts[name] = amounts.get(name, 0) + amount
    return amounts


def running(  # noqa: PLR0913 - what matters of a pod
    name: str,
    on: str,
    cpu: int,
    memory: int = 0,
    *,
    namespace: str = OTHERS[0],
    priority: int = 0,
    age: int = 3600,
    owner: str = "",
    deleting: bool = False,
    labels: Mapping[str, str] | None = None,
    kind: str = "ReplicaSet",
    priority_class: str = "",
) -> Pod:
    """Return a pod that was bound so many seconds ago; cpu in cores, memory in GiB."""
    metadata: dict[str, object] = {
        "name": name,
        "namespace": namespace,
        "uid": f"uid-{name}",
        "labels": dict(labels or {}),
        "ownerReferences": [{"kind": kind, "name": owner, "uid": owner}] if owner else [],
    }
    if deleting:
        metadata["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    bound = pod(
        name,
        on,
        requests={"cpu": str(cpu)} | ({"memory": f"{memory}Gi"} if memory else {}),
        metadata=metadata,
        priority=priority,
        priorityClassName=priority_class,
    )
    return _at(bound, seconds_ago(age)) if on else bound


def _at(bound: Pod, moment: Micros) -> Pod:
    return msgspec.structs.replace(bound, scheduled_at=moment)


_POLICIES = tuple(
    PolicySet([policy(f"filters: [{text}]\n", "policy")])
    for text in (
        "{name: all, expression: 'true'}",
        "{name: few, expression: node.podCount < 3}",
        "{plugin: LimitAware, args: {defaultLimitToAllocatableRatio: {cpu: 150%}}}",
    )
)


_LABELS: tuple[Mapping[str, str], ...] = (
    *({}, {}, {}, {}),
    *({"app": "x"}, {"app": "y"}),
    *({GANG_LABEL: "gang"}, {GANG_LABEL: "nameless"}),
)


@st.composite
def _pods(draw: st.DrawFn, nodes: int, *, with_memory: bool) -> list[Pod]:
    pods = []
    for i in range(draw(st.integers(3, 9))):
        namespace = draw(st.sampled_from((*OTHERS, *OTHERS, OTHERS[0], *_SPACES)))
        owners = ("", "", "set-a", "set-b")
        pods.append(
            running(
                f"p{i}",
                f"n{draw(st.integers(0, nodes - 1))}",
                draw(st.integers(1, 3)),
                draw(st.integers(0, 2)) if with_memory else 0,
                namespace=namespace,
                priority=draw(st.sampled_from((0, 0, 10, 100, 0, 0, 10, 100, 2_000_000_000))),
                age=draw(st.sampled_from((3600, 3600, 7200, 5000, 301, 300, 299))),
                owner=draw(st.sampled_from(owners)),
                deleting=draw(st.sampled_from((False,) * 15 + (True,))),
                labels=draw(st.sampled_from(_LABELS)),
                kind=draw(st.sampled_from(("ReplicaSet",) * 15 + ("DaemonSet",))),
            )
        )
    return pods


_APPS = [LabelSelector(), None]


@st.composite
def worlds(draw: st.DrawFn) -> ReclaimWorld:
    """Return random worlds; pods may request more than their node offers."""
    count = draw(st.integers(1, 3))
    with_memory = draw(st.booleans())
    most = st.sampled_from(("3", "4", "5"))
    nodes = [node(f"n{i}", cpu=draw(most), memory="4Gi", pods="20") for i in range(count)]
    pods = draw(_pods(count, with_memory=with_memory))
    preemptor = running(
        "preemptor", "", draw(st.integers(1, 4)), int(with_memory), namespace=OWN, priority=5
    )
    cpus = st.integers(0, 4).map(lambda cores: cores * 1000)
    minimums = {
        space: {"cpu": draw(cpus)} | ({"memory": draw(st.integers(0, 3)) * 2**30} if again else {})
        for space in (OWN, *OTHERS)
        for again in [with_memory and draw(st.booleans())]
    }
    minimums[OWN]["cpu"] += 8000
    if "memory" in minimums[OWN]:
        minimums[OWN]["memory"] += 4 * 2**30
    budgets = [
        DisruptionBudget(
            namespace=draw(st.sampled_from(OTHERS)),
            name=f"budget-{i}",
            selector=draw(st.sampled_from(_APPS)),
            disruptions_allowed=draw(st.integers(0, 2)),
        )
        for i in range(draw(st.integers(0, 2)))
    ]
    moments = st.sampled_from((31, 59, 61, 119, 121, 4000)).map(seconds_ago)
    hits = st.builds(OwnerHits, moments, st.integers(0, 1))
    return ReclaimWorld(
        nodes=nodes,
        pods=pods,
        preemptor=preemptor,
        minimums=minimums,
        cohort={"cpu": draw(st.sampled_from((8000, 12_000, 40_000, 40_000)))},
        policies=draw(st.sampled_from(_POLICIES)),
        budgets=budgets,
        guards=GuardState(owners=draw(st.dictionaries(st.just("set-a"), hits, max_size=1))),
        leaving=draw(st.sampled_from((frozenset(), frozenset(), frozenset({"p0"})))),
        gangs=frozenset({"gang"}),
    )


def without(world: ReclaimWorld, names: Sequence[str]) -> ReclaimWorld:
    """Return a world without some pods, by `namespace/name`."""
    return replace(world, pods=[each for each in world.pods if each.key not in names])


CLASSES: Mapping[str, PriorityClass] = {
    name: PriorityClass(name=name, toleration=toleration, is_preempting=True)
    for name, toleration in {
        "plain": PreemptionToleration(1),
        "patient": PreemptionToleration(1000, 4000),
        "for-ever": PreemptionToleration(1000, -1),
    }.items()
}


@dataclass(frozen=True)
class PreemptionWorld(ReclaimWorld):
    """What preemption plans on; all running pods are candidates, those without a quota too."""

    @property
    def quotas(self) -> tuple[QuotaKey, ...]:
        """The quota of the preemptor, if it has one."""
        return super().quotas if self.preemptor.namespace in self.minimums else ()

    @property
    def leaving_pods(self) -> list[Pod]:
        """The pods that are leaving anyway."""
        return [each for each in self.pods if each.deleting or each.name in self.leaving]

    def situation(self) -> Situation:
        """Return what a plan is made from."""
        state = self.state()
        candidates = []
        for each in self.pods:
            pod, entry = running_pod_of(each), state.entry(each.key)
            if pod is not None and entry is not None:
                has_quota = each.namespace in self.minimums
                quotas = (quota_key(each.namespace),) if has_quota else ()
                candidates.append(Candidate(pod=pod, entry=entry, quotas=quotas))
        return replace(super().situation(), view=state.view(), candidates=candidates)


@st.composite
def preemption_worlds(draw: st.DrawFn) -> PreemptionWorld:
    """Return random worlds, with gangs and tolerations, in which nodes are rather full."""
    base = draw(worlds())
    pods = []
    for each in base.pods:
        group = draw(st.sampled_from(("", "", "", "gang", "nameless")))
        pods.append(
            running(
                each.name,
                each.node_name,
                draw(st.integers(1, 3)),
                namespace=each.namespace,
                priority=draw(st.sampled_from((0, 0, 10, 100))),
                age=draw(st.sampled_from((100, 3600, 3999, 4001))),
                owner=each.owner_uid,
                deleting=each.deleting,
                labels={**each.labels} | ({GANG_LABEL: group} if group else {}),
                kind=each.owner_kinds[0] if each.owner_kinds else "ReplicaSet",
                priority_class=draw(st.sampled_from(("", "", "plain", "patient", "for-ever"))),
            )
        )
    minimums = {
        space: {"cpu": draw(st.integers(0, 4)) * 1000}
        for space in draw(st.sampled_from(((), ("batch",), ("batch", "etl", "shop"))))
    }
    return PreemptionWorld(
        nodes=base.nodes,
        pods=pods,
        preemptor=running("preemptor", "", draw(st.integers(1, 5)), namespace="shop", priority=50),
        minimums=minimums,
        cohort={},
        policies=base.policies,
        budgets=base.budgets,
        classes=CLASSES,
        guards=base.guards,
        leaving=base.leaving,
        gangs=frozenset({"gang"}),
    )


def small(pods: Sequence[Pod], cpu: int = 4, nodes: Sequence[str] = ("a", "b")) -> PreemptionWorld:
    """Return nodes of 4 cores with some pods, and one of priority 50 that wants so many."""
    return PreemptionWorld(
        nodes=[node(name, cpu="4", memory="64Gi", pods="20") for name in nodes],
        pods=pods,
        preemptor=running("preemptor", "", cpu, namespace="shop", priority=50),
        minimums={},
        cohort={},
        policies=PolicySet([CompiledPolicy(name="anywhere")]),
        classes=CLASSES,
        gangs=frozenset({"gang"}),
    )


def plan_reclaim(
    request: PlacementRequest,
    quotas: tuple[QuotaKey, ...],
    situation: Situation,
    package: ModuleType = engine.eviction,
) -> Plan | NoPlan:
    """Return a plan of reclaim, by the package or by a copy of it."""
    steps = package.plan_for_pod(request, package.Reclaim(quotas), situation)
    plan: Plan | NoPlan = package.completed(steps)
    return plan


def plan_preemption(
    request: PlacementRequest,
    quotas: tuple[QuotaKey, ...],
    situation: Situation,
    package: ModuleType = engine.eviction,
) -> Plan | NoPlan:
    """Return a plan of preemption, by the package or by a copy of it."""
    steps = package.plan_for_pod(request, package.Preemption(quotas), situation)
    plan: Plan | NoPlan = package.completed(steps)
    return plan
