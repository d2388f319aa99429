from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.placement.scheduler_sample import names_needed, nodes_to_find


@pytest.mark.parametrize(
    ("nodes", "percentage", "enough"),
    [
        (99, 0, 99),  # all of fewer than 100
        (200, 0, 100),  # 50 - 200 / 125 = 49 %, which is 98, but at least 100
        (1_000, 0, 420),  # 50 - 8 = 42 %
        (5_000, 0, 500),  # 50 - 40 = 10 %
        (6_000, 0, 300),  # 50 - 48 = 2 %, but at least 5 %
        (1_000, 70, 700),
        (1_000, 100, 1_000),
    ],
)
def test_the_number_of_feasible_nodes_the_scheduler_samples(
    nodes: int, percentage: int, enough: int
) -> None:
    assert nodes_to_find(nodes, percentage) == enough


@pytest.mark.parametrize(
    ("nodes", "feasible", "percentage", "names"),
    [
        (50, 50, 0, 8),  # all are looked at: the least that are named
        (200, 200, 0, 10),  # half: of 9, fewer than two in 195 of 10,000 samples; of 10, in 107
        (1_000, 1_000, 0, 13),
        (5_000, 5_000, 0, 64),  # a tenth
        (5_000, 500, 0, 8),  # a pool of nodes, of which all are found
        (5_000, 5_000, 100, 8),
        (50_000, 50_000, 0, 64),  # a twentieth: more would be needed
    ],
)
def test_how_many_names_put_two_nodes_in_the_sample(
    nodes: int, feasible: int, percentage: int, names: int
) -> None:
    assert names_needed(nodes, feasible, percentage) == names


@given(st.integers(100, 4_000), st.data())
def test_two_of_the_names_are_in_nearly_all_samples(nodes: int, data: st.DataObject) -> None:
    feasible = data.draw(st.integers(100, nodes))
    names = names_needed(nodes, feasible)
    draws = np.random.default_rng(nodes).hypergeometric(
        names, feasible - names, min(nodes_to_find(nodes), feasible), 20_000
    )
    assert np.mean(draws >= 2) >= 0.986  # five standard deviations below 0.99, where it is that
