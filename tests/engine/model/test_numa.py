from __future__ import annotations

from typing import Any

import msgspec
import pytest

from engine.errors import QuantityError
from engine.model import api
from engine.model.numa import NodeZones, node_zones_of


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
