from __future__ import annotations

import numpy as np

from engine.simulation.scheduler.sampling import node_order, search
from engine.view import ClusterState
from tests.engine.plugins.neighbour_worlds import node_model_of


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
