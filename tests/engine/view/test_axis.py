from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.view import extremes


@given(st.lists(st.integers(-(2**63), 2**63 - 1), min_size=1))
def test_extremes_are_the_least_and_the_greatest(values: list[int]) -> None:
    assert extremes(np.array(values, np.int64)) == (min(values), max(values))
    assert extremes(np.array([values, values], np.int64)) == (min(values), max(values))


@pytest.mark.parametrize("at", [0, 1, 2])
def test_extremes_are_nan_where_any_value_is(at: int) -> None:
    values = np.array([-math.inf, 1.0, math.inf])
    assert extremes(values) == (-math.inf, math.inf)
    values[at] = math.nan
    assert all(map(math.isnan, extremes(values)))
