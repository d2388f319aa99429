from __future__ import annotations

import msgspec

from engine.model import api
from engine.model.network import (
    APP_GROUP_LABEL,
    WORKLOAD_LABEL,
    AppGroup,
    Dependency,
    app_group_of,
    network_topology_of,
    workload_of,
)


def test_a_pod_is_of_a_workload_by_two_labels() -> None:
    assert workload_of({APP_GROUP_LABEL: "shop", WORKLOAD_LABEL: "cart"}) == ("shop", "cart")
    assert workload_of({APP_GROUP_LABEL: "shop"}) == ("shop", "")
    assert workload_of({APP_GROUP_LABEL: "", WORKLOAD_LABEL: "cart"}) is None
    assert workload_of({}) is None


def test_a_workload_that_is_listed_twice_depends_on_all_that_it_lists() -> None:
    def workload(on: str, **more: int) -> dict[str, object]:
        dependency = {"workload": {"selector": on, "kind": "Deployment"}, **more}
        return {"workload": {"selector": "front"}, "dependencies": [dependency]}

    wire = {
        "metadata": {"name": "shop", "namespace": "team"},
        "spec": {"workloads": [workload("cart", maxNetworkCost=7), workload("store")]},
        "status": {"topologyOrder": []},
    }
    group = app_group_of(msgspec.convert(wire, api.AppGroup))
    needed = (Dependency("cart", 7), Dependency("store", 0))
    assert group == AppGroup("team/shop", {"front": needed})


def test_costs_are_found_by_set_label_origin_and_destination() -> None:
    wire = {
        "metadata": {"name": "nt"},
        "spec": {
            "weights": [
                {
                    "name": "UserDefined",
                    "topologyList": [
                        {
                            "topologyKey": "zone",
                            "originList": [
                                {
                                    "origin": "a",
                                    "costList": [
                                        {"destination": "b", "networkCost": 5},
                                        {"destination": "c", "networkCost": 10**18},
                                    ],
                                }
                            ],
                        }
                    ],
                }
            ]
        },
    }
    network = network_topology_of(msgspec.convert(wire, api.NetworkTopology))
    assert network.key == "default/nt"
    # What no network costs is cut off, so that no sum over pods ever wraps.
    assert network.costs == {"UserDefined": {"zone": {"a": {"b": 5, "c": 2**31}}}}


def test_an_empty_object_holds_nothing() -> None:
    assert app_group_of(api.AppGroup()).dependencies == {}
    assert network_topology_of(api.NetworkTopology()).costs == {}


def test_the_order_of_workloads_is_searched_as_upstream_does() -> None:
    def indexes(*selectors: str) -> dict[str, int]:
        order = [
            {"workload": {"selector": selector}, "index": index}
            for index, selector in enumerate(selectors, 1)
        ]
        wire = {"status": {"topologyOrder": order}}
        return dict(app_group_of(msgspec.convert(wire, api.AppGroup)).indexes)

    assert indexes("a", "b", "c") == {"a": 1, "b": 2, "c": 3}
    # Not sorted: the search starts at `a`, goes right for `b` and `c`, and finds neither.
    assert indexes("c", "a", "b") == {"a": 2, "b": 3}
    assert indexes() == {}
