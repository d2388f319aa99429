"""Figures of a quota whose pods queue, for people: gauges, and annotations of the quota."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

import msgspec

from engine.model.elastic_quota import ElasticQuota
from engine.model.quantity import amount_text
from engine.model.quota_figures import (
    BLOCKED_BY_ANNOTATION,
    BORROWED_ANNOTATION,
    FREE_ANNOTATION,
    LENT_ANNOTATION,
    QUEUED_ANNOTATION,
    RUNTIME_ANNOTATION,
    SECONDS_PER_RELEASE_ANNOTATION,
    seconds_text,
)
from engine.model.resource_names import PODS
from engine.model.resources import Amounts
from engine.model.time import Micros
from engine.quota.bounds import excess
from engine.quota.queueing import QuotaWait
from engine.quota.rules import QuotaMode, QuotaRules, mode_of, used_by_namespace
from engine.quota.sharing import Sharing, sharing
from engine.quota.tree import QuotaPaths, bounds_in, usage_in
from engine.quota.usage import QuotaUsage, quota_usages
from engine.view import ClusterView

_MOST_RESOURCES: Final = 16  # of an annotation


@dataclass(frozen=True, slots=True, kw_only=True)
class QuotaFigures:
    """What a quota has, and what waits for it; base units.

    Attributes:
        usage: of its namespace.
        sharing: what it borrows and lends.
        queued: the number of pods that wait for it.
        runtime: what its pods may use now, where quotas form a tree; else nothing.
    """

    usage: QuotaUsage
    sharing: Sharing
    queued: int
    runtime: Amounts = field(default_factory=dict)

    def annotations(self, first: QuotaWait | None, interval: Micros | None) -> dict[str, str]:
        """Return them as annotations of the quota; what is nothing is left out.

        Args:
            first: why the first of its pods waits, None if nobody knows.
            interval: mean time between two releases, None if nobody knows.
        """
        amounts = {
            BORROWED_ANNOTATION: self.sharing.borrowed,
            LENT_ANNOTATION: self.sharing.lent,
            RUNTIME_ANNOTATION: self.runtime,
        }
        written = {name: _text(value) for name, value in amounts.items() if value}
        if not self.queued:
            return written
        written[QUEUED_ANNOTATION] = f"{self.queued}"
        if interval is not None:
            written[SECONDS_PER_RELEASE_ANNOTATION] = seconds_text(interval)
        if first is not None and first.lacks:
            # Two bounds may lack the same resource: the lower rest is what is left.
            free: dict[str, int] = {}
            for lack in first.lacks:
                free[lack.resource] = max(0, min(lack.free, free.get(lack.resource, lack.free)))
            written[FREE_ANNOTATION] = _text(free)
        if first is not None and first.blocked_by:
            names = [f"{namespace}/{name}" for (namespace, _, name), *_ in first.blocked_by]
            written[BLOCKED_BY_ANNOTATION] = ",".join(dict.fromkeys(names))
        return written


def quota_figures(
    view: ClusterView,
    rules: QuotaRules,
    default_mode: QuotaMode,
    *,
    capacity: Amounts | None = None,
) -> list[QuotaFigures]:
    """Return the figures of each quota in a namespace of mode Queue, sorted by namespace.

    Those of Koordinator's tree come last: their pods are in any namespace.

    Args:
        view: the cluster.
        rules: what counts.
        default_mode: of namespaces that name none.
        capacity: what the cohort has; None if that is the sum of `min`.
    """
    in_tree = _of_tree(view, rules, default_mode)
    keys = {each.usage.quota.key for each in in_tree}
    usages = [
        usage
        for usage in quota_usages(view, rules)
        if mode_of(view, usage.quota.namespace, default_mode) == "Queue"
        and usage.quota.key not in keys
    ]
    used, queued = used_by_namespace(view, rules.count_pods), view.namespaces.queued
    shared = sharing(
        [(usage.quota, used.get(usage.quota.namespace, {})) for usage in usages], capacity
    )
    return [
        *(
            QuotaFigures(
                usage=usage,
                sharing=each,
                queued=queued.get(usage.quota.namespace, {}).get(PODS, 0),
            )
            for usage, each in zip(usages, shared, strict=True)
        ),
        *in_tree,
    ]


def _of_tree(view: ClusterView, rules: QuotaRules, default_mode: QuotaMode) -> list[QuotaFigures]:
    """Return the figures of the quotas of Koordinator's tree, if any namespace is in mode Queue."""
    paths = QuotaPaths(rules)
    queues = "Queue" in {default_mode, *view.namespaces.quota_modes.values()}
    if not queues or not paths.may_have(view):
        return []
    tree = paths.tree(view)
    bounds, queued = bounds_in(view, tree), usage_in(view, tree).queued
    return [
        QuotaFigures(
            usage=QuotaUsage(quota=quota, used=bounds.used[quota.name], maximum=quota.max or {}),
            sharing=_sharing_in_tree(quota, bounds.used[quota.name], share.runtime),
            queued=queued.get(quota.name, {}).get(PODS, 0),
            runtime=share.runtime,
        )
        for quota in tree
        if (share := bounds.shares.get(quota.name)) is not None
    ]


def _sharing_in_tree(quota: ElasticQuota, used: Amounts, runtime: Amounts) -> Sharing:
    """Return what a quota uses beyond its `min`, and what of it its runtime leaves to others."""
    guaranteed = quota.min or {}
    lent = {name: least - runtime.get(name, least) for name, least in guaranteed.items()}
    limited = {name: used.get(name, 0) for name in quota.max or {}}
    return Sharing(
        excess(limited, guaranteed), {name: amount for name, amount in lent.items() if amount > 0}
    )


def _text(amounts: Amounts) -> str:
    names = sorted(amounts)[:_MOST_RESOURCES]
    return msgspec.json.encode({name: amount_text(name, amounts[name]) for name in names}).decode()
