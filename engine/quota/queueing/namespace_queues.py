"""The queues of a view: whose pods wait for which quota, what counts as used, and the cohort."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from engine.model.elastic_quota import UPSTREAM_GROUP, ElasticQuota, QuotaKey
from engine.model.resources import Amounts
from engine.quota.queueing.cohort import (
    Cohort,
    NodeSelection,
    QuotaCohort,
    cohort_of_nodes,
    sum_of_min,
)
from engine.quota.queueing.queued_pod import Bound, QueueQuota, queue_quota
from engine.quota.rules import RESOURCE_QUOTA_RULES, QuotaMode, QuotaRules, mode_of, quotas_of
from engine.view import ClusterView

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
    """

    namespace: str
    requests: Amounts


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

    Pods wait in namespaces of mode Queue. Where pods wait although the mode is Enforce, as it was
    changed, they are released as `max` allows, and take part in nothing else. In the modes Audit
    and Off nobody waits.

    Args:
        rules: the rules.
    """

    def __init__(self, rules: QueueRules) -> None:
        self._rules = rules
        self._by_namespace: dict[str, NamespaceQueue] = {}

    def get(self, namespace: str) -> NamespaceQueue | None:
        """Return the queue of a namespace, None where no pod waits for quota."""
        return self._by_namespace.get(namespace)

    def is_in_cohort(self, namespace: str) -> bool:
        """Return whether the pods of a namespace share the cohort with others."""
        queue = self._by_namespace.get(namespace)
        return queue is not None and queue.queue.is_in_cohort

    def update(self, view: ClusterView) -> None:
        """Adopt the quotas of a view."""
        known, rules = self._by_namespace, self._rules
        found: dict[str, NamespaceQueue] = {}
        for namespace in view.namespaces.quotas:
            if namespace in rules.excluded_namespaces:
                continue
            mode = mode_of(view, namespace, rules.mode)
            if mode == "Queue" or (mode == "Enforce" and namespace in view.namespaces.queued):
                source = quotas_of(view, namespace), mode == "Queue"
                old = known.get(namespace)
                if old is not None and old.source == source:
                    found[namespace] = old
                elif source[0]:
                    found[namespace] = _queue_of(source, rules.rules)
        self._by_namespace = found

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
        for pod in under_way:
            for resource, amount in pod.requests.items():
                _add(used[pod.namespace], resource, amount)
                _add(unbound, resource, amount)
        usage = {
            bound.key: used[name]
            for name, queue in self._by_namespace.items()
            for bound in queue.queue.bounds
        }
        quotas = {queue.queue.key: queue.queue for queue in self._by_namespace.values()}
        if self._rules.cohort == "SumOfMin":
            members = {key: quota for key, quota in quotas.items() if quota.is_in_cohort}
            return QueueSituation(quotas, usage, sum_of_min(members, usage))
        selection = self._rules.selection
        cohort = cohort_of_nodes(view, selection, assumed=assumed, unbound=unbound)
        return QueueSituation(quotas, usage, cohort)


def _queue_of(source: tuple[tuple[ElasticQuota, ...], bool], rules: QuotaRules) -> NamespaceQueue:
    quotas, is_in_cohort = source
    first = next((quota for quota in quotas if quota.group == UPSTREAM_GROUP), quotas[0])
    others = (queue_quota(quota, rules) for quota in quotas if quota is not first)
    bounds: tuple[Bound, ...] = tuple(bound for other in others for bound in other.bounds)
    queue = queue_quota(first, rules, bounds, is_in_cohort=is_in_cohort)
    return NamespaceQueue(first, queue, source)


def _add(amounts: dict[str, int], name: str, amount: int) -> None:
    amounts[name] = amounts.get(name, 0) + amount
