"""The queues of quotas of Koordinator's tree, which have pods of any namespace.

Such a quota takes no part in the cohort: how much it may borrow is its runtime, which all quotas of
the tree share.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

from engine.model.elastic_quota import ElasticQuota, QuotaKey
from engine.model.resources import Amounts
from engine.quota.queueing.queued_pod import Bound, QueueQuota, queue_quota
from engine.quota.rules import QuotaRules
from engine.quota.tree import QuotaPaths, TreeBounds, bounds_in, known_quota_name
from engine.view import ClusterView

_NONE: Final[tuple[Bound, ...]] = ()


class TreeQueues:
    """What bounds the pods of each quota of the tree, in the last view.

    Args:
        rules: of the comparison with `max`.
    """

    def __init__(self, rules: QuotaRules) -> None:
        self._rules = rules
        self._paths = QuotaPaths(rules)
        self._bounds: TreeBounds | None = None

    def update(self, view: ClusterView) -> None:
        """Adopt the quotas and the pods of a view."""
        has_any = self._paths.may_have(view)
        self._bounds = bounds_in(view, self._paths.tree(view)) if has_any else None

    def quota_of(self, namespace: str, label: str) -> ElasticQuota | None:
        """Return the quota of the tree that a pod belongs to, None if it belongs to none.

        Args:
            namespace: of the pod.
            label: the quota that its label names, "" for none.
        """
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
