from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from engine.model.api import ContainerImage
from engine.view import ClusterState, image_column
from tests.engine.measured_cluster import node

if TYPE_CHECKING:
    from engine.model.node import Node
    from engine.view import ClusterView

APP = ContainerImage(names=("app:v1", "app@sha256:1"), size_bytes=50)
APP_ON_ARM = ContainerImage(names=("app:v1", "app@sha256:2"), size_bytes=40)


def holding(name: str, *images: ContainerImage) -> Node:
    return replace(node(name), images=images)


def sizes(view: ClusterView, name: str) -> dict[str, int]:
    return dict(zip(view.names, image_column(view, name)[0].tolist(), strict=True))


def cluster() -> ClusterState:
    state = ClusterState()
    for a_node in (holding("a", APP), holding("b", APP_ON_ARM), holding("c"), holding("d")):
        state.set_node(a_node)
    return state


def test_an_image_is_found_by_any_of_its_names() -> None:
    view = cluster().view()
    assert sizes(view, "app:v1") == {"a": 50, "b": 40, "c": 0, "d": 0}
    assert sizes(view, "app@sha256:2") == {"a": 0, "b": 40, "c": 0, "d": 0}
    assert sizes(view, "app") == {"a": 0, "b": 0, "c": 0, "d": 0}


def test_its_share_is_that_of_all_nodes_even_when_some_are_asked_about() -> None:
    view = cluster().view()
    assert image_column(view, "app:v1")[1] == 2 / 4
    found, share = image_column(view.take(np.array([3, 1])), "app:v1")
    assert found.tolist() == [0, 40]
    assert share == 2 / 4


def test_nodes_that_are_not_known_do_not_count() -> None:
    state = cluster()
    state.delete_node("d")
    assert image_column(state.view(), "app:v1")[1] == 2 / 3
    assert image_column(ClusterState().view(), "app:v1")[1] == 0


def test_what_nodes_pull_and_drop_is_followed() -> None:
    state = cluster()
    assert sizes(state.view(), "app:v1")["c"] == 0
    state.set_node(holding("c", APP, APP))
    state.set_node(holding("b"))
    state.delete_node("a")
    assert sizes(state.view(), "app:v1") == {"": 0, "b": 0, "c": 50, "d": 0}
    state.set_node(holding("c"))
    assert not any(sizes(state.view(), "app:v1").values())


def test_a_size_that_no_image_has_does_no_harm() -> None:
    state = ClusterState()
    state.set_node(holding("a", ContainerImage(names=("less",), size_bytes=-1)))
    state.set_node(holding("b", ContainerImage(names=("more",), size_bytes=2**70)))
    assert sizes(state.view(), "less") == {"a": 0, "b": 0}
    assert sizes(state.view(), "more") == {"a": 0, "b": 2**48}


def test_a_view_that_is_kept_says_what_it_said() -> None:
    state = cluster()
    old = state.view()
    state.set_node(holding("a"))
    assert sizes(state.view(), "app:v1")["a"] == 0
    assert sizes(old, "app:v1")["a"] == 50
    assert sizes(old, "app:v1")["b"] == 40
