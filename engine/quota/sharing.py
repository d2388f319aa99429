"""What quotas borrow beyond their `min`, and lend of it to others."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise

from engine.model.elastic_quota import ElasticQuota
from engine.model.resource_names import PODS
from engine.model.resources import Amounts


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
