from __future__ import annotations

from typing import Any

import msgspec

from engine.model import api
from engine.model.node import Node, node_of


def _node(**status: Any) -> Node:  # noqa: ANN401 (JSON)
    return node_of(msgspec.convert({"metadata": {"name": "a"}, "status": status}, api.Node))


def test_capacity_is_what_the_node_says_it_has() -> None:
    one = _node(capacity={"cpu": "8"}, allocatable={"cpu": "7500m", "memory": "1Ki"})
    assert one.capacity == {"cpu": 8000}
    assert one.allocatable == {"cpu": 7500, "memory": 1024}


def test_where_a_node_tells_no_capacity_it_is_what_pods_may_request() -> None:
    assert _node(allocatable={"cpu": "7500m"}).capacity == {"cpu": 7500}
    assert _node(allocatable={"cpu": "7500m"}, capacity={}).capacity == {}


def test_nodes_share_the_images_that_they_both_hold() -> None:
    wire = {"names": ["app:v1", "app@sha256:1"], "sizeBytes": 5}
    one, other = _node(images=[wire, {"names": None}]), _node(images=[dict(wire)])
    assert one.images[0] is other.images[0]
    assert other.images == (api.ContainerImage(names=("app:v1", "app@sha256:1"), size_bytes=5),)
    assert _node(images=None).images == ()
