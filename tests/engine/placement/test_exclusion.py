from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.model import api
from engine.model.node import Node
from engine.model.pod import pod_of
from engine.model.time import Micros
from engine.model.well_known import HOSTNAME_LABEL
from engine.placement.exclusion import Rejections, exclusion_of
from engine.placement.hostnames import Hostnames
from engine.view import BoolColumn, ClusterState, ClusterView
from tests.engine.placement.cluster import decided, named, node, view_of


def marked(view: ClusterView, *names: str) -> BoolColumn:
    mask = np.zeros(len(view), np.bool_)
    mask[[view.rows[name] for name in names]] = True
    return mask


def pod_on(node_name: str, cpu: str, memory: str) -> api.Pod:
    requests: api.ResourceList = {"cpu": cpu, "memory": memory}
    container = api.Container(resources=api.ResourceRequirements(requests=requests))
    return api.Pod(
        metadata=api.ObjectMeta(name=f"on-{node_name}", namespace="d"),
        spec=api.PodSpec(node_name=node_name, containers=[container]),
    )


def test_rejected_are_the_nodes_that_the_scheduler_would_take_and_a_policy_does_not() -> None:
    view = view_of(named("good", "hot", "full", "full-and-hot"))
    decision = decided(
        view, {"good": 1}, rejected=("hot", "full-and-hot"), unfit=("full", "full-and-hot")
    )
    rejections = Rejections(decision)
    assert rejections.unreachable.tolist() == marked(view, "full", "full-and-hot").tolist()
    assert rejections.rejected.tolist() == marked(view, "hot").tolist()


def test_a_filter_that_the_pod_demands_is_one_of_the_scheduler() -> None:
    view = view_of(named("good", "hot", "full"))
    decision = decided(view, {"good": 1}, rejected=("hot",), unfit=("full",))
    rejections = Rejections(decision, decision.filters[1:])
    assert rejections.unreachable.tolist() == marked(view, "hot", "full").tolist()
    assert not rejections.rejected.any()


def test_rejected_nodes_are_excluded_by_hostname() -> None:
    view = view_of(named("a", "b", "c"))
    exclusion = exclusion_of(marked(view, "a", "c"), view, Hostnames(view), 64)
    expected = {"key": HOSTNAME_LABEL, "operator": "NotIn", "values": ["h-a", "h-c"]}
    assert exclusion.requirements == (expected,)
    assert exclusion.left_out == 0


def test_nothing_rejected_is_no_requirement() -> None:
    view = view_of(named("a"))
    exclusion = exclusion_of(marked(view), view, Hostnames(view), 64)
    assert (exclusion.requirements, exclusion.left_out) == ((), 0)


def test_a_node_without_a_unique_hostname_is_not_excluded() -> None:
    twins = {"a": {HOSTNAME_LABEL: "t"}, "b": {HOSTNAME_LABEL: "t"}, "bare": {}}
    view = view_of(twins)
    exclusion = exclusion_of(marked(view, "a", "bare"), view, Hostnames(view), 64)
    assert (exclusion.requirements, exclusion.left_out) == ((), 2)


def test_of_too_many_those_are_excluded_that_the_scheduler_likes_best() -> None:
    # Requested of 4 cores and 8 GiB: a 25 % + 50 %, b 50 % + 12.5 %, c 75 % + 25 %, d nothing; e
    # has nothing to offer.
    state = ClusterState()
    for name in "abcd":
        state.set_node(node(name, {HOSTNAME_LABEL: name}))
    state.set_node(Node(name="e", labels={HOSTNAME_LABEL: "e"}, allocatable={}))
    for name, cpu, memory in [("a", "1", "4Gi"), ("b", "2", "1Gi"), ("c", "3", "2Gi")]:
        state.set_pod(pod_of(pod_on(name, cpu, memory)), seen_at=Micros(0))
    view = state.view()
    everything = marked(view, *"abcde")
    (requirement,) = exclusion_of(everything, view, Hostnames(view), 3).requirements
    assert requirement["values"] == ["a", "b", "d"]
    assert exclusion_of(everything, view, Hostnames(view), 3).left_out == 2


@settings(max_examples=50)
@given(order=st.permutations("abcdefgh"), max_nodes=st.integers(1, 8))
def test_the_order_in_which_nodes_became_known_does_not_matter(
    order: list[str], max_nodes: int
) -> None:
    # They are all as empty, so nothing but their names can tell which are left out of too many.
    one, other = view_of(named(*"abcdefgh")), view_of(named(*order))
    first, second = (
        exclusion_of(marked(view, *"abcdefgh"), view, Hostnames(view), max_nodes)
        for view in (one, other)
    )
    assert first == second
