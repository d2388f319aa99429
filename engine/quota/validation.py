"""Validation of an ElasticQuota before it is stored.

The CRDs check the syntax of quantities at most. Checked here is what scheduler-plugins
leaves to the administrator (KEP-9): min <= max, one quota for a namespace, the sum of min within
the cluster.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Final

from engine.errors import QuantityError
from engine.model import api
from engine.model.elastic_quota import (
    KOORDINATOR_GROUP,
    RECLAIM_ANNOTATION,
    REVOKE_ANNOTATION,
    SURGE_ANNOTATION,
    UPSTREAM_GROUP,
    ElasticQuota,
    ReclaimMode,
    quota_of,
)
from engine.model.koordinator_quota import namespaces_in
from engine.model.quantity import amount_text, quantity_of
from engine.model.resource_names import PODS
from engine.policy.resource_names import hint_if_misspelt
from engine.quota import koordinator_quotas
from engine.quota.bounds import effective_max, sum_of
from engine.quota.rules import QuotaRules
from engine.quota.tree import defaults
from engine.quota.tree.defaults import QuotaDefaults
from engine.quota.tree.topology import KnownQuotas
from engine.view import ClusterView

_ANNOTATION_VALUES: Final = {
    RECLAIM_ANNOTATION: tuple(ReclaimMode),
    REVOKE_ANNOTATION: tuple(ReclaimMode),
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
    problem = koordinator_quotas.check_deletion(name, others)
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
    return defaults.quota_defaults(wire, KnownQuotas(others))


def _check_koordinator_quota(
    wire: api.ElasticQuota, old: api.ElasticQuota | None, view: ClusterView
) -> Findings:
    others = _others(view, KOORDINATOR_GROUP, wire.metadata.namespace, wire.metadata.name)
    if old is None:
        problem = koordinator_quotas.check_creation(wire, others)
    else:
        has_pods = _has_pods(view, old)
        problem = koordinator_quotas.check_update(wire, old, others, has_pods=has_pods)
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
