from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.model.ranking import RankedTotals, Ranking

# Many candidates of few totals are counted, few of totals far apart are sorted.
TOTALS = st.one_of(
    [st.lists(st.integers(0, most), min_size=1, max_size=60) for most in (0, 3, 100, 2**40)]
)


@given(totals=TOTALS)
def test_each_place_has_the_total_that_stands_there_once_all_are_sorted(totals: list[int]) -> None:
    ranked = RankedTotals(np.array(totals))
    assert [ranked.at(place) for place in range(ranked.size)] == sorted(totals, reverse=True)


@given(totals=TOTALS, data=st.data())
def test_as_many_are_counted_from_a_score_as_are_at_least_that(
    totals: list[int], data: st.DataObject
) -> None:
    score = data.draw(st.sampled_from(totals)) + data.draw(st.integers(-300, 300))
    expected = sum(total >= score for total in totals)
    assert RankedTotals(np.array(totals)).count_from(score) == expected


def test_of_nothing_none_is_counted() -> None:
    nothing = RankedTotals(np.zeros(0, np.int64))
    assert (nothing.size, nothing.count_from(0)) == (0, 0)


FEW_TOTALS = st.integers(0, 3)
ALL_TOTALS = st.integers(0, 700) | st.integers(0, 2**40)
CANDIDATES = st.one_of(
    [
        st.lists(st.tuples(totals, st.integers(0, 2**64 - 1)), max_size=200)
        for totals in (FEW_TOTALS, ALL_TOTALS)
    ]
)


def ranking_of(candidates: list[tuple[int, int]]) -> Ranking:
    rows = 3 * np.arange(len(candidates))
    totals = np.array([total for total, _ in candidates], np.int64)
    ties = np.array([tie for _, tie in candidates], np.uint64)
    return Ranking(rows, totals, lambda some: ties[some // 3])


@settings(max_examples=300)
@given(candidates=CANDIDATES)
def test_candidates_are_in_order_of_totals_then_of_what_breaks_ties(
    candidates: list[tuple[int, int]],
) -> None:
    ranking = ranking_of(candidates)
    # A tie-breaker counts by the bits between the difference to the best total and the position.
    size = len(candidates).bit_length()
    end = 64 - max(1, max((total for total, _ in candidates), default=0).bit_length())
    expected = sorted(
        range(len(candidates)),
        key=lambda at: (-candidates[at][0], candidates[at][1] % 2**end >> size, at),
    )
    assert ranking.order.tolist() == expected
    assert ranking.totals.tolist() == [candidates[at][0] for at in expected]


@settings(max_examples=300)
@given(candidates=CANDIDATES, most=st.integers(0, 90))
def test_the_best_are_the_first_of_all(candidates: list[tuple[int, int]], most: int) -> None:
    best = ranking_of(candidates).best(most)
    assert best.tolist() == ranking_of(candidates).order[:most].tolist()


@settings(max_examples=300)
@given(candidates=CANDIDATES, data=st.data())
def test_a_part_is_the_rows_at_its_places(
    candidates: list[tuple[int, int]], data: st.DataObject
) -> None:
    ranking = ranking_of(candidates)
    in_order = ranking_of(candidates).totals.tolist()
    ends = [0, *(i for i in range(1, len(in_order)) if in_order[i - 1] != in_order[i])]
    start = data.draw(st.sampled_from(ends))
    end = data.draw(st.sampled_from([*(at for at in ends if at > start), len(in_order)]))
    if candidates:
        expected = ranking_of(candidates).order[start:end]
        assert ranking.part(start, end).tolist() == sorted(3 * expected)


def test_totals_that_are_far_apart_are_sorted_all_the_same() -> None:
    totals = [*range(2**40, 2**40 + 100)]
    ranking = Ranking(np.arange(100), np.array(totals))
    assert ranking.totals.tolist() == sorted(totals, reverse=True)
    assert ranking.best(3).tolist() == [99, 98, 97]
    assert ranking.part(1, 3).tolist() == [97, 98]


@pytest.mark.parametrize("most", [0, 1, None])
def test_a_ranking_of_nothing_has_no_best(most: int | None) -> None:
    assert Ranking().best(most).size == 0
    assert (len(Ranking()), Ranking().totals.size) == (0, 0)
