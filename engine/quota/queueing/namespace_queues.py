"""The queues of a view: whose pods wait for which quota, what counts as used, and the cohort."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from engine.model.elastic_quota import NAME_LABEL, UPSTREAM_GROUP, ElasticQuota, QuotaKey
from engine.model.kinds import Domain
from engine.model.pod import Pod
from engine.model.resources import Amounts, greater
from engine.quota.batch import QuotaRequest
from engine.quota.bounds import (
    RESOURCE_QUOTA_RULES,
    QuotaMode,
    QuotaRules,
    excess,
    mode_of,
    quotas_of,
    sum_of,
)
from engine.quota.queueing.cohort import (
    Bound,
    Cohort,
    NodeSelection,
    QueueQuota,
    QuotaCohort,
    cohort_of_nodes,
    queue_quota,
    sum_of_min,
)
from engine.quota.reservations import DEFAULT_RESERVATION_SECONDS, Reservation, split_by_name
from engine.quota.tree import QuotaPaths, TreeBounds, bounds_in, known_quota_name
from engine.quota.verdict import QuotaVerdict, exceeded_clause
from engine.view import AssumedPod, ClusterView

# The queues of quotas of Koordinator's tree, which have pods of any namespace.
#
# Such a quota takes no part in the cohort: how much it may borrow is its runtime, which all quotas
# of the tree share.


_NONE: Final[tuple[Bound, ...]] = ()


class QuotaTreeQueues:
    """What bounds the pods of each quota of the tree, in the last view."""

    def __init__(self, rules: QuotaRules) -> None:
        self._rules = rules
        self._paths = QuotaPaths(rules)
        self._bounds: TreeBounds | None = None

    def update(self, view: ClusterView) -> None:
        """Adopt the quotas and the pods of a view."""
        has_any = self._paths.may_have(view)
        self._bounds = bounds_in(view, self._paths.tree(view)) if has_any else None

    def quota_of(self, namespace: str, label: str) -> ElasticQuota | None:
        """Return the quota of the tree that a pod belongs to, None if it belongs to none."""
        if self._bounds is None:
            return None
        tree = self._bounds.tree
        name = known_quota_name(tree, namespace, label)
        return tree.get(name) if name in self._bounds.shares else None

    def quotas(self) -> Iterable[ElasticQuota]:
        """Return the quotas of the tree."""
        return () if self._bounds is None else self._bounds.tree

    def queue_of(self, quota: ElasticQuota) -> QueueQuota:
        """Return a quota of the tree as queues see it."""
        return queue_quota(quota, self._rules, self.bounds_of(quota), is_in_cohort=False)

    def bounds_of(self, quota: ElasticQuota) -> tuple[Bound, ...]:
        """Return what bounds the pods of a quota besides its max; nothing if it is of no tree."""
        known = None if self._bounds is None else self._bounds.tree.get(quota.name)
        if self._bounds is None or known is None or known.key != quota.key:
            return _NONE
        return tuple(Bound(*pair) for pair in self._bounds.of(quota.name))

    def usage(self) -> Mapping[QuotaKey, Amounts]:
        """Return what the pods of each quota and of those below it use."""
        return {} if self._bounds is None else self._bounds.used_by_key


# What the cohort lends to pods that do not wait, although those of their namespace do.
#
# Such a pod has no turn. Within the min of its quota it needs none; beyond, it may take what is
# left once all that wait have what they ask for.


_NOTHING: Final[Amounts] = {}


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueRules:
    """The rules by which pods wait for quota.

    Attributes:
        rules: of the comparison with `max`.
        mode: of namespaces that name none.
        excluded_namespaces: those without quota.
        cohort: what all quotas share.
        selection: the nodes of the cohort `Nodes`.
    """

    rules: QuotaRules = RESOURCE_QUOTA_RULES
    mode: QuotaMode = "Queue"
    excluded_namespaces: frozenset[str] = frozenset()
    cohort: QuotaCohort = "Nodes"
    selection: NodeSelection = field(default_factory=NodeSelection)

    def capacity(self, view: ClusterView) -> Amounts | None:
        """Return what all quotas share in a view, None where that is the sum of their min."""
        if self.cohort == "SumOfMin":
            return None
        return cohort_of_nodes(view, self.selection, assumed=(), unbound={}).capacity


class NamespaceQueue(NamedTuple):
    """The queue of a namespace.

    Attributes:
        quota: whose min guarantees room to its pods: the first of scheduler-plugins' group.
        queue: as queues see it, bounded by all quotas of the namespace.
        source: the quotas that it was made of, and whether it is in the cohort.
    """

    quota: ElasticQuota
    queue: QueueQuota
    source: tuple[tuple[ElasticQuota, ...], bool]


class PodUnderWay(NamedTuple):
    """A pod that is being released and still seen as waiting.

    Attributes:
        namespace: of the pod.
        requests: of the pod.
        label: the quota of Koordinator that its label names, "" for none.
    """

    namespace: str
    requests: Amounts
    label: str = ""


@dataclass(frozen=True, slots=True)
class QueueSituation:
    """What quotas guarantee, use and share at one moment; it stays as it is.

    Attributes:
        quotas: of all queues, by key.
        usage: of each quota and bound by key, pods under way included.
        cohort: what they share.
    """

    quotas: Mapping[QuotaKey, QueueQuota]
    usage: Mapping[QuotaKey, Amounts]
    cohort: Cohort


class NamespaceQueues:
    """The queues of all namespaces; a queue is made again only when its quotas have changed.

    A pod whose label names a quota of Koordinator's tree, or whose namespace one lists, waits in
    the queue of that quota, whatever its namespace.

    Pods wait in namespaces of mode Queue. Where pods wait although the mode is Enforce, as it was
    changed, they are released as `max` allows, and take part in nothing else. In the modes Audit
    and Off nobody waits.

    Args:
        rules: the rules.

    Attributes:
        generation: grows whenever a pod may wait for another quota than before.
    """

    def __init__(self, rules: QueueRules) -> None:
        self._rules = rules
        self._by_namespace: dict[str, NamespaceQueue] = {}
        self._tree = QuotaTreeQueues(rules.rules)
        self._by_tree: dict[QuotaKey, NamespaceQueue] = {}
        self._keys: dict[str, QuotaKey] = {}
        self.generation = 0
        self._view: ClusterView | None = None

    def get(self, namespace: str, label: str = "") -> NamespaceQueue | None:
        """Return the queue of a namespace, None where no pod waits for quota.

        Args:
            namespace: of the pod.
            label: the quota of Koordinator that its label names, "" for none.
        """
        quota = self._tree.quota_of(namespace, label)
        if quota is None or quota.name == quota.namespace == namespace:
            return self._by_namespace.get(namespace)
        if self._view is None or namespace in self._rules.excluded_namespaces:
            return None
        if mode_of(self._view, namespace, self._rules.mode) not in {"Queue", "Enforce"}:
            return None
        return self._by_tree[quota.key]

    def of(self, pod: Pod) -> NamespaceQueue | None:
        """Return the queue of a pod, None where it waits for no quota."""
        return self.get(pod.namespace, pod.labels.get(NAME_LABEL, ""))

    def is_in_cohort(self, namespace: str) -> bool:
        """Return whether the pods of a namespace share the cohort with others."""
        queue = self._by_namespace.get(namespace)
        return queue is not None and queue.queue.is_in_cohort

    def update(self, view: ClusterView) -> None:
        """Adopt the quotas of a view."""
        self._view = view
        self._tree.update(view)
        self._by_tree = {
            quota.key: NamespaceQueue(quota, self._tree.queue_of(quota), ((quota,), False))
            for quota in self._tree.quotas()
        }
        known, rules = self._by_namespace, self._rules
        found: dict[str, NamespaceQueue] = {}
        for namespace in view.namespaces.quotas:
            if namespace in rules.excluded_namespaces:
                continue
            mode = mode_of(view, namespace, rules.mode)
            if mode == "Queue" or (mode == "Enforce" and namespace in view.namespaces.queued):
                source = quotas_of(view, namespace), mode == "Queue"
                old = known.get(namespace)
                above = tuple(b for quota in source[0] for b in self._tree.bounds_of(quota))
                if old is not None and old.source == source and not above:
                    found[namespace] = old
                elif source[0]:
                    found[namespace] = _queue_of(source, rules.rules, above)
        keys = {namespace: queue.queue.key for namespace, queue in found.items()}
        if self._by_tree or keys != self._keys:
            self.generation += 1
        self._by_namespace, self._keys = found, keys

    def situation(
        self,
        view: ClusterView,
        *,
        under_way: Iterable[PodUnderWay],
        assumed: Iterable[tuple[str, Amounts]],
    ) -> QueueSituation:
        """Return the situation of a view whose quotas were adopted.

        Args:
            view: the cluster.
            under_way: pods that are being released and that the view still counts as waiting.
            assumed: pods of these namespaces that the view counts on a node they are not bound to,
                each with the name of the node and its requests.
        """
        requested, scheduled = view.namespaces.requested, view.namespaces.scheduled
        used = {name: dict(requested.get(name, _NOTHING)) for name in self._by_namespace}
        unbound: dict[str, int] = {}
        for name, queue in self._by_namespace.items():
            if queue.queue.is_in_cohort and used[name] != (bound := scheduled.get(name, _NOTHING)):
                for resource, amount in used[name].items():
                    _add(unbound, resource, amount - bound.get(resource, 0))
        in_tree = {key: dict(amounts) for key, amounts in self._tree.usage().items()}
        for pod in under_way:
            tallies = self._tallies(pod, used, in_tree)
            for resource, amount in pod.requests.items():
                for tally in tallies:
                    _add(tally, resource, amount)
                _add(unbound, resource, amount)
        usage = {
            bound.key: used[name]
            for name, queue in self._by_namespace.items()
            for bound in queue.queue.bounds
        } | in_tree
        queues = (*self._by_tree.values(), *self._by_namespace.values())
        quotas = {queue.queue.key: queue.queue for queue in queues}
        if self._rules.cohort == "SumOfMin":
            members = {key: quota for key, quota in quotas.items() if quota.is_in_cohort}
            return QueueSituation(quotas, usage, sum_of_min(members, usage))
        selection = self._rules.selection
        cohort = cohort_of_nodes(view, selection, assumed=assumed, unbound=unbound)
        return QueueSituation(quotas, usage, cohort)

    def _tallies(
        self,
        pod: PodUnderWay,
        used: Mapping[str, dict[str, int]],
        in_tree: Mapping[QuotaKey, dict[str, int]],
    ) -> list[dict[str, int]]:
        """Return the usages that a pod under way adds to: of its namespace, and up the tree."""
        queue = self.get(pod.namespace, pod.label)
        keys = {bound.key for bound in queue.queue.bounds} if queue is not None else set()
        tallies = [in_tree[key] for key in keys if key in in_tree]
        return [*([used[pod.namespace]] if pod.namespace in used else []), *tallies]


def _queue_of(
    source: tuple[tuple[ElasticQuota, ...], bool], rules: QuotaRules, above: tuple[Bound, ...]
) -> NamespaceQueue:
    quotas, is_in_cohort = source
    first = next((quota for quota in quotas if quota.group == UPSTREAM_GROUP), quotas[0])
    others = (queue_quota(quota, rules) for quota in quotas if quota is not first)
    bounds = (*(bound for other in others for bound in other.bounds), *above)
    # What a quota of the tree may borrow is its runtime.
    is_in_cohort = is_in_cohort and (first.group == UPSTREAM_GROUP or not above)
    queue = queue_quota(first, rules, bounds, is_in_cohort=is_in_cohort)
    return NamespaceQueue(first, queue, source)


def _add(amounts: dict[str, int], name: str, amount: int) -> None:
    amounts[name] = amounts.get(name, 0) + amount


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
        self._claimed: tuple[tuple[int, ...], Cohort] | None = None  # with the versions it is of

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
        latest, facts = view.latest, view.namespaces
        versions = latest[Domain.NODES], latest[Domain.PODS], facts.pods_version
        if self._claimed is None or self._claimed[0] != versions:
            requested = facts.requested
            usage = {
                quota.key: requested.get(namespace, _NOTHING)
                for namespace, quota in self._members.items()
            }
            cohort = self._bare_cohort(view, usage)
            claims = self._claims(view, usage, cohort)
            self._claimed = versions, Cohort(cohort.capacity, sum_of((cohort.used, claims)))
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
