"""`status.used` of an ElasticQuota.

Source of `Running`: scheduler-plugins, pkg/controllers/elasticquota_controller.go.
"""

from __future__ import annotations

from typing import Literal, TypeAlias

from engine.model.elastic_quota import ElasticQuota
from engine.model.resource_names import PODS
from engine.model.resources import Amounts
from engine.quota.rules import PodAccounting, used_by_namespace
from engine.view import ClusterView

StatusCounts: TypeAlias = Literal["Running"] | PodAccounting
"""Pods that `status.used` adds up."""


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
