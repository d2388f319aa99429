"""A ranking as weight tiers: which of the best candidates to prefer, and the weight of each.

Everything here is about positions in the ranking, never nodes. NodeAffinity gives a node the sum of
the weights of the terms it matches and rescales so that the best feasible node has 200 points of
the scheduler's total; only ratios between weights count. Three tiers weigh 3:2:1.

Where labels describe them, the tiers are thirds of the range of the scores. Nodes that are named
one by one cost the scheduler, so few are: see `named_tiers`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache
from typing import NamedTuple

import numpy as np

from engine.model.ranked_totals import RankedTotals
from engine.model.selectors import GREATEST_WEIGHT
from engine.view import IntColumn

MAX_TERMS = 3
"""The most preferred terms that we add: Karpenter tries them one by one."""

_FIRST_TIER = 4  # a quarter
_BELOW = 8
_DEALT = 32


class WeightTier(NamedTuple):
    """Positions `start` to `end` of what is preferred, each of which gets `weight`."""

    start: int
    end: int
    weight: int


def weight_budget(user_weights: int) -> int:
    """Return the sum of our terms on the best node: as much as the user's own, 100 without any.

    Equal sums blend: each side can move at most half of the 200 points. Three terms reach 300.

    Args:
        user_weights: the sum of the weights of the user's preferred terms.
    """
    return min(user_weights or GREATEST_WEIGHT, MAX_TERMS * GREATEST_WEIGHT)


def candidate_cuts(
    totals: RankedTotals, max_nodes: int, some_rejected: Callable[[], bool]
) -> Iterator[int]:
    """Yield how many of the best candidates could be preferred, the widest cut first.

    First all above the worst score, then those down to the score at which `max_nodes` is reached:
    whole score groups, which a label may describe. Candidates with the worst score are never
    preferred, unless all are equal and there are rejected nodes to prefer them to.

    Args:
        totals: scores.
        max_nodes: at least 1.
        some_rejected: whether a policy rejects nodes that the scheduler would accept; called only
            if all are equal.
    """
    if not totals.size:
        return
    above_worst = totals.count_from(totals.at(totals.size - 1) + 1)
    whole_groups = totals.count_from(totals.at(min(max_nodes, totals.size) - 1))
    if not above_worst and some_rejected():
        above_worst = totals.size  # all are equal
    if not above_worst:
        return
    yield above_worst
    if max_nodes <= whole_groups < above_worst:
        yield whole_groups


def score_tiers(totals: RankedTotals, cut: int, total_weight: int) -> list[WeightTier]:
    """Return at most three tiers over the first `cut` positions, best first: thirds of the scores.

    Args:
        totals: scores.
        cut: one of `candidate_cuts`, at least 1.
        total_weight: the sum of the weights at the best position, 1 to 300.
    """
    return _tiers(_thirds(totals, cut), total_weight)


class NamedPositions(NamedTuple):
    """Positions of nodes that are named.

    Attributes:
        positions: those to name, best first, then those that only pods which share the decision
            name, see `turns`.
        named: how many are the former.
    """

    positions: IntColumn
    named: int


@lru_cache(maxsize=256)
def named_positions(cut: int, names: int) -> NamedPositions:
    """Return the positions to name, of the best `cut`: the first ones, and a few below them.

    Those below are spread evenly. The samples that the scheduler takes in turn may be the same few
    parts of the cluster again and again; then the best nodes are soon all in one of them, and the
    others, too, need a node that is named.

    Args:
        cut: how far down the ranking nodes are named.
        names: so many of the best that the scheduler's sample has some of them.
    """
    first = min(names, cut)
    step = -(-(cut - first) // _BELOW) or 1
    named = [*range(first), *range(first, cut, step)]
    positions = np.array(list(dict.fromkeys([*named, *range(min(cut, _DEALT))])))
    positions.flags.writeable = False
    return NamedPositions(positions, len(named))


def named_tiers(totals: IntColumn, names: int, total_weight: int) -> list[WeightTier]:
    """Return at most three tiers over nodes that are named, best first.

    The first is a quarter of those of which the sample has some, the second the others of them, the
    third all below, but equal scores get the same weight.

    Args:
        totals: scores of the named nodes, best first; at least one.
        names: so many of the best that the scheduler's sample has some of them.
        total_weight: the sum of the weights at the best position, 1 to 300.
    """
    first = min(names, totals.size)
    lasts = (-(-first // _FIRST_TIER) - 1, first - 1)
    lowers = totals[::-1].searchsorted(totals.take(lasts)).tolist()
    best, good = [totals.size - lower for lower in lowers]
    return _tiers((best, good, totals.size), total_weight)


def _tiers(ends: tuple[int, int, int], total_weight: int) -> list[WeightTier]:
    """Return a tier up to each end, without those that are empty or get no weight.

    At a total weight of 100 the tiers are disjoint, so that each name is written once: 64 names of
    44 characters take 3.3 kB. A weight above the limit of one term is reached by nested tiers,
    whose weights add up, at twice the bytes in three even tiers and three times in one.
    """
    levels = [total_weight * (MAX_TERMS - k) // MAX_TERMS for k in range(MAX_TERMS)]
    if total_weight <= GREATEST_WEIGHT:
        starts = (0, *ends)
        return [
            WeightTier(start, end, level)
            for start, end, level in zip(starts, ends, levels, strict=False)
            if start < end and level
        ]
    return _nested(ends, levels)


def _nested(ends: Sequence[int], levels: Sequence[int]) -> list[WeightTier]:
    """Return tiers that all start at the top; each covers as much as fits the weight of a term."""
    nested: list[WeightTier] = []
    for end, level, below in zip(ends, levels, (*levels[1:], 0), strict=True):
        weight = level - below
        if nested and nested[-1].end == end and nested[-1].weight + weight <= GREATEST_WEIGHT:
            nested[-1] = WeightTier(0, end, nested[-1].weight + weight)
        else:
            nested.append(WeightTier(0, end, weight))
    return nested


def _thirds(totals: RankedTotals, cut: int) -> tuple[int, int, int]:
    """Return the end of each third of the scores, between the best and the best after `cut`."""
    best, floor = totals.at(0), totals.at(min(cut, totals.size - 1))
    # Rounded up: the first is two thirds above the floor, the second is one third.
    upper = totals.count_from(floor - 2 * (floor - best) // MAX_TERMS)
    middle = totals.count_from(floor - (floor - best) // MAX_TERMS)
    return min(upper, cut), min(middle, cut), cut
