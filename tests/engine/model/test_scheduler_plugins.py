from __future__ import annotations

from typing import Any

import msgspec
import pytest

from engine.errors import QuantityError
from engine.model import api
from engine.model.scheduler_plugins import (
    APP_GROUP_LABEL,
    WORKLOAD_LABEL,
    AppGroup,
    Dependency,
    Disk,
    NodeDisks,
    NodeZones,
    Throughput,
    app_group_of,
    network_topology_of,
    node_disks_of,
    node_zones_of,
    throughput_of,
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


def told(**fields: Any) -> NodeZones:  # noqa: ANN401 (any part of the object)
    wire = {"metadata": {"name": "a"}, **fields}
    return node_zones_of(msgspec.convert(wire, api.NodeResourceTopology))


def attributes(**values: str) -> list[dict[str, str]]:
    return [{"name": name, "value": value} for name, value in values.items()]


def zone(name: str, cpu: str = "1", **more: Any) -> dict[str, Any]:  # noqa: ANN401 (as above)
    resources = [{"name": "cpu", "available": cpu, "capacity": "9", "allocatable": "8"}]
    return {"name": name, "type": "Node", "resources": resources, **more}


@pytest.mark.parametrize(
    ("name", "policy", "scope"),
    [
        ("SingleNUMANodeContainerLevel", "single-numa-node", "container"),
        ("SingleNUMANodePodLevel", "single-numa-node", "pod"),
        ("BestEffortPodLevel", "best-effort", "pod"),
        ("RestrictedContainerLevel", "restricted", "container"),
        ("None", "none", "container"),
    ],
)
def test_the_first_deprecated_policy_counts(name: str, policy: str, scope: str) -> None:
    layout = told(topologyPolicies=[name, "SingleNUMANodePodLevel"]).layout
    assert (layout.policy, layout.scope) == (policy, scope)


def test_attributes_win_over_it_where_they_make_sense() -> None:
    written = attributes(topologyManagerPolicy="restricted", topologyManagerScope="galaxy")
    layout = told(topologyPolicies=["SingleNUMANodePodLevel"], attributes=written).layout
    assert (layout.policy, layout.scope, layout.most_zones) == ("restricted", "pod", 8)


@pytest.mark.parametrize(
    ("text", "count"), [("2", 2), ("1", 8), ("-4", 8), ("many", 8), ("5000", 1024), ("", 8)]
)
def test_a_kubelet_says_how_many_zones_it_expects(text: str, count: int) -> None:
    assert told(attributes=attributes(topologyManagerMaxNUMANodes=text)).layout.most_zones == count


def test_zones_stand_in_order_of_their_ids() -> None:
    zones = told(zones=[zone("node-10", "3"), zone("node-2", "2"), zone("node-0", "1500m")])
    assert [each["cpu"] for each in zones.available] == [1500, 2000, 3000]


def test_what_is_no_zone_or_has_no_usable_id_does_not_count() -> None:
    odd = [zone("node-0"), zone("node-65"), zone("node-x"), zone("socket-1"), zone("node--1")]
    assert len(told(zones=[*odd, zone("node-1", type="Cache")]).available) == 1
    assert len(told(zones=[zone("node-64")]).available) == 1


def test_distances_that_nobody_speaks_of_are_unknown() -> None:
    near = zone("node-0", costs=[{"name": "node-0", "value": 10}, {"name": "node-7", "value": 3}])
    layout = told(zones=[near, zone("node-1", costs=None)]).layout
    assert layout.distances == ((10, 255), (255, 255))


def test_an_amount_must_be_a_quantity() -> None:
    with pytest.raises(QuantityError):
        told(zones=[zone("node-0", "much")])


@pytest.mark.parametrize(
    ("text", "throughput"),
    [
        ('{"rbps": "20M", "wbps": "30M", "blocksize": "4k"}', Throughput(20 * 10**6, 30 * 10**6)),
        ('{"rbps": 5}', Throughput(5, 0)),
        ('{"rbps": "-5"}', Throughput(0, 0)),
        ('{"rbps": "1e99"}', Throughput(2**52, 0)),
        ('{"rbps": "fast"}', None),
        ('{"rbps": null}', None),
        ("[" * 100_000, None),
        ("", None),
        (None, None),
    ],
)
def test_what_a_pod_asks_for_is_read_from_its_annotation(
    text: str | None, throughput: Throughput | None
) -> None:
    assert throughput_of(text) == throughput


@pytest.mark.parametrize("is_nested", [False, True])
def test_disks_are_read_in_either_form(is_nested: bool) -> None:  # noqa: FBT001 (a parameter)
    left = {"total": "2Ki", "read": "1Ki", "write": 5}
    disk = {"name": "INT_1", "status": left} if is_nested else left
    wire = {
        "metadata": {"name": "anything"},
        "spec": {"nodeName": "a"},
        "status": {"allocatableBandwidth": {"z": disk, "b": {}}},
    }
    told = node_disks_of(msgspec.convert(wire, api.NodeDiskIO))
    assert told == NodeDisks("a", (Disk(0, 0, 0), Disk(2048, 1024, 5)))
    assert told.key == "a"


def test_a_bandwidth_must_be_a_quantity() -> None:
    disks = {"d": api.DiskBandwidth(total="much")}
    status = api.NodeDiskIOStatus(allocatable_bandwidth=disks)
    with pytest.raises(QuantityError):
        node_disks_of(api.NodeDiskIO(status=status))
