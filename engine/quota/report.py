"""The figures of a quota: the report on it, and `status.used` of the object.

Source of `Running`: scheduler-plugins, pkg/controllers/elasticquota_controller.go.
"""

from __future__ import annotations

from typing import Literal, TypeAlias

import msgspec

from engine.model.elastic_quota import ElasticQuota
from engine.model.resource_names import PODS
from engine.model.resources import Amounts
from engine.quota.bounds import effective_max, sum_of
from engine.quota.reservations import Reservations, decode
from engine.quota.rules import PodAccounting, QuotaMode, QuotaRules, mode_of, used_by_namespace
from engine.view import ClusterView

StatusCounts: TypeAlias = Literal["Running"] | PodAccounting
"""Pods that `status.used` adds up."""


class ResourceReport(msgspec.Struct, frozen=True, kw_only=True):
    """One resource of a quota, base units.

    Attributes:
        used: by the pods of the namespace that count.
        reserved: for admitted pods and in allowances, on the object. A reservation stays for some
            seconds after its pod is counted in `used`, so the two may overlap.
        max: None where the resource is unlimited.
        min: guaranteed, 0 where nothing is.
    """

    used: int
    reserved: int
    max: int | None
    min: int


class QuotaReport(msgspec.Struct, frozen=True, kw_only=True):
    """A quota, its usage and its reservations.

    Attributes:
        namespace: of the object.
        name: of the object.
        group: its API group.
        mode: effect of an exceeded quota in the namespace.
        resources: those that `min` or `max` bounds, sorted by name.
    """

    namespace: str
    name: str
    group: str
    mode: QuotaMode
    resources: dict[str, ResourceReport]


def quota_report(
    quota: ElasticQuota, view: ClusterView, rules: QuotaRules, default_mode: QuotaMode
) -> QuotaReport:
    """Return the report on a quota of a view.

    Args:
        quota: of the view.
        view: the cluster.
        rules: by which the quota is enforced.
        default_mode: of namespaces that name none.
    """
    bounds, guaranteed = effective_max(quota, rules), quota.min or {}
    used = used_by_namespace(view, rules.count_pods).get(quota.namespace, {})
    listed = decode(quota.reservations, quota.uid) or Reservations()
    reserved = sum_of(
        [
            *(reservation.amounts for reservation in listed.by_key.values()),
            *(allowance.amounts for allowance in listed.allowances.values()),
        ]
    )
    return QuotaReport(
        namespace=quota.namespace,
        name=quota.name,
        group=quota.group,
        mode=mode_of(view, quota.namespace, default_mode),
        resources={
            name: ResourceReport(
                used=used.get(name, 0),
                reserved=reserved.get(name, 0),
                max=bounds.get(name),
                min=guaranteed.get(name, 0),
            )
            for name in sorted({*bounds, *guaranteed})
        },
    )


def status_used(quota: ElasticQuota, view: ClusterView, count: StatusCounts) -> Amounts:
    """Return the usage of a quota's namespace for `status.used`, base units.

    Names in `min` and `max` are always there. `Running` is upstream's rule to the letter: pods that
    run, without their overhead; the number of pods is not counted, so that it stays 0 even where
    `max` names it.
    """
    used = dict.fromkeys((*(quota.min or {}), *(quota.max or {})), 0)
    if count == "Running":
        counted = view.namespaces.running.get(quota.namespace, {})
        held = {name: amount for name, amount in counted.items() if amount and name != PODS}
    else:
        counted = used_by_namespace(view, count).get(quota.namespace, {})
        unlisted = {PODS} - used.keys()
        held = {name: n for name, n in counted.items() if n and name not in unlisted}
    return {**used, **held}
