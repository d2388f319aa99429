from __future__ import annotations

import numpy as np
import pytest

from engine.simulation.scheduler.sampling import node_order, nodes_to_find, search
from engine.view import ClusterState
from tests.engine.plugins.neighbour_worlds import node_model_of


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
def test_so_many_feasible_nodes_are_enough(nodes: int, percentage: int, enough: int) -> None:
    assert nodes_to_find(nodes, percentage) == enough


def test_a_search_goes_around_and_ends_at_the_last_node_that_is_needed() -> None:
    order, passes = np.array([4, 2, 0, 3, 1]), np.array([True, True, False, True, False])
    # From place 3 on: 3 and 1 are rows that pass, then 4 and 2 do not, 0 does.
    assert search(order, passes, 3, 2).feasible.tolist() == [3, 1]
    assert search(order, passes, 3, 2).looked_at == 2
    assert search(order, passes, 8, 3).looked_at == 5
    found = search(order, passes, 0, 9)
    assert (found.feasible.tolist(), found.looked_at) == ([0, 3, 1], 5)


def test_the_order_takes_a_node_of_each_zone_in_turn() -> None:
    zones = {"n5": "a", "n1": "b", "n2": "b", "n3": "a", "n4": "b", "n6": None}
    state = ClusterState()
    for name, zone in zones.items():
        labels = {} if zone is None else {"topology.kubernetes.io/zone": zone}
        state.set_node(node_model_of({"metadata": {"name": name, "labels": labels}}))
    view = state.view()
    names = [view.names[row] for row in node_order(view)]
    # Zones in the order of their first nodes: b by n1, a by n3, none by n6.
    assert names == ["n1", "n3", "n6", "n2", "n5", "n4"]
