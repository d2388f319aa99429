from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.simulation.bounds import least_hot_nodes, least_nodes


@pytest.mark.parametrize(
    ("demands", "room", "least"),
    [
        # 10 of one resource need the nodes of 6 and 4; 3 of the other one would need one.
        ([10, 3], [[6, 4, 2], [3, 3, 3]], 2),
        ([10, 7], [[6, 4, 2], [3, 3, 3]], 3),
        ([0, 0], [[6, 4, 2], [3, 3, 3]], 0),
        ([13, 0], [[6, 4, 2], [3, 3, 3]], None),
    ],
)
def test_the_fewest_nodes_that_have_room(
    demands: list[float], room: list[list[float]], least: int | None
) -> None:
    assert least_nodes(np.array(demands, float), np.array(room, float)) == least


@pytest.mark.parametrize(
    ("loads", "cold", "least"),
    [
        # Two pods that request 2 each; nodes with room for 4 take both.
        ([3, 3], [3, 3], 0),
        # 7 in use, of which two cold nodes take 6; one that is hot takes all.
        ([3, 4], [3, 3], 1),
        # One is hot without any pod, and takes all of them.
        ([3, 4], [-1, 0], 1),
        ([0, 0], [-1, 5], 1),
    ],
)
def test_the_fewest_hot_nodes(loads: list[float], cold: list[float], least: int) -> None:
    requests, room = np.array([[2.0, 2.0]]), np.array([[4.0, 4.0]])
    found = least_hot_nodes(np.array(loads, float), requests, room, np.array(cold, float))
    assert found == least


def test_a_hot_node_takes_no_more_than_fits_by_requests() -> None:
    # 12 in use by three pods that request 2 each: a node takes two of them, 8; cold it takes 1.
    room, cold = np.array([[4.0, 4.0]]), np.array([1.0, 1.0])
    assert least_hot_nodes(np.array([4.0] * 3), np.array([[2.0] * 3]), room, cold) == 2


_PODS = st.lists(st.tuples(st.integers(0, 3), st.integers(0, 4), st.integers(0, 2)), max_size=6)


@given(pods=_PODS, cold=st.lists(st.integers(-2, 5), min_size=3, max_size=3))
def test_no_placement_is_below_the_bounds(
    pods: list[tuple[int, int, int]], cold: list[int]
) -> None:
    """Each pod: what it requests, what it uses, and its node."""
    requested, loads, room = np.zeros(3), np.zeros(3), np.full(3, 6.0)
    for request, load, node in pods:
        requested[node] += request
        loads[node] += load
    room = np.maximum(room, requested)
    requests = np.array([[request for request, _, _ in pods]], float)
    used = int((np.bincount([node for *_, node in pods], minlength=3) > 0).sum())
    least = least_nodes(np.array([requested.sum()]), room[None])
    assert least is not None
    assert least <= used
    hot = int((loads > np.array(cold, float)).sum())
    each = np.array([load for _, load, _ in pods], float)
    least = least_hot_nodes(each, requests, room[None], np.array(cold, float))
    assert least is not None
    assert least <= hot
