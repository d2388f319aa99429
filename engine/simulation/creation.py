"""What the creation of a pod meets: its quotas, and evictions for it where no node takes it."""

from __future__ import annotations

from collections import Counter
from typing import Final

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
from engine.model.disruption_budget import DisruptionBudget
from engine.model.elastic_quota import QuotaKey, ReclaimMode
from engine.model.pod import Pod
from engine.model.pod_shape import PodShape
from engine.model.priority_class import PriorityClass
from engine.model.request import PlacementRequest
from engine.model.resource_quota import ResourceQuota
from engine.model.resources import Amounts
from engine.model.time import Micros
from engine.pipeline import SYSTEM_NAMESPACES
from engine.policy import PolicySet
from engine.quota import QuotaMode, judge, mode_of, quotas_of
from engine.quota.queueing import NamespaceQueues, QueuedPod, QueueRules, next_releases
from engine.report import PodName, Victim
from engine.simulation.arm_cluster import ArmCluster
from engine.simulation.arms import ArmDecider, Landing
from engine.simulation.arrivals import Arrival
from engine.simulation.recorded_cluster import RecordedCluster
from engine.simulation.resource_quotas import ResourceQuotas
from engine.view import ClusterState, ClusterView, quota_requests

_MODE: Final[QuotaMode] = "Enforce"  # of namespaces that name none, as the webhook's default
_RULES: Final = QueueRules(mode=_MODE, excluded_namespaces=frozenset(SYSTEM_NAMESPACES))


def quota_refusal(pod: Pod, view: ClusterView, waiting: Amounts) -> str:
    """Return why the ElasticQuotas of its namespace refuse a new pod, "" where they do not.

    Args:
        pod: the pod.
        view: the cluster.
        waiting: what its namespace requests with pods that have no node.
    """
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

    Args:
        policies: those of the arm, None for none.
        cluster: as it was recorded, with the changes of a what-if.
        gone: `namespace/name` of recorded pods that end, or are created again elsewhere.
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
        if queue is not None and queue.quota.reclaim is not ReclaimMode.OFF:
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
