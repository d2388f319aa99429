"""A ranking as steps: which of the best candidates to name, and how much to add to each of them.

Everything here speaks of positions in the ranking, never of nodes. NodeAffinity gives a node the
sum of the weights of the terms it matches and rescales so that the best feasible node has 200
points of the scheduler's total; only ratios between weights count. So the scores are stretched over
the candidates that are named, cut into thirds, and the thirds weigh 3:2:1.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

from engine.model.selectors import GREATEST_WEIGHT
from engine.view import IntColumn

MAX_TERMS = 3
"""The most preferred terms of ours: Karpenter tries them one by one."""


class WeightTier(NamedTuple):
    """Positions `start` to `end` of the ranking, each of which gets `weight`."""

    start: int
    end: int
    weight: int


def weight_budget(user_weights: int) -> int:
    """Return what our terms add up to on the best node: as much as the user's own, or 100.

    Equal sums blend: each side can move at most half of the 200 points. Three terms end at 300.

    Args:
        user_weights: the sum of the weights of the user's preferred terms.
    """
    return min(max(GREATEST_WEIGHT, user_weights), MAX_TERMS * GREATEST_WEIGHT)


def candidate_cuts(
    totals: IntColumn, max_nodes: int, some_rejected: Callable[[], bool]
) -> Iterator[int]:
    """Yield how many of the best candidates could be named, the widest choice first.

    First all that are worth preferring, then those down to the score at which `max_nodes` is
    reached, then `max_nodes`. The first two may be too many to name one by one, but are whole
    score groups, which a label may describe. Candidates at the bottom are what is not advised, so
    they are never named, unless all are equal and the rejected nodes are what is not advised.

    Args:
        totals: scores, best first.
        max_nodes: at least 1.
        some_rejected: tells whether a policy turned away nodes that the scheduler would take;
            asked only if all are equal.
    """
    if not totals.size:
        return
    worst = int(totals[-1])
    last_named = int(totals[min(max_nodes, totals.size) - 1])
    worth, whole_groups = _counts_from(totals, worst + 1, last_named)
    if not worth and some_rejected():
        worth = totals.size  # none is above the worst: all are equal
    if not worth:
        return
    yield worth
    if worth <= max_nodes:
        return
    if whole_groups < worth:
        yield whole_groups
    if whole_groups > max_nodes:
        yield max_nodes


def steps(totals: IntColumn, listed: int, total_weight: int) -> list[WeightTier]:
    """Return at most three steps over the first `listed` positions, best first.

    At a total weight of 100 the steps are disjoint, so that each name is written once: 64 names of
    44 characters take 3.3 kB. More than one term may weigh is reached by nested steps, whose
    weights add up, at twice the bytes in three even tiers and three times in one.

    Args:
        totals: scores, best first.
        listed: one of `listings`, at least 1.
        total_weight: what the best position gets in all, 100 to 300.
    """
    ends = _thirds(totals, listed)
    levels = [total_weight * (MAX_TERMS - k) // MAX_TERMS for k in range(MAX_TERMS)]
    if total_weight <= GREATEST_WEIGHT:
        starts = (0, *ends)
        return [
            WeightTier(start, end, level)
            for start, end, level in zip(starts, ends, levels, strict=False)
            if start < end
        ]
    return _nested(ends, levels)


def _nested(ends: Sequence[int], levels: Sequence[int]) -> list[WeightTier]:
    """Return steps that all start at the top; one covers as much as fits the weight of a term."""
    nested: list[WeightTier] = []
    for end, level, below in zip(ends, levels, (*levels[1:], 0), strict=True):
        weight = level - below
        if nested and nested[-1].end == end and nested[-1].weight + weight <= GREATEST_WEIGHT:
            nested[-1] = WeightTier(0, end, nested[-1].weight + weight)
        else:
            nested.append(WeightTier(0, end, weight))
    return nested


def _thirds(totals: IntColumn, listed: int) -> tuple[int, int, int]:
    """Return where each third of the scores ends, between the best and the best not listed."""
    best = int(totals[0])
    floor = int(totals[min(listed, totals.size - 1)])
    # Rounded up: the first is two thirds above the floor, the second one.
    upper, middle = _counts_from(
        totals, floor - 2 * (floor - best) // MAX_TERMS, floor - (floor - best) // MAX_TERMS
    )
    return min(upper, listed), min(middle, listed), listed


def _counts_from(totals: IntColumn, *scores: int) -> list[int]:
    """Return how many totals are at least each of some scores, all looked up at once."""
    return [totals.size - lower for lower in totals[::-1].searchsorted(scores).tolist()]
