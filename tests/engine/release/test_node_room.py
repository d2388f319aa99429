from __future__ import annotations

from dataclasses import replace

from engine.model.node import DeviceClass, Node
from engine.release import is_within_room, would_stay
from tests.engine.measured_cluster import cluster, node, pod

GPU = "example.com/gpu"


def _node(name: str, **more: str) -> Node:
    return node(name, cpu="4", pods="10", **more)


def test_a_pod_stays_where_nothing_is_requested_beyond_what_there_is() -> None:
    # 4 cores: both pods request them all, and with a third one of them is too much.
    two = [pod("1", "a", requests={"cpu": "2"}), pod("2", "a", requests={"cpu": "2"})]
    assert would_stay(cluster([_node("a")], two), "a", two[0])
    three = [*two, pod("3", "a", requests={"cpu": "1"})]
    assert not would_stay(cluster([_node("a")], three), "a", two[0])
    assert not would_stay(cluster([_node("a")], two), "gone", two[0])


def test_what_devices_may_provide_is_room_on_nodes_that_do_not_offer_it() -> None:
    on_a, on_b = (pod(name, name, requests={GPU: "2"}) for name in ("a", "b"))
    view = cluster([_node("a"), _node("b", **{GPU: "1"})], [on_a, on_b])
    assert not is_within_room(view, "a", on_a)
    gpu = DeviceClass(name="gpu", resource=GPU)
    view = replace(view, extras={(DeviceClass, gpu.key): gpu})
    assert is_within_room(view, "a", on_a)
    assert not is_within_room(view, "b", on_b)
