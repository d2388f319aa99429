from __future__ import annotations

from typing import Any

import pytest

from engine.model import api
from engine.model.node import NO_SCHEDULE, Node, tolerates, untolerated
from tests.builders import node_from

_TAINT = api.Taint(key="gen", value="5", effect=NO_SCHEDULE)


@pytest.mark.parametrize(
    "toleration",
    [
        api.Toleration(operator="Exists"),
        api.Toleration(key="gen", operator="Exists"),
        api.Toleration(key="gen", operator="Exists", effect="NoSchedule"),
        api.Toleration(key="gen", value="5"),
        api.Toleration(key="gen", operator="Equal", value="5"),
        api.Toleration(value="5"),
        api.Toleration(key="gen", operator="Lt", value="6"),
        api.Toleration(key="gen", operator="Gt", value="-4"),
    ],
)
def test_a_toleration_that_fits_tolerates(toleration: api.Toleration) -> None:
    assert tolerates(toleration, _TAINT)


@pytest.mark.parametrize(
    "toleration",
    [
        api.Toleration(),
        api.Toleration(key="gen"),
        api.Toleration(key="gen", value="6"),
        api.Toleration(key="other", operator="Exists"),
        api.Toleration(key="gen", operator="Exists", effect="NoExecute"),
        api.Toleration(key="gen", operator="Lt", value="5"),
        api.Toleration(key="gen", operator="Gt", value="5"),
        api.Toleration(key="gen", operator="Gt", value="few"),
        api.Toleration(key="gen", operator="exists"),
    ],
)
def test_a_toleration_that_does_not_fit_tolerates_nothing(toleration: api.Toleration) -> None:
    assert not tolerates(toleration, _TAINT)


def test_untolerated_taints_keep_their_order_and_only_some_effects_count() -> None:
    first, second = api.Taint(key="b", effect="E"), api.Taint(key="a", effect="E")
    other = api.Taint(key="c", effect="F")
    assert untolerated([first, other, second], [], ("E",)) == [first, second]
    assert untolerated([first, other], [api.Toleration(key="b", operator="Exists")], ("E",)) == []


def _node(**status: Any) -> Node:  # noqa: ANN401 (JSON)
    return node_from({"metadata": {"name": "a"}, "status": status})


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


def test_of_images_of_one_name_the_first_has_it() -> None:
    # As in the cache of kube-scheduler; a kubelet lists the largest first.
    images = [
        {"names": ["app:v1", "app:v1"], "sizeBytes": 5},
        {"names": ["app:v2", "app:v1"], "sizeBytes": 9},
        {"names": ["app:v1"], "sizeBytes": 7},
    ]
    held = [(image.names, image.size_bytes) for image in _node(images=images).images]
    assert held == [(("app:v1",), 5), (("app:v2",), 9), ((), 7)]


def test_a_node_has_its_creation_time_and_its_conditions_without_heartbeats() -> None:
    ready = {"type": "Ready", "status": "True", "reason": "KubeletReady", "message": "fine"}
    ready |= {"lastTransitionTime": "1970-01-01T00:00:02Z"}
    first = _node(conditions=[ready | {"lastHeartbeatTime": "1970-01-01T00:10:00Z"}, {"type": "X"}])
    later = _node(conditions=[ready | {"lastHeartbeatTime": "1970-01-01T00:20:00Z"}, {"type": "X"}])
    assert first == later
    assert [tuple(condition) for condition in first.conditions] == [
        ("Ready", "True", "KubeletReady", 2_000_000),
        ("X", "", "", None),
    ]
    assert first.created is None
    metadata = {"name": "a", "creationTimestamp": "1970-01-01T00:00:03Z"}
    assert node_from({"metadata": metadata}).created == 3_000_000


def test_what_is_kept_of_conditions_is_bounded_and_shared() -> None:
    many = [{"type": f"t{i}", "reason": "r" * 5000} for i in range(500)]
    conditions, others = _node(conditions=many).conditions, _node(conditions=many).conditions
    assert len(conditions) == 64
    assert {len(condition.reason) for condition in conditions} == {1024}
    assert conditions[0].reason is others[1].reason
