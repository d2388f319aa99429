from __future__ import annotations

from dataclasses import replace

from engine.gang import Gang, GangKey, min_resources_gap
from engine.model.device_class import DeviceClass
from engine.model.pod import Pod
from engine.model.time import Micros
from engine.view import ClusterState, ClusterView
from tests.builders import node_from, pod_from

_GANG = Gang(key=GangKey("shop", "train"), min_member=3, total=3, min_resources={"cpu": 6000})


def _pod(name: str, cpu: str, node: str) -> Pod:
    containers = [{"name": "c", "resources": {"requests": {"cpu": cpu}}}]
    written = {
        "metadata": {"name": name, "namespace": "shop"},
        "spec": {"nodeName": node, "containers": containers},
    }
    return pod_from(written)


def _view(*pods: Pod, cpu: str = "4", places: str = "32") -> ClusterView:
    state = ClusterState()
    for name in ("n1", "n2"):
        written = {
            "metadata": {"name": name},
            "status": {"allocatable": {"cpu": cpu, "pods": places}},
        }
        state.set_node(node_from(written))
    for pod in pods:
        state.set_pod(pod, seen_at=Micros(0))
    return state.view()


def test_what_nodes_have_free_is_added_up() -> None:
    # 4 + 4 cores, 6 are needed.
    assert min_resources_gap(_GANG, _view(), ()) == {}
    # 4 - 3 and 4 - 0 cores are free: one of six is missing.
    assert min_resources_gap(_GANG, _view(_pod("a", "3", "n1")), ()) == {"cpu": 1000}


def test_what_a_node_lacks_is_not_taken_from_others() -> None:
    # Seven of four cores are requested on n1, four are free on n2.
    assert min_resources_gap(_GANG, _view(_pod("a", "7", "n1")), ()) == {"cpu": 2000}


def test_a_place_for_each_member_is_needed() -> None:
    assert min_resources_gap(_GANG, _view(places="1"), ()) == {"pods": 1}


def test_what_members_use_is_free_for_their_gang() -> None:
    member = _pod("a", "3", "n1")
    running = [("n1", member.shape), ("gone", member.shape)]
    assert min_resources_gap(_GANG, _view(member), running) == {}


def test_a_gang_that_does_not_say_what_it_needs_lacks_nothing() -> None:
    gang = replace(_GANG, min_resources=None)
    assert min_resources_gap(gang, _view(places="0"), ()) == {}


def test_a_resource_that_no_node_has_is_missing_unless_devices_may_provide_it() -> None:
    gang = replace(_GANG, min_resources={"example.com/gpu": 2})
    view = _view()
    assert min_resources_gap(gang, view, ()) == {"example.com/gpu": 2}
    gpu = DeviceClass(name="gpu", resource="example.com/gpu")
    view = replace(view, extras={(DeviceClass, gpu.key): gpu})
    assert min_resources_gap(gang, view, ()) == {}
