from __future__ import annotations

from fractions import Fraction

from hypothesis import given
from hypothesis import strategies as st

from engine.model.quantity import INT64_MAX
from engine.quota.queueing import borrowed, share_per_mille, weighted_share

amounts = st.integers(1, INT64_MAX)
weights = st.integers(1, 1_000_000)


def test_the_share_is_the_greatest_ratio_of_what_is_borrowed_over_the_weight() -> None:
    # cpu (6 - 2) / 10, memory (9 - 0) / 90: 0.4 / 3 = 133.3 thousandths, rounded up as in Kueue
    used, capacity = {"cpu": 6, "memory": 9}, {"cpu": 10, "memory": 90}
    assert share_per_mille(used, {"cpu": 2}, capacity, 3) == (134, "cpu")
    assert share_per_mille(used, {"cpu": 6, "memory": 9}, capacity, 3) == (0, "")


def test_of_equal_ratios_the_first_name_is_dominant() -> None:
    assert share_per_mille({"b": 1, "a": 2}, {}, {"a": 4, "b": 2}, 1) == (500, "a")


def test_what_the_cohort_has_none_of_does_not_count() -> None:
    assert share_per_mille({"gpu": 5, "cpu": 1}, {}, {"cpu": 4, "gpu": 0}, 1) == (250, "cpu")
    assert weighted_share({"gpu": 5}, {}, {}, {"cpu": 4}, 1) == 0


def test_of_what_min_does_not_name_all_is_borrowed() -> None:
    assert borrowed({"cpu": 3, "memory": 7, "pods": 0}, {"cpu": 4}) == {"memory": 7}


@given(amounts, amounts, weights, amounts, amounts, weights)
def test_shares_compare_as_the_fractions_do(
    above: int, capacity: int, weight: int, other: int, other_capacity: int, other_weight: int
) -> None:
    first = weighted_share({"cpu": above}, {}, {}, {"cpu": capacity}, weight)
    second = weighted_share({"cpu": other}, {}, {}, {"cpu": other_capacity}, other_weight)
    exact = Fraction(above, capacity * weight), Fraction(other, other_capacity * other_weight)
    assert (first < second, first == second) == (exact[0] < exact[1], exact[0] == exact[1])
