"""The quotas above a pod that are not those of its namespace, and the pod compared with them.

A namespace's own quotas are exact, by reservations on their objects. What a label, a list of
namespaces or a parent adds is compared with what a view counts, so that pods that are admitted at
the same moment may exceed it together. Where pods wait for quota, one leader releases them: none
exceeds it.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from engine.model.elastic_quota import ElasticQuota
from engine.model.koordinator_quota import BUILT_IN_QUOTAS
from engine.model.resource_names import PODS
from engine.model.resources import Amounts
from engine.quota.rules import QuotaRules
from engine.quota.tree.counting import tree_in, usage_in
from engine.quota.tree.membership import known_quota_name
from engine.quota.tree.requests import sum_usage
from engine.quota.tree.tree import QuotaTree
from engine.quota.verdict import QuotaVerdict, judge, judge_queued
from engine.view import ClusterView

_COUNTS_SECONDS: Final = 0.1
"""All quotas of a tree are counted at once, 10 ms for a thousand: not for every pod."""


@dataclass(slots=True)
class _Counts:
    """The pods of the tree at a moment, and those admitted since; by name of a quota.

    Attributes:
        at: the moment.
        used: by the pods of a quota and of those below it.
        queued: pods that wait for it.
    """

    at: float
    used: dict[str, dict[str, int]]
    queued: dict[str, int]


class QuotaPaths:
    """Compares pods with the quotas of the tree; remembers the tree, and its pods for a moment.

    All views must be of one cluster, each not older than the one before.

    Args:
        rules: what is compared.
    """

    def __init__(self, rules: QuotaRules) -> None:
        self._rules = rules
        self._tree = QuotaTree(())
        self._version = 0
        self._counts: _Counts | None = None

    def tree(self, view: ClusterView) -> QuotaTree:
        """Return the tree of a view."""
        version = view.namespaces.quotas_version
        if version != self._version:
            self._tree, self._version, self._counts = tree_in(view), version, None
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
        self,
        view: ClusterView,
        namespace: str,
        label: str,
        requests: Amounts,
        now: float,
        *,
        dry_run: bool = False,
    ) -> QuotaVerdict:
        """Compare a pod with `max` of the quotas that limit it besides those of its namespace.

        What is admitted counts at once, for those that are judged here until the view is read
        again.

        Args:
            view: the cluster.
            namespace: of the pod.
            label: the quota that its label names, "" for none.
            requests: of the pod, or what it requests in addition.
            now: seconds that only go forward.
            dry_run: whether to judge only, and count nothing.
        """
        quotas = self.quotas_of(view, namespace, label)
        if not quotas:
            return QuotaVerdict()
        counts = self._counts_at(view, now)
        used = [counts.used.setdefault(quota.name, {}) for quota in quotas]
        verdict = _joined(
            judge(requests, held, [quota], self._rules)
            for quota, held in zip(quotas, used, strict=True)
        )
        if verdict.allowed and not dry_run:
            for held in used:
                for name, amount in requests.items():
                    held[name] = held.get(name, 0) + amount
        return verdict

    def judge_queued(
        self,
        view: ClusterView,
        namespace: str,
        label: str,
        requests: Amounts,
        now: float,
        *,
        dry_run: bool = False,
    ) -> QuotaVerdict:
        """Return whether a pod may wait for these quotas: see `engine.quota.judge_queued`."""
        quotas = self.quotas_of(view, namespace, label)
        if not quotas:
            return QuotaVerdict()
        counts = self._counts_at(view, now)
        own, *above = quotas
        waiting = counts.queued.get(own.name, 0)
        verdict = _joined(
            (
                judge_queued(requests, waiting, [own], self._rules),
                *(judge(requests, {}, [quota], self._rules) for quota in above),
            )
        )
        if verdict.allowed and not dry_run:
            counts.queued[own.name] = waiting + 1
        return verdict

    def _counts_at(self, view: ClusterView, now: float) -> _Counts:
        """Return what pods use and how many wait, of a moment ago at most."""
        if self._counts is None or not 0 <= now - self._counts.at < _COUNTS_SECONDS:
            tree = self.tree(view)
            usage = usage_in(view, tree)
            self._counts = _Counts(
                now,
                {name: dict(amounts) for name, amounts in sum_usage(tree, usage.used).items()},
                {name: amounts.get(PODS, 0) for name, amounts in usage.queued.items()},
            )
        return self._counts


def _joined(verdicts: Iterable[QuotaVerdict]) -> QuotaVerdict:
    """Return one verdict of several, all of which must allow."""
    denials = [verdict for verdict in verdicts if not verdict.allowed]
    return QuotaVerdict(
        tuple(name for verdict in denials for name in verdict.exceeded),
        "; ".join(verdict.message for verdict in denials),
    )
