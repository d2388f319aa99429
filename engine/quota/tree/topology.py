"""Checks of a quota against those above, beside and below it, before it is stored.

Messages are those of Koordinator's own webhook, word for word. Source: koordinator,
pkg/webhook/elasticquota/quota_topology_check.go.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import msgspec

from engine.errors import QuantityError
from engine.model import api
from engine.model.elastic_quota import (
    PARENT_LABEL,
    ROOT_QUOTA,
    SHARED_WEIGHT_ANNOTATION,
    TREE_ID_LABEL,
    AnnotationError,
    ElasticQuota,
    resource_list_in,
)
from engine.model.quantity import quantity_of
from engine.model.resources import Amounts, greater
from engine.quota.bounds import sum_of


@dataclass(frozen=True, slots=True, kw_only=True)
class TopologyRules:
    """Rules that feature gates of Koordinator change."""

    # whether `max` may name fewer resources than that of the parent
    # (feature gate ElasticQuotaEnableUpdateResourceKey)
    allows_fewer_keys: bool = False
    # whether a tree with an id must be able to guarantee each `min` (ElasticQuotaGuaranteeUsage)
    guarantees_usage: bool = False


DEFAULT_TOPOLOGY_RULES = TopologyRules()


class KnownQuotas:
    """The quotas that exist beside one that is checked."""

    def __init__(self, quotas: Iterable[ElasticQuota]) -> None:
        self.by_name: Mapping[str, ElasticQuota] = {quota.name: quota for quota in quotas}

    def get(self, name: str) -> ElasticQuota | None:
        """Return the quota of a name, None if there is none."""
        return self.by_name.get(name)

    def children_of(self, name: str) -> Sequence[ElasticQuota]:
        """Return the quotas whose label names a parent, in name order."""
        found = (quota for quota in self.by_name.values() if quota.tree.parent == name)
        return sorted(found, key=lambda quota: quota.name)


def check_topology(
    quota: ElasticQuota,
    old: ElasticQuota | None,
    others: KnownQuotas,
    *,
    has_pods: bool = False,
    rules: TopologyRules = DEFAULT_TOPOLOGY_RULES,
) -> str:
    """Return why a quota may not have its place in the tree, "" if it may."""
    if quota.name == ROOT_QUOTA:
        return ""
    problem = _check_is_parent(quota, old, others, has_pods=has_pods)
    problem = problem or check_tree_id(quota, old, others)
    if problem or (quota.tree.parent == ROOT_QUOTA and not quota.tree.is_parent):
        return problem
    problem = _check_parent(quota, others)
    if not problem and (mismatch := check_keys(quota, others, rules)):
        problem = f"failed to check sub and parent group quotaKey, err: {mismatch}"
    problem = problem or check_min_sums(quota, others)
    if not problem and rules.guarantees_usage and (missing := check_guarantee(quota, others)):
        problem = f"{missing} {quota.name}"
    return problem


def _check_is_parent(
    quota: ElasticQuota, old: ElasticQuota | None, others: KnownQuotas, *, has_pods: bool
) -> str:
    if old is None or old.tree.is_parent == quota.tree.is_parent:
        return ""
    if not quota.tree.is_parent and others.children_of(quota.name):
        problem = "quota has children, isParent is forbidden to modify as false"
        return f"{problem}, quotaName:{quota.name}"
    if quota.tree.is_parent and has_pods:
        problem = "quota has bound pods, isParent is forbidden to modify as true"
        return f"{problem}, quotaName: {quota.name}"
    return ""


def check_tree_id(quota: ElasticQuota, old: ElasticQuota | None, others: KnownQuotas) -> str:
    """Return why a quota may not be of its tree: that changed, or its family is of another."""
    name, tree_id = quota.name, quota.tree.tree_id
    if old is not None and old.tree.tree_id != tree_id:
        return f"{name} tree id changed [{old.tree.tree_id}] vs [{tree_id}]"
    parent = others.get(quota.tree.parent) if quota.tree.parent != ROOT_QUOTA else None
    family = [("parent", parent)] if parent is not None else []
    family += [("child", child) for child in others.children_of(name)]
    for relation, other in family:
        if other.tree.tree_id != tree_id:
            return (
                f"{name} tree id is different from {relation} {other.name}, [{tree_id}] vs"
                f" [{other.tree.tree_id}]"
            )
    return ""


def _check_parent(quota: ElasticQuota, others: KnownQuotas) -> str:
    name = quota.tree.parent
    if name == ROOT_QUOTA:
        return ""
    parent = others.get(name)
    if parent is None:
        return f"{quota.name} has parentName {name} but not find parentInfo in quotaInfoMap"
    if not parent.tree.is_parent:
        return f"{quota.name} has parentName {name} but the parentQuotaInfo's IsParent is false"
    return ""


def check_keys(
    quota: ElasticQuota, others: KnownQuotas, rules: TopologyRules = DEFAULT_TOPOLOGY_RULES
) -> str:
    """Return why a quota may not name the resources it does, "" if it may.

    `max` names what the parent's does, and the children's what it does; `min` no more than that.
    """
    failed = "checkSubAndParentGroupQuotaKey failed"
    # Upstream names a parent first where it differs from the quota, and a child where that does.
    pairs = [(quota, parent, parent.name, quota.name) for parent in _parents(quota, others)]
    pairs += [(child, quota, child.name, quota.name) for child in others.children_of(quota.name)]
    for lower, upper, first, second in pairs:
        below, above = (lower.max or {}).keys(), (upper.max or {}).keys()
        if rules.allows_fewer_keys:
            if not below <= above:
                return f"{failed}: {lower.name}'s max keys are not all included in {upper.name}'s"
        elif below != above:
            return f"{failed}: {first}'s max keys are not the same with {second}'s"
        if not (lower.min or {}).keys() <= (upper.min or {}).keys():
            return f"{failed}: {lower.name}'s min keys are not all included in {upper.name}'s"
    return ""


def check_min_sums(quota: ElasticQuota, others: KnownQuotas) -> str:
    """Return where guarantees come to more than those above, "" if nowhere."""
    if quota.tree.is_forced or quota.tree.is_tree_root:
        return ""
    for parent in _parents(quota, others):
        siblings = [other for other in others.children_of(parent.name) if other.name != quota.name]
        if not _covers(parent.min, sum_of(each.min or {} for each in (*siblings, quota))):
            return (
                f"checkMinQuotaSum all brothers' MinQuota > parent MinQuota, parent: {parent.name}"
            )
    children = others.children_of(quota.name)
    if not _covers(quota.min, sum_of(child.min or {} for child in children)):
        problem = "checkMinQuotaSum all children's MinQuota > current MinQuota"
        return f"{problem}, current: {quota.name}"
    return ""


def check_guarantee(quota: ElasticQuota, others: KnownQuotas) -> str:
    """Return why the `min` of a quota of a tree with an id cannot be guaranteed, "" if it can."""
    settings = quota.tree
    if settings.is_forced or not settings.tree_id or settings.is_tree_root:
        return ""
    if _covers(settings.guaranteed, quota.min or {}):
        return ""
    needed = greater(quota.min or {}, settings.guaranteed)
    seen = {quota.name}
    while True:
        if quota.tree.parent == ROOT_QUOTA:
            return f"tree root quota {quota.name} can't guarantee for min"
        parent = others.get(quota.tree.parent)
        if parent is None or parent.name in seen:
            return f"parent {quota.tree.parent} not found"
        siblings = (
            child.tree.guaranteed
            for child in others.children_of(parent.name)
            if child.name != quota.name
        )
        needed = greater(parent.min or {}, sum_of((needed, *siblings)))
        if _covers(parent.tree.guaranteed, needed):
            return ""
        seen.add(parent.name)
        quota = parent


def _parents(quota: ElasticQuota, others: KnownQuotas) -> Sequence[ElasticQuota]:
    """Return the parent of a quota, nothing where that is the root or does not exist."""
    parent = others.get(quota.tree.parent) if quota.tree.parent != ROOT_QUOTA else None
    return () if parent is None else (parent,)


def _covers(bounds: Amounts | None, amounts: Amounts) -> bool:
    """Return whether amounts are within bounds, of which a missing one counts as none."""
    return all(amount <= (bounds or {}).get(name, 0) for name, amount in amounts.items())


# Labels and annotations that Koordinator fills in when a quota is created.
#
# Messages are those of Koordinator's own webhook, word for word. Source: koordinator,
# pkg/webhook/elasticquota/quota_topology.go, fillQuotaDefaultInformation.


@dataclass(frozen=True, slots=True)
class QuotaDefaults:
    """What is filled in."""

    labels: Mapping[str, str] = field(default_factory=dict)  # to be set
    annotations: Mapping[str, str] = field(default_factory=dict)  # to be set
    problem: str = ""  # why nothing can be filled in, "" if it can


def quota_defaults(quota: api.ElasticQuota, others: KnownQuotas) -> QuotaDefaults:
    """Return what a new quota lacks: its parent, the tree of its parent, its shared weight.

    Args:
        quota: as its author wrote it.
        others: all that exist beside it.
    """
    meta = quota.metadata
    name, written = meta.name, meta.labels or {}
    if name == ROOT_QUOTA:
        return QuotaDefaults()
    labels: dict[str, str] = {}
    parent_name = written.get(PARENT_LABEL)
    if not parent_name:
        labels[PARENT_LABEL] = ROOT_QUOTA
    elif parent_name != ROOT_QUOTA and not written.get(TREE_ID_LABEL):
        parent = others.get(parent_name)
        if parent is None:
            return QuotaDefaults(problem=f"fill quota {name} failed, parent not exist")
        labels[TREE_ID_LABEL] = parent.tree.tree_id
    try:
        weight = _shared_weight(quota)
    except (AnnotationError, QuantityError) as error:
        return QuotaDefaults(problem=f"fill quota {name} failed, {error}")
    return QuotaDefaults(labels, {SHARED_WEIGHT_ANNOTATION: weight} if weight else {})


def _shared_weight(quota: api.ElasticQuota) -> str:
    """Return the annotation with exactly the resources of `max`; "" if it needs no change."""
    greatest = quota.spec.max or {}
    own = resource_list_in(quota.metadata, SHARED_WEIGHT_ANNOTATION)
    is_written = bool((quota.metadata.annotations or {}).get(SHARED_WEIGHT_ANNOTATION))
    if is_written and own.keys() == greatest.keys():
        for text in own.values():
            quantity_of(text)
        return ""
    weights = {name: own.get(name, text) for name, text in greatest.items()}
    canonical = {name: quantity_of(text).canonical() for name, text in sorted(weights.items())}
    return msgspec.json.encode(canonical).decode()
