"""The tree as a view of the cluster has it: whose pods are whose, and what bounds them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from engine.model.koordinator_quota import DEFAULT_QUOTA, SYSTEM_QUOTA
from engine.model.resources import Amounts
from engine.quota.bounds import excess, sum_of
from engine.quota.tree.bounds import TreeBounds, UsageByQuota, tree_bounds
from engine.quota.tree.membership import known_quota_name
from engine.quota.tree.tree import QuotaTree
from engine.view import ClusterView


def tree_in(view: ClusterView) -> QuotaTree:
    """Return the tree of all quotas of Koordinator."""
    return QuotaTree(quota for listed in view.namespaces.quotas.values() for quota in listed)


def bounds_in(view: ClusterView, tree: QuotaTree, *, scales_min: bool = True) -> TreeBounds:
    """Return what bounds the pods of each quota now; the tree has what all nodes offer."""
    names = {name for quota in tree for name in quota.max or {}}
    total = {name: int(view.amount(view.allocatable, name)[view.valid].sum()) for name in names}
    usage, outside = usage_in(view, tree), usage_outside(view, tree)
    return tree_bounds(tree, usage, total, outside, scales_min=scales_min)


def usage_in(view: ClusterView, tree: QuotaTree) -> UsageByQuota:
    """Return what the pods of each quota request: of its label, or else of its namespace."""
    facts = view.namespaces
    return UsageByQuota(
        used=_by_quota(tree, facts.requested, facts.labelled),
        queued=_by_quota(tree, facts.queued, facts.labelled_queued),
    )


def usage_outside(view: ClusterView, tree: QuotaTree) -> Amounts:
    """Return what pods of the default and of the system quota take of what nodes offer.

    Those that are bound alone, as upstream counts what is used: nobody may ever place the others.
    Source: koordinator, core/group_quota_manager.go.
    """
    facts = view.namespaces
    bound = _by_quota(tree, facts.scheduled, facts.labelled_scheduled)
    return sum_of(bound.get(name, {}) for name in (DEFAULT_QUOTA, SYSTEM_QUOTA))


def _by_quota(
    tree: QuotaTree, by_namespace: Mapping[str, Amounts], by_label: Mapping[str, Amounts]
) -> dict[str, Amounts]:
    sums: dict[str, Amounts] = {}
    for name, amounts in _shares(tree, by_namespace, by_label):
        sums[name] = sum_of((sums[name], amounts)) if name in sums else amounts
    return sums


def _shares(
    tree: QuotaTree, by_namespace: Mapping[str, Amounts], by_label: Mapping[str, Amounts]
) -> Iterator[tuple[str, Amounts]]:
    """Yield the quota of each group of pods, and what they request."""
    labelled: dict[str, list[Amounts]] = {}
    for key, amounts in by_label.items():
        namespace, _, label = key.partition("/")
        labelled.setdefault(namespace, []).append(amounts)
        yield known_quota_name(tree, namespace, label), amounts
    for namespace, amounts in by_namespace.items():
        rest = excess(amounts, sum_of(labelled.get(namespace, ())))
        if rest:
            yield known_quota_name(tree, namespace, ""), rest
