from __future__ import annotations

import weakref
from typing import TYPE_CHECKING

import numpy as np

from engine.view import ClusterState, Domain
from tests.engine.measured_cluster import NOW, node, pod

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from engine.view import ClusterView

_PODS = (Domain.PODS,)


def _pod_counts(part: ClusterView) -> NDArray[np.int64]:
    return part.amount(part.sums[0], "pods").copy()


def _cluster() -> ClusterState:
    state = ClusterState()
    for i in range(8):
        state.set_node(node(f"n{i}"))
    return state


def test_columns_that_are_brought_up_to_date_share_the_view_of_the_changed_rows() -> None:
    state = _cluster()
    asked: list[tuple[str, ...]] = []

    def counts(part: ClusterView) -> NDArray[np.int64]:
        asked.append(part.names)
        return _pod_counts(part)

    for key in "ab":
        state.view().node_column(key, _PODS, counts)
    before = state.view().version
    state.set_pod(pod("p", "n5"), seen_at=NOW)
    view = state.view()
    for key in "ab":
        assert view.node_column(key, _PODS, counts).tolist() == [0, 0, 0, 0, 0, 1, 0, 0]
    assert asked[2:] == [("n5",), ("n5",)]
    assert view.part_changed_since(before, _PODS) is view.part_changed_since(before, _PODS)


def test_a_view_dies_with_its_last_holder_even_after_it_brought_columns_up_to_date() -> None:
    # Otherwise the state would have to copy its columns before every write.
    state = _cluster()
    state.view().node_column("a", _PODS, _pod_counts)
    state.set_pod(pod("p", "n5"), seen_at=NOW)
    view = state.view()
    view.node_column("a", _PODS, _pod_counts)
    alive = weakref.ref(view)
    state.set_pod(pod("q", "n5"), seen_at=NOW)
    del view
    assert alive() is None


def test_several_amounts_come_in_the_order_asked_for() -> None:
    state = ClusterState()
    state.set_node(node("a", cpu="1", memory="2", **{"ephemeral-storage": "3", "x.com/gpu": "4"}))
    view = state.view()
    for names, expected in (
        (("cpu", "memory", "ephemeral-storage"), [1000, 2, 3]),
        (("memory", "cpu"), [2, 1000]),
        (("x.com/gpu", "unheard-of", "cpu"), [4, 0, 1000]),
        (("unheard-of",), [0]),
    ):
        assert view.amounts(view.allocatable, names)[:, 0].tolist() == expected
    assert view.amounts(view.allocatable, ()).shape == (0, 1)
