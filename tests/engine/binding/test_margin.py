"""The room that a move leaves for what may be bound without being asked about."""

from __future__ import annotations

import pytest

from engine.binding.margin import Margin
from engine.view import ClusterView
from tests.engine.binding.worlds import cluster, node, pod


def margin(*waiting: str) -> Margin:
    """Return the margin for pods that wait, by the cores they request."""
    made = Margin()
    for number, cpu in enumerate(waiting):
        made.waits(f"shop/w{number}", pod(f"w{number}", cpu=cpu).shape)
    return made


def nodes(large: int) -> ClusterView:
    """Return a node of 4 cores, the first, and others of 8."""
    others = [node(f"large-{number}", cores=8) for number in range(large)]
    return cluster(node("first"), *others).view()


def may_take(found: Margin, view: ClusterView, cpu: str = "1") -> bool:
    return found.for_pod(pod(cpu=cpu), view)(view.rows["first"])


def test_a_node_keeps_room_for_a_pod_that_few_nodes_would_take() -> None:
    # 4 cores less 1 leave 3: enough for 3, not for 4, which it would take now.
    assert may_take(margin("3"), nodes(0))
    assert not may_take(margin("4"), nodes(0))
    assert may_take(margin("5"), nodes(0))  # which does not go there anyway


@pytest.mark.parametrize(("large", "expected"), [(30, False), (31, True)])
def test_a_pod_that_32_nodes_would_take_keeps_no_room(large: int, expected: bool) -> None:  # noqa: FBT001
    assert may_take(margin("4"), nodes(large)) is expected  # the first node is one of them


def test_of_several_pods_the_one_with_the_fewest_nodes_counts() -> None:
    # Of 40 nodes only the first has 4 cores and 8 GiB free: the others are filled up to 3 cores.
    filled = [pod(f"on-{number}", cpu="5", on=f"large-{number}") for number in range(40)]
    others = [node(f"large-{number}", cores=8) for number in range(40)]
    view = cluster(node("first"), *others, *filled).view()
    assert may_take(margin("3"), view)
    assert not may_take(margin("3", "3500m"), view)
