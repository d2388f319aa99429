"""What the cohort lends to pods that do not wait, although those of their namespace do.

Such a pod has no turn. Within the min of its quota it needs none; beyond, it may take what is left
once all that wait have what they ask for.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Final, NamedTuple

from engine.model.elastic_quota import QuotaKey
from engine.model.resources import Amounts, greater
from engine.quota.batch import QuotaRequest
from engine.quota.bounds import excess, sum_of
from engine.quota.queueing.cohort import Cohort, cohort_of_nodes, sum_of_min
from engine.quota.queueing.namespace_queues import NamespaceQueues, QueueRules
from engine.quota.queueing.queued_pod import QueueQuota
from engine.quota.reservations import DEFAULT_RESERVATION_SECONDS, Reservation, split_by_name
from engine.quota.verdict import QuotaVerdict, exceeded_clause
from engine.view import AssumedPod, ClusterView

_NOTHING: Final[Amounts] = {}


class _Admitted(NamedTuple):
    namespace: str
    reservation: Reservation
    at: float


class CohortLending:
    """Judges pods that do not wait by min, cohort and queue; `max` is judged by others.

    INVARIANT: a pod that was admitted here counts until the view has it. So the room of the cohort
    is exceeded by no more than what several replicas admit within the delay of a watch.

    Args:
        rules: by which pods wait.
        view: the cluster.
        assumed: the pods that the view counts on a node without being bound to it.
        counted: what the view counts for a pod, by `namespace/name`; nothing if it is unknown.
        version_of: the newest version at which the view had a pod, by its uid; 0 for none.
        clock: seconds that only go forward.
        unseen_seconds: how long an admitted pod counts that the view never had.
    """

    def __init__(
        self,
        rules: QueueRules,
        view: Callable[[], ClusterView],
        assumed: Callable[[], Iterable[AssumedPod]],
        *,
        counted: Callable[[str], Amounts],
        version_of: Callable[[str], int],
        clock: Callable[[], float],
        unseen_seconds: float = DEFAULT_RESERVATION_SECONDS,
    ) -> None:
        self._rules = rules
        self._view = view
        self._assumed = assumed
        self._counted = counted
        self._version_of = version_of
        self._clock = clock
        self._unseen_seconds = unseen_seconds
        self._admitted: dict[str, _Admitted] = {}  # by key of the reservation, oldest first
        self._members: dict[str, QueueQuota] = {}  # by namespace
        self._members_of: tuple[int, Mapping[str, str]] | None = None
        self._claimed: tuple[int, Cohort] | None = None  # of a version of the view

    def judge(self, namespace: str, request: QuotaRequest, used: Amounts) -> QuotaVerdict:
        """Return whether a pod may do without a turn; if so, it counts from now on.

        Args:
            namespace: of the pod.
            request: for the pod, or for what it requests in addition; without effect if it is a dry
                run.
            used: by the namespace, all that is reserved included.
        """
        now, reservation = self._clock(), request.reservation
        self._forget_late(now)
        self._admitted.pop(reservation.key, None)  # its quota could not be written before
        view = self._view()
        quota = self._quota_of(view, namespace)
        if quota is None:
            return QuotaVerdict()
        if self._rules.rules.count_pods == "Scheduled":  # pods that are Pending borrow as well
            used = greater(used, view.namespaces.requested.get(namespace, _NOTHING))
        verdict = self._judge_borrowing(view, quota, reservation.amounts, used)
        if not verdict.allowed:
            return verdict
        if not request.dry_run:
            self._admitted[reservation.key] = _Admitted(namespace, reservation, now)
        return QuotaVerdict()

    def _judge_borrowing(
        self, view: ClusterView, quota: QueueQuota, requests: Amounts, used: Amounts
    ) -> QuotaVerdict:
        beyond = sorted(  # what min does not name is borrowed, as in the queue
            name
            for name, amount in requests.items()
            if amount > 0 and used.get(name, 0) + amount > quota.guaranteed.get(name, 0)
        )
        if not beyond:
            return QuotaVerdict()
        cohort = self._cohort(view)
        taken = sum_of((cohort.used, self._unobserved()))
        over = [
            name
            for name in beyond
            if taken.get(name, 0) + requests[name] > cohort.capacity.get(name, 0)
        ]
        if not over:
            return QuotaVerdict()
        *_, name = quota.key
        needed, held, bounds = (
            {each: amounts.get(each, 0) for each in over}
            for amounts in (requests, taken, cohort.capacity)
        )
        clause = exceeded_clause(f"cohort of {name}", over, needed, held, bounds)
        hint = "a pod that is not held and beyond min goes after all that wait, which count as used"
        return QuotaVerdict((name,), f"{clause}: {hint}")

    def _quota_of(self, view: ClusterView, namespace: str) -> QueueQuota | None:
        """Return the quota in the cohort whose min is for the pods of a namespace, if any."""
        facts = view.namespaces
        known = facts.quotas_version, facts.quota_modes
        if known != self._members_of:
            queues = NamespaceQueues(self._rules)
            queues.update(view)
            found = {each: queues.get(each) for each in facts.quotas if queues.is_in_cohort(each)}
            self._members = {
                each: queue.queue
                for each, queue in found.items()
                if queue is not None and queue.queue.is_in_cohort
            }
            self._members_of, self._claimed = known, None
        return self._members.get(namespace)

    # The cohort, with all that wait.

    def _cohort(self, view: ClusterView) -> Cohort:
        """Return the cohort as if all that wait had what their quotas let them have."""
        if self._claimed is None or self._claimed[0] != view.version:
            requested = view.namespaces.requested
            usage = {
                quota.key: requested.get(namespace, _NOTHING)
                for namespace, quota in self._members.items()
            }
            cohort = self._bare_cohort(view, usage)
            claims = self._claims(view, usage, cohort)
            self._claimed = view.version, Cohort(cohort.capacity, sum_of((cohort.used, claims)))
        return self._claimed[1]

    def _bare_cohort(self, view: ClusterView, usage: Mapping[QuotaKey, Amounts]) -> Cohort:
        members = self._members
        if self._rules.cohort == "SumOfMin":
            return sum_of_min({quota.key: quota for quota in members.values()}, usage)
        scheduled = view.namespaces.scheduled
        return cohort_of_nodes(
            view,
            self._rules.selection,
            assumed=[
                (pod.node_name, pod.requests) for pod in self._assumed() if pod.namespace in members
            ],
            unbound=sum_of(
                excess(usage[quota.key], scheduled.get(namespace, _NOTHING))
                for namespace, quota in members.items()
            ),
        )

    def _claims(
        self, view: ClusterView, usage: Mapping[QuotaKey, Amounts], cohort: Cohort
    ) -> dict[str, int]:
        """Return what the pods that wait ask for, as far as their quotas and the cohort ever allow.

        What alone is more than the cohort can lend keeps nobody.
        """
        outside = excess(cohort.used, sum_of(usage.values()))
        lendable = {name: n - outside.get(name, 0) for name, n in cohort.capacity.items()}
        claims: list[Amounts] = []
        for namespace, waiting in view.namespaces.queued_pods.items():
            quota = self._members.get(namespace)
            if quota is None:
                continue
            most, used = greater(lendable, quota.guaranteed), usage[quota.key]
            asked = sum_of(
                {name: count * amount for name, amount in requests}
                for requests, count in waiting.items()
                if all(amount <= most.get(name, 0) for name, amount in requests)
            )
            limit = quota.bounds[0].limit  # its own max
            left = {name: max(0, n - used.get(name, 0)) for name, n in limit.items()}
            claims.append({name: min(n, left.get(name, n)) for name, n in asked.items()})
        return sum_of(claims)

    # Pods that no view has yet.

    def _forget_late(self, now: float) -> None:
        late = now - self._unseen_seconds
        while self._admitted:
            key, oldest = next(iter(self._admitted.items()))
            if oldest.at > late:
                return
            del self._admitted[key]

    def _unobserved(self) -> dict[str, int]:
        """Return what was admitted here beyond what the view counts; forget what it has."""
        self._admitted = {
            key: pod
            for key, pod in self._admitted.items()
            if self._version_of(pod.reservation.uid) <= pod.reservation.after
        }
        of_namespace: dict[str, list[Reservation]] = {}
        for pod in self._admitted.values():
            of_namespace.setdefault(pod.namespace, []).append(pod.reservation)
        parts: list[Amounts] = []
        for namespace, reservations in of_namespace.items():
            named, additive = split_by_name(reservations)
            parts += additive
            parts += [
                excess(amounts, self._counted(f"{namespace}/{name}"))
                for name, amounts in named.items()
            ]
        return sum_of(parts)
