from __future__ import annotations

from fractions import Fraction

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from engine.plugins.lib.balance import Balance


def _points(used: list[int], capacity: list[int], own: int, among: list[bool]) -> list[int]:
    balance = Balance.of(np.array([capacity]), np.ones((1, 1)), np.array(among))
    points: list[int] = balance.levels(np.array([used])).points(np.array([[own]])).tolist()
    return points


def test_the_same_distance_from_the_mean_counts_more_on_a_small_node() -> None:
    # x = 0.2, 0.6, 0.2, so m = 1/3; the pod is 1/5, 1/10 and 1/20 of them, at most 1/5.
    # small: 50 - 50 * (2 * (1/5 - 1/3) + 1/5)          = 50 - 50 * -1/15        = 53.3
    # full:  50 - 50 * (2 * (3/5 - 1/3) + 1/10) * 1/2   = 50 - 50 * 19/30 * 1/2  = 34.1
    # large: 50 - 50 * (2 * (1/5 - 1/3) + 1/20) * 1/4   = 50 - 50 * -13/60 * 1/4 = 52.7
    assert _points([2, 12, 8], [10, 20, 40], 2, [True] * 3) == [53, 34, 52]


def test_nodes_that_a_pod_may_not_take_do_not_sway_the_mean() -> None:
    # Of the first two m = 0.4: 50 - 50 * (2 * -0.2 + 0.1) = 65 and 50 - 50 * (2 * 0.2 + 0.1) = 25.
    assert _points([2, 6, 10], [10, 10, 10], 1, [True, True, False])[:2] == [65, 25]


def test_a_resource_that_a_node_lacks_takes_no_part_there() -> None:
    both = np.ones(2, np.bool_)
    balance = Balance.of(np.array([[10, 10], [4, 0]]), np.array([[1.0], [3.0]]), both)
    # cpu: 65 and 25 as above. gpu is on the first alone: m = 1/4, 50 - 50 * 1/4 = 37.5, and the
    # mean there is (65 + 3 * 37.5) / 4 = 44.4.
    points = balance.levels(np.array([[2, 6], [1, 0]])).points(np.array([[1], [1]]))
    assert points.tolist() == [44, 25]


def test_without_any_resource_all_nodes_have_nothing() -> None:
    assert _points([1, 2], [0, 0], 1, [True, True]) == [0, 0]


_NODES = st.lists(
    st.tuples(st.integers(0, 2**40), st.integers(1, 2**40), st.booleans()), min_size=1, max_size=8
)


@given(nodes=_NODES, own=st.integers(0, 2**40))
def test_points_are_the_change_of_variance(nodes: list[tuple[int, int, bool]], own: int) -> None:
    used, capacity = [used for used, _, _ in nodes], [size for _, size, _ in nodes]
    among = [allowed for _, _, allowed in nodes]
    points = _points(used, capacity, own, among)
    competing = [at for at, allowed in enumerate(among) if allowed]
    for at in competing:
        mean = sum(Fraction(used[i], capacity[i]) for i in competing) / len(competing)
        share, level = Fraction(own, capacity[at]), Fraction(used[at], capacity[at])
        change = share * (2 * (level - mean) + share)
        greatest = Fraction(own, min(capacity[i] for i in competing))
        exact = 50 - 50 * change / greatest if own else None
        if exact is not None:
            assert abs(points[at] - min(max(exact, 0), 100)) <= 1
