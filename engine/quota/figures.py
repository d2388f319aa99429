"""Figures of a quota whose pods queue, for people: gauges, and annotations of the quota."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import accumulate, pairwise
from typing import Final

import msgspec

from engine.model.elastic_quota import (
    BLOCKED_BY_ANNOTATION,
    BORROWED_ANNOTATION,
    FREE_ANNOTATION,
    LENT_ANNOTATION,
    QUEUED_ANNOTATION,
    RUNTIME_FIGURE_ANNOTATION,
    SECONDS_PER_RELEASE_ANNOTATION,
    ElasticQuota,
    seconds_text,
)
from engine.model.quantity import PODS, amount_text
from engine.model.resources import Amounts
from engine.model.time import Micros
from engine.quota.bounds import (
    QuotaMode,
    QuotaRules,
    effective_max,
    excess,
    mode_of,
    quotas_of,
    sum_of,
    used_by_namespace,
)
from engine.quota.queueing import QuotaWait
from engine.quota.reservations import Reservations, decode, split_by_name
from engine.quota.tree import QuotaPaths, bounds_in, usage_in
from engine.quota.verdict import CountedPods, exceeded_clause
from engine.view import ClusterView


@dataclass(frozen=True, slots=True, kw_only=True)
class QuotaUsage:
    """Usage of one quota, of the resources that it limits alone; base units.

    Attributes:
        quota: the quota.
        used: by pods in the view.
        maximum: the greatest amounts.
    """

    quota: ElasticQuota
    used: Amounts
    maximum: Amounts

    @property
    def exceeded(self) -> tuple[str, ...]:
        """Resources of which pods use more than `max`, sorted."""
        return tuple(sorted(excess(self.used, self.maximum)))

    @property
    def clause(self) -> str:
        """The exceeded resources, in ResourceQuota's words."""
        return exceeded_clause(self.quota.name, self.exceeded, {}, self.used, self.maximum)


def quota_usages(view: ClusterView, rules: QuotaRules) -> Iterator[QuotaUsage]:
    """Yield the usage of each quota that limits the pods of a namespace, sorted by namespace."""
    counted = used_by_namespace(view, rules.count_pods)
    for namespace in sorted(view.namespaces.quotas):
        used = counted.get(namespace, {})
        for quota in quotas_of(view, namespace):
            maximum = effective_max(quota, rules)
            yield QuotaUsage(
                quota=quota,
                used={name: used.get(name, 0) for name in maximum},
                maximum=maximum,
            )


def reserved_amounts(quota: ElasticQuota, counted: CountedPods) -> dict[str, int]:
    """Return what is reserved on a quota beyond what a view counts, allowances included.

    Args:
        quota: in its newest version.
        counted: amounts that the view counts for the pod of a name in its namespace.
    """
    found = decode(quota.reservations, quota.uid) or Reservations()
    named, additive = split_by_name(found.by_key.values())
    beyond = (excess(amounts, counted(name)) for name, amounts in named.items())
    allowances = (allowance.amounts for allowance in found.allowances.values())
    return sum_of([*beyond, *additive, *allowances])


@dataclass(frozen=True, slots=True)
class Sharing:
    """What one quota borrows and lends, base units; amounts above zero alone.

    Attributes:
        borrowed: used beyond its `min`.
        lent: of its `min`, unused and taken by quotas that borrow.
    """

    borrowed: Amounts
    lent: Amounts


def sharing(
    usages: Sequence[tuple[ElasticQuota, Amounts]], capacity: Amounts | None = None
) -> list[Sharing]:
    """Return what each quota of a cohort borrows and lends, in the same order.

    Borrowers first take what no `min` guarantees, then unused `min`. Nobody can tell whose: each
    quota lends in proportion to what it leaves unused, in integers that add up exactly. The number
    of pods counts only where some `min` guarantees it.

    Args:
        usages: the quotas, and what the pods of each use.
        capacity: what the cohort has; None if that is the sum of `min`.
    """
    names = sorted({name for quota, _ in usages for name in _names(quota)})
    borrowed: list[dict[str, int]] = [{} for _ in usages]
    lent: list[dict[str, int]] = [{} for _ in usages]
    for name in names:
        guaranteed = [(quota.min or {}).get(name, 0) for quota, _ in usages]
        used = [amounts.get(name, 0) if name in _names(quota) else 0 for quota, amounts in usages]
        beyond = [max(0, u - least) for u, least in zip(used, guaranteed, strict=True)]
        unused = [max(0, least - u) for u, least in zip(used, guaranteed, strict=True)]
        spare = 0 if capacity is None else max(0, capacity.get(name, 0) - sum(guaranteed))
        taken = min(sum(unused), max(0, sum(beyond) - spare))
        _note(borrowed, name, beyond)
        _note(lent, name, _in_proportion(taken, unused))
    return [Sharing(*each) for each in zip(borrowed, lent, strict=True)]


def _names(quota: ElasticQuota) -> set[str]:
    """Return the resources that a quota speaks of, without the number of pods as mere limit."""
    guaranteed = set(quota.min or {})
    return guaranteed | (set(quota.max or {}) - {PODS})


def _in_proportion(total: int, weights: Sequence[int]) -> list[int]:
    """Return a total in integer parts, in proportion to weights that it is not above."""
    whole = sum(weights)
    if not whole:
        return [0] * len(weights)
    bounds = [total * until // whole for until in accumulate(weights, initial=0)]
    return [end - start for start, end in pairwise(bounds)]


def _note(amounts: Sequence[dict[str, int]], name: str, values: Iterable[int]) -> None:
    for each, value in zip(amounts, values, strict=True):
        if value:
            each[name] = value


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
            RUNTIME_FIGURE_ANNOTATION: self.runtime,
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
