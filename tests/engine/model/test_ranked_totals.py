from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from engine.model.ranked_totals import RankedTotals

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
