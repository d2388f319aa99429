"""Validation of an ElasticQuota before it is stored.

The CRDs check the syntax of quantities at most. Checked here is what scheduler-plugins
leaves to the administrator (KEP-9): min <= max, one quota for a namespace, the sum of min within
the cluster.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from engine.errors import QuantityError
from engine.model import api
from engine.model.elastic_quota import (
    BUILT_IN_QUOTAS,
    HARD_RECLAIM,
    IS_PARENT_LABEL,
    KOORDINATOR_GROUP,
    NAMESPACES_ANNOTATION,
    PARENT_LABEL,
    RECLAIM_ANNOTATION,
    REVOKE_ANNOTATION,
    ROOT_QUOTA,
    SHARED_WEIGHT_ANNOTATION,
    STRICT_KEYS_ANNOTATION,
    SURGE_ANNOTATION,
    SYSTEM_QUOTA,
    TREE_ID_LABEL,
    UPSTREAM_GROUP,
    AnnotationError,
    ElasticQuota,
    EvictionMode,
    namespaces_in,
    quota_of,
    resource_list_in,
    strings_in,
)
from engine.model.quantity import PODS, Quantity, amount_text, quantity_of
from engine.policy.environment import hint_if_misspelt
from engine.quota.bounds import QuotaRules, effective_max, sum_of
from engine.quota.tree import topology
from engine.quota.tree.topology import (
    DEFAULT_TOPOLOGY_RULES,
    KnownQuotas,
    QuotaDefaults,
    TopologyRules,
    check_topology,
)
from engine.view import ClusterView

# Koordinator's rules for an ElasticQuota that is written, by itself and in its tree.
#
# Messages are those of Koordinator's own webhook, word for word.
#
# Source: koordinator, pkg/webhook/elasticquota/{quota_topology,quota_topology_check}.go.


_NAMED_PODS = 2  # in the refusal of a deletion


def check_itself(quota: api.ElasticQuota) -> str:
    """Return a problem of a quota by itself, "" if there is none."""
    name, spec = quota.metadata.name, quota.spec
    try:
        least, greatest = _quantities(spec.min), _quantities(spec.max)
        used = _quantities(quota.status.used)
        weights = _quantities(resource_list_in(quota.metadata, SHARED_WEIGHT_ANNOTATION))
        strict = strings_in(quota.metadata, STRICT_KEYS_ANNOTATION)
    except (QuantityError, AnnotationError) as error:
        return f"quota {name} cannot be read: {error}"
    for field, values, dimensions in (
        ("Spec.Max", greatest, "dimensions"),
        ("Spec.Min", least, "dimensions"),
        (f"Annotation[{SHARED_WEIGHT_ANNOTATION}]", weights, "dimension"),
    ):
        if negative := sorted(key for key, value in values.items() if value.sign < 0):
            return f"{name} quota.{field}'s value < 0, in {dimensions} :[{' '.join(negative)}]"
    for key in sorted(least):
        if key not in greatest:
            missing = "is included in min, which is not included in max"
            return f"resourceKey {key} of quota {name} {missing}"
        if least[key] > greatest[key]:
            return f"resourceKey {key} of quota {name} min {least[key]} > max {greatest[key]}"
    return _strictly_above(strict, name, used, greatest)


def _strictly_above(
    keys: Sequence[str],
    name: str,
    used: Mapping[str, Quantity],
    greatest: Mapping[str, Quantity],
) -> str:
    for key in keys:
        if key not in used:
            continue
        if key not in greatest:
            return (
                f"resourceKey {key} of quota {name} is included in used, which is not included in"
                " max but should check max >= used"
            )
        if greatest[key] < used[key]:
            return f"resourceKey {key} of quota {name} max {greatest[key]} < used {used[key]}"
    return ""


def check_creation(
    quota: api.ElasticQuota,
    others: Iterable[ElasticQuota],
    rules: TopologyRules = DEFAULT_TOPOLOGY_RULES,
) -> str:
    """Return why a quota may not be created beside others, "" if it may.

    Names are unique in the whole cluster, not only in a namespace.
    """
    name = quota.metadata.name
    others = tuple(others)
    if any(other.name == name for other in others):
        return f"AddQuota quota already exist:{name}"
    for namespace, owner in _taken(quota, others):
        return (
            f"AddQuota quota {name}'s annotation namespace {namespace} is already bound to quota"
            f" {owner}"
        )
    problem = check_itself(quota)
    return problem or check_topology(quota_of(quota), None, KnownQuotas(others), rules=rules)


def check_update(
    quota: api.ElasticQuota,
    old: api.ElasticQuota,
    others: Iterable[ElasticQuota],
    *,
    has_pods: bool = False,
    rules: TopologyRules = DEFAULT_TOPOLOGY_RULES,
) -> str:
    """Return why a quota may not be changed, "" if it may."""
    if _checked_fields(quota) == _checked_fields(old):
        return ""
    name = quota.metadata.name
    if name in {ROOT_QUOTA, SYSTEM_QUOTA}:
        return f"invalid quota {name}"
    others = tuple(others)
    for namespace, owner in _taken(quota, others):
        return (
            f"UpdadteQuota, quota {name} update namespaces, but namespace {namespace} is already"
            f" bound to quota {owner}"
        )
    problem = check_itself(quota)
    if problem:
        return problem
    try:
        before = quota_of(old)
    except QuantityError:
        before = None  # stored while nobody checked it
    return check_topology(
        quota_of(quota), before, KnownQuotas(others), has_pods=has_pods, rules=rules
    )


def koordinator_deletion_problem(
    name: str, others: Iterable[ElasticQuota] = (), pods: Sequence[str] = ()
) -> str:
    """Return why a quota may not be deleted, "" if it may."""
    if name in BUILT_IN_QUOTAS:
        return f"can not delete quotaGroup :{name}"
    if children := KnownQuotas(others).children_of(name):
        return f"delete quota failed, quota {name} has {len(children)} child quotas"
    if pods:
        named = [*pods[:_NAMED_PODS], *(["..."] if len(pods) > _NAMED_PODS else [])]
        return f"delete quota failed, quota {name} has {len(pods)} child pods: {', '.join(named)}"
    return ""


def _checked_fields(quota: api.ElasticQuota) -> object:
    labels = quota.metadata.labels or {}
    fixed = tuple(labels.get(label, "") for label in (PARENT_LABEL, IS_PARENT_LABEL, TREE_ID_LABEL))
    namespaces = (quota.metadata.annotations or {}).get(NAMESPACES_ANNOTATION, "")
    return quota.spec, fixed, namespaces


def _taken(quota: api.ElasticQuota, others: Iterable[ElasticQuota]) -> Iterable[tuple[str, str]]:
    """Yield the namespaces that a quota lists and another quota has, with its name."""
    owners = {namespace: other.name for other in others for namespace in other.tree.namespaces}
    for namespace in namespaces_in(quota.metadata):
        if owners.get(namespace, quota.metadata.name) != quota.metadata.name:
            yield namespace, owners[namespace]


def _quantities(resource_list: api.ResourceList | None) -> dict[str, Quantity]:
    return {name: quantity_of(text) for name, text in (resource_list or {}).items()}


_ANNOTATION_VALUES: Final = {
    RECLAIM_ANNOTATION: (*EvictionMode, HARD_RECLAIM),
    REVOKE_ANNOTATION: tuple(EvictionMode),
    SURGE_ANNOTATION: ("1",),
}
_MOST_SHOWN: Final = 50


@dataclass(frozen=True, slots=True)
class Findings:
    """Mistakes in a quota.

    Attributes:
        problems: reasons to refuse the request.
        warnings: for its author.
    """

    problems: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()


def check_quota(
    wire: api.ElasticQuota, old: api.ElasticQuota | None, view: ClusterView, rules: QuotaRules
) -> Findings:
    """Check a quota that is to be created or changed.

    Koordinator's quotas follow Koordinator's own rules: many of them live in one namespace, and
    guarantees are checked along their tree.

    Args:
        wire: as it will be stored.
        old: as it is stored, None for a new one.
        view: the cluster.
        rules: meaning of its bounds.
    """
    misread = tuple(_misread(wire, old))
    if wire.api_version.partition("/")[0] == KOORDINATOR_GROUP:
        found = _check_koordinator_quota(wire, old, view)
        return Findings(found.problems, (*misread, *found.warnings))
    if old is not None and old.spec == wire.spec:
        return Findings(warnings=misread)  # most updates: reservations, status, labels
    problems = [*_unreadable(wire.spec), *_misspelt(wire.spec)]
    if problems:
        return Findings(tuple(problems))
    quota = quota_of(wire)
    others = _others(view, UPSTREAM_GROUP, quota.namespace, quota.name)
    problems += _min_over_max(quota, rules)
    if old is None:
        problems += _already_limited(quota, others)
    return Findings(tuple(problems), (*misread, *_guaranteed_too_much(quota, others, view)))


def _misread(wire: api.ElasticQuota, old: api.ElasticQuota | None) -> Iterator[str]:
    """Yield what new annotations say that nobody reads."""
    annotations = wire.metadata.annotations or {}
    before = {} if old is None else old.metadata.annotations or {}
    for name, values in _ANNOTATION_VALUES.items():
        value = annotations.get(name)
        if value is not None and value not in values and value != before.get(name):
            known = " or ".join(f"`{each}`" for each in values)
            yield f"annotation `{name}`: `{value[:_MOST_SHOWN]}` counts as none; it may be {known}"


def check_deletion(group: str, namespace: str, name: str, view: ClusterView) -> Findings:
    """Check a quota that is to be deleted; Koordinator keeps those that others depend on."""
    if group != KOORDINATOR_GROUP:
        return Findings()
    others = _others(view, KOORDINATOR_GROUP, namespace, name)
    problem = koordinator_deletion_problem(name, others)
    labelled = _labelled_pods(view, name)
    if labelled and not problem:  # upstream names two of them; a view knows no names
        count, where = sum(labelled.values()), ", ".join(sorted(labelled))
        problem = f"delete quota failed, quota {name} has {count} child pods: in {where}"
    return Findings((problem,) if problem else ())


def quota_defaults(wire: api.ElasticQuota, view: ClusterView) -> QuotaDefaults:
    """Return what a new quota of Koordinator lacks; nothing for one of another group."""
    meta = wire.metadata
    if wire.api_version.partition("/")[0] != KOORDINATOR_GROUP:
        return QuotaDefaults()
    others = _others(view, KOORDINATOR_GROUP, meta.namespace, meta.name)
    return topology.quota_defaults(wire, KnownQuotas(others))


def _check_koordinator_quota(
    wire: api.ElasticQuota, old: api.ElasticQuota | None, view: ClusterView
) -> Findings:
    others = _others(view, KOORDINATOR_GROUP, wire.metadata.namespace, wire.metadata.name)
    if old is None:
        problem = check_creation(wire, others)
    else:
        has_pods = _has_pods(view, old)
        problem = check_update(wire, old, others, has_pods=has_pods)
    warnings = () if old is not None and old.spec == wire.spec else tuple(_misspelt(wire.spec))
    return Findings((problem,) if problem else (), warnings)


def _has_pods(view: ClusterView, quota: api.ElasticQuota) -> bool:
    """Return whether any pod that has not finished is bound to a quota."""
    facts, name = view.namespaces, quota.metadata.name
    return bool(_labelled_pods(view, name)) or any(
        facts.requested.get(namespace) or facts.queued.get(namespace)
        for namespace in {name, *namespaces_in(quota.metadata)}
    )


def _labelled_pods(view: ClusterView, name: str) -> Counter[str]:
    """Return the number of pods whose label names a quota, by namespace."""
    pods: Counter[str] = Counter()
    facts = view.namespaces
    for key, amounts in (*facts.labelled.items(), *facts.labelled_queued.items()):
        namespace, _, label = key.partition("/")
        if label == name:
            pods[namespace] += amounts[PODS]
    return pods


def _sides(spec: api.ElasticQuotaSpec) -> Iterator[tuple[str, api.ResourceList]]:
    yield "spec.min", spec.min or {}
    yield "spec.max", spec.max or {}


def _unreadable(spec: api.ElasticQuotaSpec) -> Iterator[str]:
    """Yield the amounts that are unreadable or negative."""
    for side, listed in _sides(spec):
        for name, text in sorted(listed.items()):
            try:
                if quantity_of(text).sign < 0:
                    yield f"`{side}` has less than none of `{name}`: `{text}`"
            except QuantityError as error:
                yield f"`{side}` has no amount of `{name}`: {error}"


def _misspelt(spec: api.ElasticQuotaSpec) -> Iterator[str]:
    """Yield the resources that no pod can request: they would silently limit nothing."""
    for side, listed in _sides(spec):
        for name in sorted(listed):
            plain = name.removeprefix("requests.")
            if plain != name and not hint_if_misspelt(plain):
                yield f"`{side}` cannot have a resource `{name}`: say `{plain}`"
            elif hint := hint_if_misspelt(name):
                yield f"`{side}` cannot have a resource `{name}`: {hint}"


def _min_over_max(quota: ElasticQuota, rules: QuotaRules) -> Iterator[str]:
    bounds = effective_max(quota, rules)
    for name, guaranteed in sorted((quota.min or {}).items()):
        if guaranteed > bounds.get(name, guaranteed):
            yield (
                f"`spec.min` guarantees {amount_text(name, guaranteed)} of `{name}`, of which"
                f" `spec.max` allows {amount_text(name, bounds[name])}"
            )


def _others(view: ClusterView, group: str, namespace: str, name: str) -> list[ElasticQuota]:
    """Return the quotas of a group, in all namespaces, without one."""
    return [
        quota
        for listed in view.namespaces.quotas.values()
        for quota in listed
        if quota.group == group and (quota.namespace, quota.name) != (namespace, name)
    ]


def _already_limited(quota: ElasticQuota, others: Iterable[ElasticQuota]) -> Iterator[str]:
    for other in others:
        if other.namespace == quota.namespace:
            yield f"namespace `{quota.namespace}` has an ElasticQuota already: `{other.name}`"


def _guaranteed_too_much(
    quota: ElasticQuota, others: Iterable[ElasticQuota], view: ClusterView
) -> Iterator[str]:
    """Yield the resources of which all quotas together guarantee more than the cluster has."""
    own: Mapping[str, int] = quota.min or {}
    total = sum_of([own, *(other.min or {} for other in others)])
    for name in sorted(own) if view.valid.any() else ():
        capacity = int(view.amount(view.allocatable, name)[view.valid].sum())
        if total[name] > capacity:
            yield (
                f"all ElasticQuotas guarantee {amount_text(name, total[name])} of `{name}`, the"
                f" cluster has {amount_text(name, capacity)}"
            )
