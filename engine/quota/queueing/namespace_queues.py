"""The queues of a view: whose pods wait for which quota, what counts as used, and the cohort."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from engine.model.elastic_quota import UPSTREAM_GROUP, ElasticQuota, QuotaKey
from engine.model.koordinator_quota import NAME_LABEL
from engine.model.pod import Pod
from engine.model.resources import Amounts
from engine.quota.queueing.cohort import (
    Cohort,
    NodeSelection,
    QuotaCohort,
    cohort_of_nodes,
    sum_of_min,
)
from engine.quota.queueing.queued_pod import Bound, QueueQuota, queue_quota
from engine.quota.queueing.tree_queues import TreeQueues
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
        self._tree = TreeQueues(rules.rules)
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
