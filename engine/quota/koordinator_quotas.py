"""Koordinator's rules for an ElasticQuota that is written, by itself and in its tree.

Messages are those of Koordinator's own webhook, word for word.

Source: koordinator, pkg/webhook/elasticquota/{quota_topology,quota_topology_check}.go.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from engine.errors import QuantityError
from engine.model import api
from engine.model.elastic_quota import ElasticQuota, quota_of
from engine.model.koordinator_quota import (
    BUILT_IN_QUOTAS,
    IS_PARENT_LABEL,
    NAMESPACES_ANNOTATION,
    PARENT_LABEL,
    ROOT_QUOTA,
    SHARED_WEIGHT_ANNOTATION,
    STRICT_KEYS_ANNOTATION,
    SYSTEM_QUOTA,
    TREE_ID_LABEL,
    AnnotationError,
    namespaces_in,
    resource_list_in,
    strings_in,
)
from engine.model.quantity import Quantity, quantity_of
from engine.quota.tree.topology import (
    DEFAULT_TOPOLOGY_RULES,
    KnownQuotas,
    TopologyRules,
    check_topology,
)

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
            return f"resourceKey {key} of quota {name} min :{least[key]} > max,{greatest[key]}"
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
    """Return why a quota may not be changed, "" if it may.

    Args:
        quota: as it will be stored.
        old: as it is stored.
        others: all but itself.
        has_pods: whether any pod is bound to it as it is stored.
        rules: upstream's feature gates.
    """
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


def check_deletion(name: str, others: Iterable[ElasticQuota] = (), pods: Sequence[str] = ()) -> str:
    """Return why a quota may not be deleted, "" if it may.

    Args:
        name: of the quota.
        others: all but itself.
        pods: names of those that its label ties to it; those of its namespaces do not matter.
    """
    if name in BUILT_IN_QUOTAS:
        return f"can not delete quotaGroup :{name}"
    if KnownQuotas(others).children_of(name):
        return f"delete quota failed, quota{name} has child quota"
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
