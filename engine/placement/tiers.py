"""A ranking as steps: which of the best candidates to name, and how much to add to each of them.

Everything here speaks of positions in the ranking, never of nodes. NodeAffinity gives a node the
sum of the weights of the terms it matches and rescales so that the best feasible node has 200
points of the scheduler's total; only ratios between weights count. So the scores are stretched over
the candidates that are named, cut into thirds, and the thirds weigh 3:2:1.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from engine.model.selectors import GREATEST_WEIGHT
from engine.view import IntColumn

MAX_TERMS = 3
"""The most preferred terms of ours: Karpenter tries them one by one."""


@dataclass(frozen=True, slots=True)
class Step:
    """Positions `start` to `end` of the ranking, each of which gets `weight`."""

    start: int
    end: int
    weight: int


def reach(user_weights: int) -> int:
    """Return what our terms add up to on the best node: as much as the user's own, or 100.

    Equal sums blend: each side can move at most half of the 200 points. Three terms end at 300.

    Args:
        user_weights: the sum of the weights of the user's preferred terms.
    """
    return min(max(GREATEST_WEIGHT, user_weights), MAX_TERMS * GREATEST_WEIGHT)


def listings(totals: IntColumn, max_nodes: int, *, some_rejected: bool) -> Iterator[int]:
    """Yield how many of the best candidates could be named, the widest choice first.

    First all that are worth preferring, then those down to the score at which `max_nodes` is
    reached, then `max_nodes`. The first two may be too many to name one by one, but are whole
    score groups, which a label may describe. Candidates at the bottom are what is not advised, so
    they are never named, unless all are equal and the rejected nodes are what is not advised.

    Args:
        totals: scores, best first.
        max_nodes: at least 1.
        some_rejected: whether a policy turned away nodes that the scheduler would take.
    """
    if not totals.size:
        return
    best, worst = int(totals[0]), int(totals[-1])
    if best == worst:
        worth = totals.size if some_rejected else 0
    else:
        worth = _count_from(totals, worst + 1)
    if not worth:
        return
    yield worth
    if worth <= max_nodes:
        return
    whole_groups = _count_from(totals, int(totals[max_nodes - 1]))
    if whole_groups < worth:
        yield whole_groups
    if whole_groups > max_nodes:
        yield max_nodes


def steps(totals: IntColumn, listed: int, total_weight: int) -> list[Step]:
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
            Step(start, end, level)
            for start, end, level in zip(starts, ends, levels, strict=False)
            if start < end
        ]
    return _nested(ends, levels)


def named(chosen: Sequence[Step]) -> int:
    """Return how many different positions the steps cover; they must be in order of their ends."""
    count = covered = 0
    for step in chosen:
        count += step.end - max(step.start, covered)
        covered = step.end
    return count


def _nested(ends: Sequence[int], levels: Sequence[int]) -> list[Step]:
    """Return steps that all start at the top; one covers as much as fits the weight of a term."""
    nested: list[Step] = []
    for end, level, below in zip(ends, levels, (*levels[1:], 0), strict=True):
        weight = level - below
        if nested and nested[-1].end == end and nested[-1].weight + weight <= GREATEST_WEIGHT:
            nested[-1] = Step(0, end, nested[-1].weight + weight)
        else:
            nested.append(Step(0, end, weight))
    return nested


def _thirds(totals: IntColumn, listed: int) -> tuple[int, int, int]:
    """Return where each third of the scores ends, between the best and the best not listed."""
    best = int(totals[0])
    floor = int(totals[min(listed, totals.size - 1)])
    inside = totals[:listed]
    upper, middle = (
        _count_from(inside, floor - (-k * (best - floor) // MAX_TERMS))  # rounded up
        for k in (2, 1)
    )
    return upper, middle, listed


def _count_from(totals: IntColumn, score: int) -> int:
    """Return how many totals are at least `score`."""
    return totals.size - int(totals[::-1].searchsorted(score))
