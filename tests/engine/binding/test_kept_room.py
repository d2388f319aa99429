"""What a binding must leave to pods that are not bound yet, worked by hand."""

from __future__ import annotations

import numpy as np
import pytest

from engine.binding import AwaitedRoom, missing_of_place, takes_nominated_room
from engine.model.pod import Pod
from engine.view import BoolColumn, ClusterState, ClusterView
from tests.engine.binding.worlds import cluster, node, pod


def nominating(*pods: Pod) -> ClusterView:
    """Return a node of 4 cores to which pods are nominated."""
    state: ClusterState = cluster(node("a"), *pods)
    for each in pods:
        state.nominate(each.key, "a")
    return state.view()


def test_a_pod_takes_nothing_from_nominated_ones_while_there_is_room_beside_them() -> None:
    members = [pod("m-0"), pod("m-1")]  # 4 - 2 leave 2
    view = nominating(*members)
    assert not takes_nominated_room(pod(cpu="2"), 0, view, members)
    assert takes_nominated_room(pod(cpu="2100m"), 0, view, members)


def test_a_pod_of_higher_priority_passes_nominated_ones() -> None:
    members = [pod("m-0", cpu="4", priority=1)]
    view = nominating(*members)
    assert takes_nominated_room(pod(priority=1), 0, view, members)
    assert not takes_nominated_room(pod(priority=2), 0, view, members)


def test_only_those_that_do_not_yield_to_a_pod_count() -> None:
    low, high = pod("low", cpu="3", priority=1), pod("high", cpu="1", priority=3)
    view = nominating(low, high)  # without the low one 4 - 1 leave 3
    assert not takes_nominated_room(pod(cpu="3", priority=2), 0, view, [low, high])
    assert takes_nominated_room(pod(cpu="4", priority=2), 0, view, [low, high])


def test_a_resource_that_nominated_pods_do_not_request_is_none_of_theirs() -> None:
    full = pod("full", cpu="0", on="a", requests={"memory": "8Gi"})
    member = pod("m-0", cpu="3")
    state = cluster(node("a"), full, member)
    state.nominate(member.key, "a")
    asking = pod(cpu="1", requests={"memory": "1Gi"})
    assert not takes_nominated_room(asking, 0, state.view(), [member])


def awaiting(count: int, may_take: BoolColumn, fitting: BoolColumn) -> AwaitedRoom:
    """Return the room that members of 2 cores wait for."""
    shape = pod("m-0", cpu="2").shape
    return AwaitedRoom(shape=shape, count=count, may_take=may_take, fitting=fitting)


def missing(view: ClusterView, cpu: str, count: int, *fitting: str, on: str = "a") -> float | None:
    """Return what is missing of the place that a pod takes from members of 2 cores on a node."""
    fits = np.array([name in (fitting or view.names) for name in view.names])
    awaited = awaiting(count, fits, fits)
    return missing_of_place(pod(cpu=cpu), view.rows[on], view, awaited)


@pytest.mark.parametrize(
    ("cpu", "count", "expected"),
    [
        ("1", 1, None),  # a 4 - 1 = 3, one member there still
        ("1", 2, None),  # b takes the other one
        ("1", 3, None),  # a one, b two
        ("1", 4, 0.0),  # a two and b two without it
        ("1", 9, 0.0),
        ("4", 2, None),  # b takes both
        ("4", 3, 0.0),
    ],
)
def test_a_pod_may_take_what_is_more_than_members_need(
    cpu: str, count: int, expected: float | None
) -> None:
    assert missing(cluster(node("a"), node("b")).view(), cpu, count) == expected


def test_a_pod_that_fits_beside_a_member_takes_nothing() -> None:
    view = cluster(node("a"), pod("full", cpu="1", on="a")).view()  # 3 free, 2 needed
    assert missing(view, "1", 1) is None
    assert missing(view, "1100m", 1) == 0.0


def test_a_node_that_takes_no_member_keeps_nothing() -> None:
    view = cluster(node("a"), node("b")).view()
    assert missing(view, "4", 9, "b") is None
    assert missing(view, "4", 9, "a") == 0.0


def filled(**cpu: str) -> ClusterView:
    """Return nodes of 4 cores, of which as much is used."""
    pods = [pod(f"on-{name}", cpu=used, on=name) for name, used in cpu.items()]
    return cluster(*map(node, cpu), *pods).view()


def test_what_comes_free_is_kept_where_the_least_is_missing() -> None:
    view = filled(a="2500m", b="3", c="4")  # of 2 cores, 0.5, 1 and 2 are missing
    assert missing(view, "1", 1, on="a") == 0.25
    assert missing(view, "1", 1, on="b") is None
    assert missing(view, "1", 2, on="b") == 0.5
    assert missing(view, "1", 2, on="c") is None
    assert missing(view, "1", 3, on="c") == 1.0


def test_where_as_much_is_missing_elsewhere_nothing_is_kept() -> None:
    view = filled(a="3", b="3", c="3")
    assert missing(view, "1", 2) is None  # b and c are as good
    assert missing(view, "1", 3) == 0.5


def test_a_node_keeps_room_for_as_many_members_as_it_could_ever_take() -> None:
    view = filled(a="4")  # for a second member 4 cores are missing, and there is none for a third
    assert missing(view, "1", 2) == 1.0
    view = filled(a="2")
    assert missing(view, "1", 1) == 0.0  # the first has room
    assert missing(view, "2", 2) == 0.0
    view = filled(a="1500m")  # 2.5 free: the first fits beside 0.5, of the second 1.5 is missing
    assert missing(view, "500m", 1) is None
    assert missing(view, "500m", 2) == 0.75


def test_where_a_member_has_room_and_may_not_go_nothing_is_kept_for_it() -> None:
    view = filled(a="1", b="4")
    awaited = awaiting(1, np.array([True, True]), np.array([False, False]))
    assert missing_of_place(pod(cpu="2"), view.rows["a"], view, awaited) is None
    assert missing_of_place(pod(cpu="1"), view.rows["b"], view, awaited) == 1.0


def test_a_resource_that_members_do_not_request_is_none_of_theirs() -> None:
    full = pod("full", cpu="3", on="a", requests={"memory": "8Gi"})
    view = cluster(node("a"), full).view()
    assert missing(view, "0", 1) is None


def test_very_many_members_take_no_longer_than_a_node_has_places() -> None:
    view = cluster(node("a"), pod("full", cpu="3", on="a")).view()  # one place of 2 cores, or two
    assert missing(view, "0", 10**9) is None
