"""The quotas above a pod that are not those of its namespace, and the pod compared with them.

A namespace's own quotas are exact, by reservations on their objects. What a label, a list of
namespaces or a parent adds is compared with what a view counts, so that pods that are admitted at
the same moment may exceed it together. Where pods wait for quota, one leader releases them: none
exceeds it.
"""

from __future__ import annotations

from collections.abc import Mapping

from engine.model.elastic_quota import ElasticQuota
from engine.model.koordinator_quota import BUILT_IN_QUOTAS
from engine.model.resources import Amounts
from engine.quota.rules import QuotaRules
from engine.quota.tree.counting import tree_in, usage_in
from engine.quota.tree.membership import known_quota_name
from engine.quota.tree.requests import sum_usage
from engine.quota.tree.tree import QuotaTree
from engine.quota.verdict import QuotaVerdict, judge
from engine.view import ClusterView


class QuotaPaths:
    """Compares pods with the quotas of the tree; remembers the tree and the usage of one view.

    All views must be of one cluster, each not older than the one before.

    Args:
        rules: what is compared.
    """

    def __init__(self, rules: QuotaRules) -> None:
        self._rules = rules
        self._tree = QuotaTree(())
        self._version = 0
        self._used: tuple[ClusterView, Mapping[str, Amounts]] | None = None

    def tree(self, view: ClusterView) -> QuotaTree:
        """Return the tree of a view."""
        version = view.namespaces.quotas_version
        if version != self._version:
            self._tree, self._version, self._used = tree_in(view), version, None
        return self._tree

    def may_have(self, view: ClusterView) -> bool:
        """Return whether any pod may be limited beyond the quotas of its namespace."""
        return len(self.tree(view)) > 0

    def quotas_of(self, view: ClusterView, namespace: str, label: str) -> tuple[ElasticQuota, ...]:
        """Return the quotas that limit a pod besides those of its namespace, its own one first.

        Args:
            view: the cluster.
            namespace: of the pod.
            label: the quota that its label names, "" for none.
        """
        tree = self.tree(view)
        if not len(tree):
            return ()
        name = known_quota_name(tree, namespace, label)
        quota = tree.get(name)
        if quota is None or name in BUILT_IN_QUOTAS:
            return ()
        is_of_namespace = quota.name == quota.namespace == namespace
        return (*(() if is_of_namespace else (quota,)), *tree.ancestors_of(name))

    def judge(
        self, view: ClusterView, namespace: str, label: str, requests: Amounts, *, alone: bool
    ) -> QuotaVerdict:
        """Compare a pod with `max` of the quotas that limit it besides those of its namespace.

        Args:
            view: the cluster.
            namespace: of the pod.
            label: the quota that its label names, "" for none.
            requests: of the pod, or what it requests in addition.
            alone: whether only what it requests counts, for it waits until there is room.
        """
        quotas = self.quotas_of(view, namespace, label)
        if not quotas:
            return QuotaVerdict()
        used = {} if alone else self._used_in(view)
        verdicts = [
            judge(requests, used.get(quota.name, {}), [quota], self._rules) for quota in quotas
        ]
        return QuotaVerdict(
            tuple(name for verdict in verdicts for name in verdict.exceeded),
            "; ".join(verdict.message for verdict in verdicts if not verdict.allowed),
        )

    def _used_in(self, view: ClusterView) -> Mapping[str, Amounts]:
        """Return what the pods of each quota and of those below it use."""
        if self._used is None or self._used[0] is not view:
            tree = self.tree(view)
            self._used = view, sum_usage(tree, usage_in(view, tree).used)
        return self._used[1]
