from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.model.ranked_totals import RankedTotals
from engine.placement.weight_tiers import (
    WeightTier,
    candidate_cuts,
    named_positions,
    named_tiers,
    score_tiers,
    weight_budget,
)
from engine.view import IntColumn

TOTALS = st.lists(st.integers(0, 50) | st.integers(0, 2000), min_size=1, max_size=40)


def in_order(*totals: int) -> IntColumn:
    return np.array(sorted(totals, reverse=True), np.int64)


def ranking(*totals: int) -> RankedTotals:
    return RankedTotals(np.array(totals, np.int64))


@pytest.mark.parametrize(
    ("user_weights", "ours"), [(0, 100), (1, 1), (100, 100), (150, 150), (300, 300), (5000, 300)]
)
def test_we_say_as_much_as_the_user_within_what_three_terms_can_say(
    user_weights: int, ours: int
) -> None:
    assert weight_budget(user_weights) == ours


def test_the_bottom_of_the_ranking_is_what_is_not_advised() -> None:
    assert list(candidate_cuts(ranking(9, 5, 1, 1), 64, lambda: False)) == [2]


def test_equal_nodes_are_all_or_none_preferred_by_whether_others_were_rejected() -> None:
    equal = ranking(7, 7, 7)
    assert list(candidate_cuts(equal, 64, lambda: False)) == []
    assert list(candidate_cuts(equal, 64, lambda: True)) == [3]


def test_no_candidate_is_nothing_to_prefer() -> None:
    assert list(candidate_cuts(ranking(), 64, lambda: True)) == []


def test_whole_score_groups_are_tried_before_a_group_is_cut() -> None:
    # All above the bottom: 6. The second best is a 9 like the two after it: 4.
    assert list(candidate_cuts(ranking(10, 9, 9, 9, 5, 4, 1), 2, lambda: False)) == [6, 4]


def test_a_cut_between_score_groups_is_tried_too() -> None:
    assert list(candidate_cuts(ranking(10, 9, 5, 4, 1), 2, lambda: False)) == [4, 2]


def test_thirds_of_the_score_range_weigh_three_two_one() -> None:
    # Between 0, the best that is not listed, and 90: from 60 the upper third, from 30 the middle.
    totals = ranking(90, 60, 59, 30, 29, 0)
    assert score_tiers(totals, 5, 100) == [
        WeightTier(0, 2, 100),
        WeightTier(2, 4, 66),
        WeightTier(4, 5, 33),
    ]


def test_an_empty_third_vanishes_and_the_others_keep_their_distance() -> None:
    assert score_tiers(ranking(90, 10, 0), 2, 100) == [WeightTier(0, 1, 100), WeightTier(1, 2, 33)]


def test_scores_bunched_at_the_top_are_stretched_down_to_the_best_that_is_not_listed() -> None:
    # Listed 100..97 over 97, not over 0: thirds from 99 and 98.
    totals = ranking(100, 99, 98, 97, 97, 0)
    assert score_tiers(totals, 4, 100) == [
        WeightTier(0, 2, 100),
        WeightTier(2, 3, 66),
        WeightTier(3, 4, 33),
    ]


def test_equal_scores_are_one_tier() -> None:
    assert score_tiers(ranking(5, 5, 5), 2, 100) == [WeightTier(0, 2, 100)]


def test_more_than_a_term_may_weigh_is_reached_by_nested_tiers() -> None:
    # 200: the levels are 200, 133, 66, so the steps add 67, 67 and 66.
    totals = ranking(90, 40, 10, 0)
    assert score_tiers(totals, 3, 200) == [
        WeightTier(0, 1, 67),
        WeightTier(0, 2, 67),
        WeightTier(0, 3, 66),
    ]


def test_nested_tiers_over_the_same_nodes_are_one_while_a_term_can_weigh_it() -> None:
    # 120: 40 each; two of them make 80, three would make 120.
    assert score_tiers(ranking(90, 0), 1, 120) == [WeightTier(0, 1, 80), WeightTier(0, 1, 40)]
    assert score_tiers(ranking(90, 0), 1, 300) == [WeightTier(0, 1, 100)] * 3


@given(scores=TOTALS, max_nodes=st.integers(1, 40), some_rejected=st.booleans())
def test_each_cut_is_narrower_and_between_two_scores(
    *, scores: list[int], max_nodes: int, some_rejected: bool
) -> None:
    totals = ranking(*scores)
    widths = list(candidate_cuts(totals, max_nodes, lambda: some_rejected))
    assert widths == sorted(set(widths), reverse=True)
    assert all(1 <= width <= len(scores) for width in widths)
    assert all(totals.at(width - 1) > totals.at(width) for width in widths if width < totals.size)


def named(cut: int, names: int) -> list[int]:
    positions, count = named_positions(cut, names)
    return [*map(int, positions[:count])]


def test_the_best_are_named_and_some_below_them_down_to_the_cut() -> None:
    # Of 64: 10, and every 7th of the 54 below them, for that makes 8.
    below = [10, 17, 24, 31, 38, 45, 52, 59]
    assert named(64, 10) == [*range(10), *below]
    assert named(12, 10) == [*range(12)]
    assert named(6, 10) == [*range(6)]


def test_pods_that_share_a_decision_name_the_best_32() -> None:
    positions, count = named_positions(64, 10)
    assert positions[count:].tolist() == [n for n in range(32) if n not in named(64, 10)]
    assert named_positions(64, 64).positions.tolist() == [*range(64)]


@given(cut=st.integers(1, 256), names=st.integers(1, 64))
def test_the_best_node_is_named_and_none_twice_or_beyond_the_cut(*, cut: int, names: int) -> None:
    chosen = named(cut, names)
    assert chosen[0] == 0
    assert chosen == sorted(set(chosen))
    assert chosen[-1] < cut
    assert len(chosen) <= names + 8


def test_a_quarter_of_the_names_is_the_first_tier_and_those_below_are_the_last() -> None:
    totals = in_order(*range(90, 100), 50, 40)
    assert named_tiers(totals, 10, 100) == [
        WeightTier(0, 3, 100),
        WeightTier(3, 10, 66),
        WeightTier(10, 12, 33),
    ]


def test_names_with_equal_scores_are_in_one_tier() -> None:
    # 9 is the score of the second, and so of the first tier; 5 that of the fifth, and so of all.
    assert named_tiers(in_order(9, 9, 9, 5, 5, 5, 5), 5, 100) == [
        WeightTier(0, 3, 100),
        WeightTier(3, 7, 66),
    ]


@given(TOTALS, st.data(), st.integers(100, 300))
def test_a_better_named_node_never_gets_less(
    scores: list[int], data: st.DataObject, total_weight: int
) -> None:
    names = data.draw(st.integers(1, 64))
    totals = in_order(*scores)[named(len(scores), names)]
    gained = _gained(named_tiers(totals, names, total_weight), totals.size)
    assert gained[0] == total_weight
    assert gained == sorted(gained, reverse=True)
    assert len(set(zip(totals.tolist(), gained, strict=True))) == len(set(totals.tolist()))


@given(TOTALS, st.data(), st.integers(100, 300))
def test_a_better_score_never_gets_less_and_equal_scores_get_the_same(
    scores: list[int], data: st.DataObject, total_weight: int
) -> None:
    totals = ranking(*scores)
    listed = data.draw(st.integers(1, len(scores)))
    chosen = score_tiers(totals, listed, total_weight)
    gained = _gained(chosen, listed)
    assert len(chosen) <= 3
    assert gained[0] == total_weight
    assert gained == sorted(gained, reverse=True)
    best = in_order(*scores)[:listed].tolist()
    assert len(set(zip(best, gained, strict=True))) == len(set(best))


def _gained(tiers: list[WeightTier], positions: int) -> list[int]:
    return [
        sum(tier.weight for tier in tiers if tier.start <= position < tier.end)
        for position in range(positions)
    ]
