from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.simulation.figures import least_spread

_NODES = st.lists(
    st.tuples(st.integers(1, 64), st.floats(0, 90), st.floats(0, 50)), min_size=1, max_size=8
)


@pytest.mark.parametrize(
    ("levels", "fixed", "sizes", "least"),
    [
        # Nothing stays: all nodes can be at 30 %.
        ([60, 0], [0, 0], [1, 1], 0.0),
        ([60, 0], [0, 0], [8, 16], 0.0),
        # 40 % of one stay, and 20 % are to be placed on two of one size: 40 and 20.
        ([60, 0], [40, 0], [1, 1], 10.0),
        # All of one stays: nothing can be better.
        ([60, 20], [60, 0], [1, 1], 20.0),
        # One stays at 60; x + 2 y = 60 of the others, whose sizes are 1 and 2. The sum of squares
        # 60^2 + x^2 + y^2 - (60 + x + y)^2 / 3 with x = 60 - 2 y has the derivative
        # -4 x + 2 y + 2 / 3 (60 + x + y) = 28 / 3 y - 160: y = 120 / 7, x = 180 / 7.
        ([60, 60, 0], [60, 0, 0], [1, 1, 2], np.std([60, 180 / 7, 120 / 7])),
        # A node of no size keeps its level: 0 and 30, and 30.
        ([0, 60, 0], [0, 0, 0], [0, 1, 1], 14.142135),
        ([0, 20], [0, 20], [0, 0], 10.0),
    ],
)
def test_the_least_spread(
    levels: list[float], fixed: list[float], sizes: list[float], least: float
) -> None:
    found = least_spread(*(np.array(each, float) for each in (levels, fixed, sizes)))
    assert found == pytest.approx(least, abs=1e-5)


def test_nothing_is_known_where_something_fixed_has_gone() -> None:
    assert least_spread(np.array([10.0]), np.array([20.0]), np.array([1.0])) is None
    assert least_spread(np.zeros(0), np.zeros(0), np.zeros(0)) is None


@given(_NODES, st.integers(0, 2**32))
def test_no_placement_of_the_same_amounts_is_more_even(
    nodes: list[tuple[int, float, float]], seed: int
) -> None:
    sizes, fixed, more = (np.array(each, float) for each in zip(*nodes, strict=True))
    levels = fixed + more
    found = least_spread(levels, fixed, sizes)
    assert found is not None
    assert found <= levels.std() + 1e-6
    amount = float(sizes @ more)
    random = np.random.default_rng(seed)
    for _ in range(20):
        shares = random.dirichlet(np.full(len(nodes), 0.7))
        other = fixed + amount * shares / sizes
        assert found <= other.std() + 1e-6
