"""What holds for the scorers that read what nodes are, hold and are about to lose."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.model.api import ContainerImage
from engine.plugins import (
    image_locality,
    node_metadata,
    node_resources_allocatable,
    node_resources_balanced_allocation,
    node_resources_fit,
    pod_state,
)
from engine.view import ClusterState
from engine.view.memo import Memo
from tests.engine.measured_cluster import NOW, node, pod
from tests.engine.plugins.row_properties import check_losers_sway_nobody, check_rows_stand_alone

if TYPE_CHECKING:
    from engine.model.node import Node
    from engine.model.pod import Pod
    from engine.plugins.base import Plugin, Score
    from engine.view import ClusterView

GPU = "x.com/gpu"
RESOURCES = [{"name": "cpu"}, {"name": "memory"}, {"name": GPU}]
COST = {"metadataKey": "cost", "metadataSource": "Label", "metadataType": "Number"}
BORN = {"metadataKey": "born", "metadataSource": "Annotation", "metadataType": "Timestamp"}

_PLUGINS: list[tuple[Plugin, dict[str, Any]]] = [
    (image_locality.PLUGIN, {}),
    (node_metadata.PLUGIN, COST | {"scoringStrategy": "Lowest"}),
    (node_metadata.PLUGIN, BORN | {"scoringStrategy": "Newest"}),
    (node_resources_allocatable.PLUGIN, {}),
    (
        node_resources_allocatable.PLUGIN,
        {"mode": "Most", "resources": [{"name": GPU, "weight": 10**30}]},
    ),
    (node_resources_balanced_allocation.PLUGIN, {"resources": RESOURCES}),
    (
        node_resources_balanced_allocation.PLUGIN,
        {"resources": RESOURCES, "kubernetesVersion": "1.35"},
    ),
    (
        node_resources_fit.PLUGIN,
        {"scoringStrategy": {"type": "MostAllocated", "resources": RESOURCES}},
    ),
    (pod_state.PLUGIN, {}),
]
_every_plugin = pytest.mark.parametrize(
    ("plugin", "args"),
    [pytest.param(*one, id=f"{one[0].args.__name__}-{i}") for i, one in enumerate(_PLUGINS)],
)

_IMAGES = [
    ContainerImage(names=names, size_bytes=mib << 20)
    for names, mib in [
        (("a:latest", "a@sha256:1"), 500),
        (("a:latest",), 700),
        (("b:v1",), 900),
        (("b:v1", "b:v1"), 20),
        (None, 5),
    ]
]
_amounts = st.fixed_dictionaries(
    {},
    optional={
        "cpu": st.sampled_from(["1", "1500m", "0", "4"]),
        "memory": st.sampled_from(["1Gi", "300Mi"]),
        GPU: st.sampled_from(["0", "1", "2"]),
    },
)
_labels = st.fixed_dictionaries(
    {}, optional={"cost": st.sampled_from(["1", "2.7", "-3e2", "1e300", "x", ""])}
)
_annotations = st.fixed_dictionaries(
    {}, optional={"born": st.sampled_from(["2023-01-02T03:04:05Z", "2031-01-01T00:00:00+02:00"])}
)
_names = st.integers(0, 3).map(lambda i: f"n{i}")
_images = st.lists(st.sampled_from(_IMAGES), max_size=3).map(tuple)


def _node(
    name: str,
    amounts: dict[str, str],
    labels: dict[str, str],
    annotations: dict[str, str],
    images: tuple[ContainerImage, ...],
) -> Node:
    return replace(node(name, annotations, **amounts), labels=labels, images=images)


def _pod(
    name: str,
    on: str,
    requests: dict[str, str],
    images: list[str],
    *,
    deleting: bool = False,
    nominated: str = "",
) -> Pod:
    containers = [{"image": image, "resources": {"requests": requests}} for image in images]
    made = pod(name, on, containers=containers)
    return msgspec.structs.replace(made, deleting=deleting, nominated_node_name=nominated)


_image_names = st.lists(st.sampled_from(["a", "a@sha256:1", "b:v1", "c", ""]), max_size=3)
_incoming = st.builds(
    _pod,
    st.just("incoming"),
    st.just(""),
    _amounts,
    _image_names,
    nominated=st.just("") | _names,
)
_events = st.lists(
    st.tuples(st.just("node"), st.builds(_node, _names, _amounts, _labels, _annotations, _images))
    | st.tuples(st.just("no node"), _names)
    | st.tuples(
        st.just("pod"),
        st.builds(
            _pod,
            st.integers(0, 3).map(lambda i: f"p{i}"),
            st.just("") | _names,
            _amounts,
            st.just(["a"]),
            deleting=st.booleans(),
            nominated=st.just("") | _names,
        ),
    )
    | st.tuples(st.just("no pod"), st.integers(0, 3).map(lambda i: f"default/p{i}")),
    min_size=1,
    max_size=12,
)


def _apply(state: ClusterState, event: tuple[str, Any]) -> None:
    kind, what = event
    match kind:
        case "node":
            state.set_node(what)
        case "no node":
            state.delete_node(what)
        case "pod":
            state.set_pod(what, seen_at=NOW)
        case _:
            state.delete_pod(what)


def _cluster() -> ClusterState:
    state = ClusterState()
    for i in range(3):
        amounts = {"cpu": str(4 + i), "memory": "8Gi", GPU: "2"}
        labels, annotations = {"cost": str(i)}, {"born": f"2026-01-0{i + 1}T00:00:00Z"}
        state.set_node(_node(f"n{i}", amounts, labels, annotations, tuple(_IMAGES[i:])))
    return state


def _rule(plugin: Plugin, args: dict[str, Any]) -> Score:
    assert plugin.score
    return plugin.score(plugin.args.model_validate(args))


def _by_node(rule: Score, one: Pod, view: ClusterView) -> dict[str, int]:
    """Return the raw scores of what is a node; those of other rows are of no interest."""
    scores = rule.score(one, view, NOW)
    assert scores.faults is None
    found = zip(view.names, scores.values.tolist(), view.valid.tolist(), strict=True)
    return {name: score for name, score, valid in found if valid}


@_every_plugin
@settings(max_examples=60)
@given(st.lists(_incoming, min_size=2, max_size=2), _events)
def test_what_is_remembered_is_what_would_be_computed_afresh(
    plugin: Plugin, args: dict[str, Any], pods: list[Pod], events: list[tuple[str, Any]]
) -> None:
    rule, state, fresh = _rule(plugin, args), _cluster(), _cluster()
    for event in events:
        for one in pods:
            _by_node(rule, one, state.view())
        _apply(state, event)
        _apply(fresh, event)
    forgetful = replace(fresh.view(), memo=Memo(), scratch={})
    for one in pods:
        assert _by_node(rule, one, state.view()) == _by_node(rule, one, forgetful)


@_every_plugin
@settings(max_examples=60)
@given(_incoming, _events, st.permutations(range(3)), st.integers(0, 3))
def test_the_order_and_the_number_of_rows_do_not_matter(
    plugin: Plugin,
    args: dict[str, Any],
    one: Pod,
    events: list[tuple[str, Any]],
    order: list[int],
    count: int,
) -> None:
    rule, state = _rule(plugin, args), _cluster()
    for event in events:
        _apply(state, event)
    check_rows_stand_alone(partial(_by_node, rule), one, state.view(), order[:count])


@_every_plugin
@settings(max_examples=60)
@given(_incoming, _events, st.sets(st.integers(0, 2), min_size=1))
def test_a_node_that_cannot_win_changes_nothing_and_points_are_on_the_scale(
    plugin: Plugin,
    args: dict[str, Any],
    one: Pod,
    events: list[tuple[str, Any]],
    winners: set[int],
) -> None:
    rule, state = _rule(plugin, args), _cluster()
    for event in events:
        _apply(state, event)
    view = state.view()
    valid = [row for row in sorted(winners) if view.valid[row]]
    check_losers_sway_nobody(rule, one, view, valid)
