"""What is compared: who decides where a pod goes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import chain
from typing import Any, Final, NamedTuple

import jsonpatch
import msgspec
import numpy as np
from msgspec import structs

from engine.binding import BindingAction, BindingCycle, decide_binding
from engine.eviction import (
    Candidate,
    NoPlan,
    Plan,
    Preemption,
    Reclaim,
    Situation,
    completed,
    plan_for_pod,
    quota_standing,
    running_pod_of,
)
from engine.eviction import Victim as PlannedVictim
from engine.model import api
from engine.model.decision import Decision, PlacementRequest, Verdict
from engine.model.disruption_budget import DisruptionBudget
from engine.model.elastic_quota import EvictionMode, QuotaKey
from engine.model.namespace import ResourceQuota, resource_of
from engine.model.node import Node
from engine.model.pod import Pod
from engine.model.pod_classes import PriorityClass
from engine.model.pod_shape import PodShape
from engine.model.policy_resource import DynamicFilters, PlacementAt, WhenNoneFits
from engine.model.quantity import amount_text
from engine.model.resources import Amounts
from engine.model.rule_outcomes import SCHEDULER
from engine.model.time import SECOND, Micros, micros
from engine.model.usage import (
    NO_POD_USAGES,
    AggregatedUsage,
    NodeUsage,
    PodUsage,
    PodUsages,
)
from engine.pipeline import SYSTEM_NAMESPACES, Scope, decide, policies_for
from engine.placement import encode, encode_promises
from engine.placement.affinity import Operation
from engine.placement.patch import read_document
from engine.plugins import PLUGINS, Cycle
from engine.policy import PolicySet
from engine.quota import QuotaMode, judge, mode_of, quotas_of
from engine.quota.queueing import NamespaceQueues, QueuedPod, QueueRules, next_releases
from engine.report import ArmPlacement, BindingCounts, PodName, RuleRejections, Victim
from engine.simulation.arrivals import (
    RESOURCES,
    Arrival,
    Load,
    RecordedCluster,
    base_load,
    estimated_load,
)
from engine.simulation.scheduler import SchedulerModel, unschedulable_message
from engine.view import ClusterState, ClusterView, PodSumProfile, quota_requests

_FILTERS: Final = tuple(
    PLUGINS[name].default_filter() for name in ("NodeAffinity", "TaintToleration")
)


def daemon_nodes(pod: Pod, view: ClusterView, now: Micros) -> list[str]:
    """Return the nodes that the DaemonSet controller creates a pod for, by name.

    Those that the pod's selector and affinity match, and whose taints it tolerates; whether they
    have room is for the scheduler to see.

    Source: Kubernetes, pkg/controller/daemon/daemon_controller.go, NodeShouldRunDaemonPod.
    """
    fits = view.valid.copy()
    for each in _FILTERS:
        fits &= ~each.filter(Cycle(pod, view, now)).rejects
    return sorted(view.names[row] for row in fits.nonzero()[0].tolist())


class ResourceQuotas:
    """The ResourceQuotas of a cluster, with what is used of each.

    Those with scopes that cannot be told from what is recorded of pods bound nothing.

    Source: Kubernetes, plugin/pkg/admission/resourcequota/controller.go, CheckRequest. The amounts
    in use are those of all pods that exist, also of those that wait for a node.
    """

    def __init__(self, quotas: Iterable[ResourceQuota], pods: Iterable[Pod]) -> None:
        self._quotas: dict[str, list[ResourceQuota]] = {}
        self._used: dict[str, Counter[str]] = {}
        for quota in sorted(quotas, key=lambda each: each.key):
            if quota.is_known and quota.hard:
                self._quotas.setdefault(quota.namespace, []).append(quota)
                self._used[quota.key] = Counter()
        for pod in pods:
            self.add(pod)

    def add(self, pod: Pod) -> None:
        """Count a pod that was created."""
        for quota in self._counting(pod):
            self._used[quota.key].update(quota.charged(pod.shape))

    def remove(self, pod: Pod) -> None:
        """Count a pod no longer that is gone."""
        for quota in self._counting(pod):
            self._used[quota.key].subtract(quota.charged(pod.shape))

    def refusal(self, request: PlacementRequest) -> str:
        """Return why a new pod is refused, in the API server's words; "" where it is not."""
        pod = request.pod
        for quota in self._counting(pod):
            missing = {} if request.object["spec"].get("resources") else quota.missing(pod)
            if missing:
                each = (f"{name} for: {','.join(sorted(of))}" for name, of in missing.items())
                return f"failed quota: {quota.name}: must specify {'; '.join(each)}"
            clause = self._exceeded(quota, pod)
            if clause:
                return clause
        return ""

    def _counting(self, pod: Pod) -> list[ResourceQuota]:
        return [each for each in self._quotas.get(pod.namespace, ()) if each.counts(pod)]

    def _exceeded(self, quota: ResourceQuota, pod: Pod) -> str:
        used, more = self._used[quota.key], quota.charged(pod.shape)
        over = [
            name
            for name, amount in sorted(more.items())
            if amount and used[name] + amount > quota.hard[name]
        ]
        if not over:
            return ""
        requested, in_use, limited = (
            ",".join(f"{name}={amount_text(resource_of(name), of.get(name, 0))}" for name in over)
            for of in (more, used, quota.hard)
        )
        return (
            f"exceeded quota: {quota.name}, requested: {requested}, used: {in_use},"
            f" limited: {limited}"
        )


_LONG_AGO: Final = 86_400 * SECOND
_NO_LOAD: Final[Load] = np.zeros(len(RESOURCES), np.int64)


class ArmCluster:
    """A recorded cluster without some of its pods, which others are bound to one by one.

    Time stands still for rules: measurements are always of now. A pod that was just bound is no
    part of them until `report`, and counts by its estimate, as on a live cluster. Pods that stay
    have the age that they were recorded with: evictions go by it.

    Attributes:
        load: what is in use on each node, by name; base units by `load.RESOURCES`.
        running: bound pods by node name, each by `namespace/name`; without those that stay.
    """

    def __init__(
        self,
        recorded: RecordedCluster,
        moves: frozenset[str],
        loads: Mapping[str, Load],
        profiles: Iterable[PodSumProfile],
    ) -> None:
        self._recorded = recorded
        self._loads = dict(loads)
        self._state = recorded.empty_state()
        self._state.track_sums(profiles)
        self._now = recorded.now
        self._fresh: dict[str, dict[str, Pod]] = {}  # bound since the last report, by node
        self._pods: dict[str, dict[str, Pod]] = {node.name: {} for node in recorded.nodes}
        self._usages: dict[str, dict[str, PodUsage]] = {node.name: {} for node in recorded.nodes}
        self.running: dict[str, set[str]] = {node.name: set() for node in recorded.nodes}
        self.load: dict[str, Load] = {}
        self._fill(moves)

    @property
    def now(self) -> Micros:
        """The moment of all decisions."""
        return self._now

    @property
    def state(self) -> ClusterState:
        """The state that views are made of."""
        return self._state

    def view(self) -> ClusterView:
        """Return the cluster as it is now; not to be held over the next change."""
        return self._state.view()

    def pods(self) -> Iterator[Pod]:
        """Return all bound pods, those that stay among them."""
        return chain.from_iterable(pods.values() for pods in self._pods.values())

    def placed(self) -> list[tuple[Pod, Load]]:
        """Return the pods that were bound to nodes here, each with its load."""
        return [
            (self._pods[name][key], self._loads[key])
            for name, keys in self.running.items()
            for key in sorted(keys)
        ]

    def bind(self, pod: Pod, node_name: str, *, like: str) -> None:
        """Bind a pod to a node."""
        bound = structs.replace(
            pod, node_name=node_name, phase="Running", scheduled_at=self._now, created=None
        )
        key = pod.key
        load = self._loads.get(like)
        self._loads[key] = estimated_load(pod.shape) if load is None else load
        self._state.set_pod(bound, seen_at=self._now)
        self.load[node_name] = self.load[node_name] + self._loads[key]
        self._pods[node_name][key] = bound
        self._usages[node_name][key] = self._usage(bound)
        self.running[node_name].add(key)
        self._fresh.setdefault(node_name, {})[key] = bound

    def remove(self, key: str, node_name: str) -> None:
        """Let a pod end that is bound to a node."""
        self._state.delete_pod(key)
        del self._pods[node_name][key]
        del self._usages[node_name][key]
        self.running[node_name].discard(key)
        self.load[node_name] = np.maximum(self.load[node_name] - self._loads[key], 0)
        self._fresh.setdefault(node_name, {}).pop(key, None)

    def add_node(self, node: Node) -> None:
        """Add a node of the recording that was removed, with the pods that stay on it."""
        self._state.set_node(node)
        for pod in self._pods[node.name].values():
            self._state.set_pod(pod, seen_at=self._now)
        self._measure(node.name)

    def remove_node(self, name: str) -> None:
        """Remove a node with all pods on it; those that stay come back with it."""
        for key in [*self.running[name]]:
            self.remove(key, name)
        for key in self._pods[name]:
            self._state.delete_pod(key)
        self._fresh.pop(name, None)
        self._state.delete_usage(name)
        self._state.delete_node(name)

    def movable_pods(self, name: str) -> tuple[Pod, ...]:
        """Return the pods that were bound to a node here, in order of their keys."""
        return tuple(self._pods[name][key] for key in sorted(self.running[name]))

    def report(self) -> None:
        """Measure the nodes on which something has changed; no pod is new any more."""
        for name, fresh in self._fresh.items():
            self._measure(name)
            for key, pod in fresh.items():
                settled = _settled(pod, self._now)
                self._pods[name][key] = settled
                self._state.set_pod(settled, seen_at=self._now)
        self._fresh.clear()

    def _fill(self, moves: frozenset[str]) -> None:
        """Count the pods that stay, and measure all nodes."""
        gone: dict[str, list[Load]] = {}
        has_report = self._recorded.reports.keys()
        for recorded in self._recorded.pods:
            pod = recorded.pod
            on_node = self._pods.get(pod.node_name)
            if on_node is None:
                continue  # it waits, or its node is unknown
            if pod.key in moves:
                gone.setdefault(pod.node_name, []).append(self._loads[pod.key])
                continue
            on_node[pod.key] = pod
            self._usages[pod.node_name][pod.key] = self._usage(pod)
            self._state.set_pod(pod, seen_at=_seen_at(pod, self._now))
        for name, pods in self._pods.items():
            self.load[name] = base_load(self._recorded.reports.get(name), gone.get(name, ()))
            if name not in has_report:
                self.load[name] = sum((self._loads[key] for key in pods), start=_NO_LOAD)
            self._measure(name)

    def _measure(self, name: str) -> None:
        recorded = self._recorded.reports.get(name)
        if recorded is not None and recorded.usage is not None:
            self._state.set_usage(self._measured(recorded))

    def _measured(self, recorded: NodeUsage) -> NodeUsage:
        """Return a report of now in the form of the recorded one; deviations stay as recorded."""
        name = recorded.node_name
        used = dict(zip(RESOURCES, self.load[name].tolist(), strict=True))
        usage = {**(recorded.usage or {}), **used}
        return replace(
            recorded,
            update_time=self._now,
            usage=usage,
            aggregated=tuple(
                AggregatedUsage(window.duration_ns, dict.fromkeys(window.by_type, used))
                for window in recorded.aggregated
            ),
            average={**recorded.average, **used} if recorded.average else {},
            pods=PodUsages(self._usages[name]) if recorded.pods_measured else NO_POD_USAGES,
        )

    def _usage(self, pod: Pod) -> PodUsage:
        """Return what is measured of a pod once its node is."""
        amounts = dict(zip(RESOURCES, self._loads[pod.key].tolist(), strict=True))
        return PodUsage(amounts, pod.shape.is_prod)


def _seen_at(pod: Pod, now: Micros) -> Micros:
    """Return since when a recorded pod is known: its creation, else long ago."""
    return Micros(now - _LONG_AGO) if pod.created is None else micros(pod.created)


def _settled(pod: Pod, now: Micros) -> Pod:
    """Return a pod that has run for so long that its measurement tells all of it."""
    long_ago = Micros(now - _LONG_AGO)
    return structs.replace(pod, scheduled_at=long_ago, initialized_at=long_ago)


_AFFINITY = "/spec"
_SCOPE = Scope()


@dataclass(frozen=True, slots=True, kw_only=True)
class Arm:
    """One of what is compared.

    Attributes:
        name: for people.
        placement: who decides.
        policies: None where nobody but the scheduler decides.
    """

    name: str
    placement: ArmPlacement
    policies: PolicySet | None = None


class Landing(NamedTuple):
    """Where a pod went.

    Attributes:
        node: "" for nowhere.
        reason: why nowhere.
        is_refused: whether it may not exist, rather than wait.
        is_denied: whether its binding was denied: the scheduler will try it again.
        victims: who is evicted for it.
    """

    node: str
    reason: str = ""
    is_refused: bool = False
    is_denied: bool = False
    victims: tuple[Victim, ...] = ()


class ArmDecider:
    """Places pods as an arm does."""

    def __init__(self, arm: Arm, scheduler: SchedulerModel, request: Mapping[str, Any]) -> None:
        self._arm = arm
        self._scheduler = scheduler
        self._request = request
        self._rejections = _Rejections()
        self._bindings = Counter[BindingAction]()
        policies = arm.policies or PolicySet()
        self._at_binding = None
        if arm.placement is ArmPlacement.BINDING:
            self._at_binding = decided_at_binding(policies)
        self._is_promising = any(policy.filters for policy in policies)

    @property
    def policies(self) -> PolicySet | None:
        """Those of the arm."""
        return self._arm.policies

    @property
    def rejections(self) -> tuple[RuleRejections, ...]:
        """What the filters of policies turned away so far, most nodes first."""
        return self._rejections.report()

    @property
    def bindings(self) -> BindingCounts | None:
        """What became of bindings so far; None in an arm that decides at another moment."""
        if self._at_binding is None:
            return None
        return BindingCounts(
            moved=self._bindings[BindingAction.MOVE],
            kept=self._bindings[BindingAction.KEEP],
            denied=self._bindings[BindingAction.DENY],
        )

    def request(self, arrival: Arrival, view: ClusterView) -> PlacementRequest:
        """Return the request that the creation of a pod makes: a generated name comes later."""
        pod = arrival.pod
        if pod.generate_name:
            pod = structs.replace(pod, name="")
        return PlacementRequest(
            pod=pod,
            raw=arrival.raw,
            namespace_labels=view.namespaces.labels.get(pod.namespace, {}),
            request=self._request,
        )

    def place(self, arrival: Arrival, cluster: ArmCluster) -> Landing:
        """Return where a pod goes; it is not bound yet."""
        if self._arm.placement is ArmPlacement.RECORDED:
            return Landing(arrival.recorded_on, "it waited when the cluster was recorded")
        if self._at_binding is not None:
            return self._bound(arrival, cluster, self._at_binding)
        view = cluster.view()
        request = self.request(arrival, view)
        if self._arm.policies is not None:
            decision = decide(request, self._arm.policies, view, cluster.now)
            self._rejections.add(decision)
            if decision.verdict is Verdict.DENY:
                return Landing("", decision.message, is_refused=True)
            request = _patched(request, encode(decision, request, view).operations)
        node = self._scheduler.place(request, view, cluster.now)
        return Landing(node, "" if node else unschedulable_message(request, view, cluster.now))

    def _bound(self, arrival: Arrival, cluster: ArmCluster, policies: PolicySet) -> Landing:
        """Return where a pod goes whose node is decided once the scheduler has taken one."""
        view, now = cluster.view(), cluster.now
        request = self.request(arrival, view)
        # 1. At creation it is promised what filters say of labels.
        if self._is_promising:
            applied = policies_for(request, policies, now, scope=_SCOPE)
            promises = encode_promises(applied, request, view, now)
            request = _patched(request, promises.operations)
        # 2. The scheduler takes a node.
        node = self._scheduler.place(request, view, now)
        if not node:
            return Landing("", unschedulable_message(request, view, now))
        # 3. At binding the pod is stored, and so has its name.
        stored = replace(request, pod=structs.replace(request.pod, name=arrival.pod.name))
        binding = decide_binding(BindingCycle(stored, node, view, now, _SCOPE), policies)
        self._bindings[binding.action] += 1
        if binding.decision is not None:
            self._rejections.add(binding.decision)
        if binding.action is BindingAction.DENY:
            return Landing("", binding.message, is_denied=True)
        return Landing(binding.node_name)


def decided_at_binding(policies: PolicySet) -> PolicySet:
    """Return policies that decide at binding, whenever they were meant to.

    What they would deny waits then.
    """
    found = []
    for policy in policies:
        placement = policy.placement
        if placement.when_none_fits is WhenNoneFits.DENY:
            placement = replace(placement, when_none_fits=WhenNoneFits.WAIT)
        placement = replace(
            placement, at=PlacementAt.BINDING, dynamic_filters=DynamicFilters.PREFERRED
        )
        found.append(replace(policy, placement=placement))
    return PolicySet(found)


class _Rejections:
    """Counts what filters of policies turn away."""

    def __init__(self) -> None:
        self._pods = Counter[tuple[str, str]]()
        self._nodes = Counter[tuple[str, str]]()
        self._examples: dict[tuple[str, str], str] = {}

    def add(self, decision: Decision) -> None:
        """Count the nodes that each filter was the first to reject."""
        for outcome, nodes in zip(decision.filters, decision.first_rejections, strict=True):
            if not nodes or outcome.policy == SCHEDULER:
                continue
            rule = outcome.policy, outcome.rule
            self._pods[rule] += 1
            self._nodes[rule] += nodes
            if rule not in self._examples:
                row = int((outcome.rejects & decision.valid).argmax())
                self._examples[rule] = outcome.reason(row)

    def report(self) -> tuple[RuleRejections, ...]:
        """Return the counts, most nodes first."""
        return tuple(
            RuleRejections(
                policy=rule[0],
                rule=rule[1],
                pods=self._pods[rule],
                nodes=nodes,
                example=self._examples[rule],
            )
            for rule, nodes in self._nodes.most_common()
        )


def _patched(request: PlacementRequest, operations: tuple[Operation, ...]) -> PlacementRequest:
    """Return a pod with the affinity that operations give it."""
    of_spec = [each for each in operations if each["path"].startswith(_AFFINITY)]
    if not of_spec:
        return request
    document = jsonpatch.JsonPatch(of_spec).apply(read_document(request.raw), in_place=True)
    affinity = msgspec.convert(document["spec"]["affinity"]["nodeAffinity"], api.NodeAffinity)
    return PlacementRequest(
        pod=structs.replace(request.pod, affinity=affinity),
        raw=request.raw,
        namespace_labels=request.namespace_labels,
        request=request.request,
    )


_MODE: Final[QuotaMode] = "Enforce"  # of namespaces that name none, as the webhook's default
_RULES: Final = QueueRules(mode=_MODE, excluded_namespaces=frozenset(SYSTEM_NAMESPACES))


def quota_refusal(pod: Pod, view: ClusterView, waiting: Amounts) -> str:
    """Return why the ElasticQuotas of its namespace refuse a new pod, "" where they do not."""
    if pod.namespace in SYSTEM_NAMESPACES or mode_of(view, pod.namespace, _MODE) != "Enforce":
        return ""
    used = {**Counter(view.namespaces.requested.get(pod.namespace, {})) + Counter(waiting)}
    return judge(quota_requests(pod.shape), used, quotas_of(view, pod.namespace)).message


def quota_wait(pod: Pod, view: ClusterView) -> str:
    """Return what a new pod waits for in the queue of its quota, "" where it does not wait."""
    if mode_of(view, pod.namespace, _MODE) != "Queue":
        return ""
    queues = NamespaceQueues(_RULES)
    queues.update(view)
    queue = queues.of(pod)
    if queue is None:
        return ""
    situation = queues.situation(view, under_way=(), assumed=())
    alone = QueuedPod(pod.key, queue.queue.key, quota_requests(pod.shape), Micros(0))
    decision = next_releases(
        [alone], situation.quotas, situation.usage, situation.cohort, Micros(0)
    )
    wait = decision.waits.get(pod.key)
    return "" if wait is None else wait.message


class Creation:
    """Places new pods: their quotas may refuse them, and others may be evicted for them.

    No plan is made twice for pods of a shape unless something has changed. Pods that exist already
    are refused by no quota.
    """

    def __init__(
        self, policies: PolicySet | None, cluster: RecordedCluster, gone: frozenset[str]
    ) -> None:
        self._policies = policies or PolicySet()
        existing = [
            each.pod
            for each in cluster.pods
            if not each.pod.is_terminal and not (each.pod.node_name and each.pod.key in gone)
        ]
        quotas = (each for each in cluster.extras if isinstance(each, ResourceQuota))
        self._resource_quotas = ResourceQuotas(quotas, existing)
        self._waiting: dict[str, Counter[str]] = {}
        for pod in existing:
            if not pod.node_name and not pod.is_queued:
                self._wait(pod)
        self._hopeless: dict[tuple[str, int, PodShape], NoPlan] = {}

    def place(self, arrival: Arrival, cluster: ArmCluster, decider: ArmDecider) -> Landing:
        """Return where a pod goes; whoever is evicted for it is gone."""
        pod, view = arrival.pod, cluster.view()
        request = decider.request(arrival, view)
        if not arrival.exists:
            refusal = self._refusal(request, view)
            if refusal:
                return Landing("", refusal, is_refused=True)
        wait = quota_wait(pod, view)
        landing = Landing("", f"waits for quota: {wait}")
        if not wait:
            landing = decider.place(arrival, cluster)
        if landing.is_refused:
            return landing
        if not (landing.node or landing.is_denied):
            landing = self._make_room(request, landing, cluster)
        self._note(arrival, landing)
        return landing

    def _refusal(self, request: PlacementRequest, view: ClusterView) -> str:
        """Return why a quota refuses a new pod, "" where none does."""
        waiting = self._waiting.get(request.pod.namespace, Counter())
        refusal = quota_refusal(request.pod, view, waiting)
        return refusal or self._resource_quotas.refusal(request)

    def _make_room(
        self, request: PlacementRequest, landing: Landing, cluster: ArmCluster
    ) -> Landing:
        """Return where a pod goes that no node takes, with those evicted for it gone."""
        plan = self._plan(request, cluster)
        if isinstance(plan, NoPlan):
            return landing._replace(
                reason=f"{landing.reason.rstrip('.')}; nobody is evicted: {plan.message}"
            )
        pods = {pod.key: pod for pod in cluster.pods()}
        for victim in plan.victims:
            self._resource_quotas.remove(pods[victim.key])
            cluster.remove(victim.key, victim.node_name)
        return Landing(plan.node_name, victims=tuple(_victim(each, plan) for each in plan.victims))

    def _note(self, arrival: Arrival, landing: Landing) -> None:
        """Count a pod that exists from now on, and whether it waits for a node."""
        pod = arrival.pod
        if not arrival.exists:
            self._resource_quotas.add(pod)
            if not landing.node:
                self._wait(pod)
        elif landing.node and pod.namespace in self._waiting:
            self._waiting[pod.namespace].subtract(quota_requests(pod.shape))

    def _wait(self, pod: Pod) -> None:
        counts = self._waiting.setdefault(pod.namespace, Counter())
        counts.update(quota_requests(pod.shape))

    def _plan(self, request: PlacementRequest, cluster: ArmCluster) -> Plan | NoPlan:
        pod = request.pod
        kind = pod.namespace, pod.priority, pod.shape
        plan = self._hopeless.get(kind) or self._new_plan(request, cluster)
        if isinstance(plan, NoPlan):
            self._hopeless[kind] = plan
        else:
            self._hopeless.clear()
        return plan

    def _new_plan(self, request: PlacementRequest, cluster: ArmCluster) -> Plan | NoPlan:
        """Return who is evicted for a pod, by its quota, else by its priority."""
        queues = NamespaceQueues(_RULES)
        queues.update(cluster.view())
        queue = queues.of(request.pod)
        situation = _situation(queues, cluster, request.pod, self._policies)
        quotas = () if queue is None else (queue.queue.key,)
        if queue is not None and queue.quota.reclaim is not EvictionMode.OFF:
            plan = completed(plan_for_pod(request, Reclaim(quotas), situation))
            if isinstance(plan, Plan):
                return plan
        return completed(plan_for_pod(request, Preemption(quotas), situation))


def _situation(
    queues: NamespaceQueues, cluster: ArmCluster, preemptor: Pod, policies: PolicySet
) -> Situation:
    """Return what plans are made from; pods of the system's namespaces are never evicted."""
    view, state = cluster.view(), cluster.state
    quotas = queues.situation(view, under_way=(), assumed=())
    standing = quota_standing(quotas, [preemptor.shape])
    movable = (pod for pod in cluster.pods() if pod.namespace not in SYSTEM_NAMESPACES)
    return Situation(
        view=view,
        policies=policies,
        candidates=[each for pod in movable if (each := _candidate(pod, state, queues))],
        accounts=standing.accounts,
        cohort_room=standing.cohort_room,
        lendable=standing.lendable,
        budgets=view.all_of(DisruptionBudget),
        classes={each.name: each for each in view.all_of(PriorityClass)},
        now=cluster.now,
    )


def _candidate(pod: Pod, state: ClusterState, queues: NamespaceQueues) -> Candidate | None:
    running, entry = running_pod_of(pod), state.entry(pod.key)
    if running is None or entry is None:
        return None
    queue = queues.of(pod)
    quotas: tuple[QuotaKey, ...] = () if queue is None else (queue.queue.key,)
    return Candidate(pod=running, entry=entry, quotas=quotas)


def _victim(victim: PlannedVictim, plan: Plan) -> Victim:
    namespace, _, name = victim.key.partition("/")
    return Victim(pod=PodName(namespace, name), node=victim.node_name, reason=plan.message)
