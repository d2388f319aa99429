from __future__ import annotations

from fractions import Fraction

from hypothesis import given
from hypothesis import strategies as st

from engine.model.quantity import INT64_MAX
from engine.quota.queueing import weighted_share

amounts = st.integers(1, INT64_MAX)
weights = st.integers(1, 1_000_000)


def test_the_share_is_the_greatest_ratio_of_what_is_borrowed_over_the_weight() -> None:
    # cpu (6 - 2) / 10, memory (9 - 0) / 90: 0.4 / 3
    used, capacity = {"cpu": 6, "memory": 9}, {"cpu": 10, "memory": 90}
    assert weighted_share(used, {}, {"cpu": 2}, capacity, 3) == (4 << 168) // (10 * 3)
    assert weighted_share(used, {}, {"cpu": 6, "memory": 9}, capacity, 3) == 0


def test_a_pod_to_be_admitted_counts_as_used() -> None:
    # of cpu 8 with the pod, 4 above min, of 10
    assert weighted_share({"cpu": 6}, {"cpu": 2}, {"cpu": 4}, {"cpu": 10}, 1) == (4 << 168) // 10


def test_what_the_cohort_has_none_of_does_not_count() -> None:
    assert weighted_share({"gpu": 5}, {}, {}, {"cpu": 4}, 1) == 0


@given(amounts, amounts, weights, amounts, amounts, weights)
def test_shares_compare_as_the_fractions_do(
    above: int, capacity: int, weight: int, other: int, other_capacity: int, other_weight: int
) -> None:
    first = weighted_share({"cpu": above}, {}, {}, {"cpu": capacity}, weight)
    second = weighted_share({"cpu": other}, {}, {}, {"cpu": other_capacity}, other_weight)
    exact = Fraction(above, capacity * weight), Fraction(other, other_capacity * other_weight)
    assert (first < second, first == second) == (exact[0] < exact[1], exact[0] == exact[1])
