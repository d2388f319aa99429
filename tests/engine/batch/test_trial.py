"""Pods that must be placed together are placed as one by one, or not at all."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.batch import BatchOutcome, place_all
from engine.model.decision import PlacementRequest
from engine.model.kinds import Domain
from engine.model.node import Node
from engine.pipeline import decide
from engine.policy import PolicySet
from engine.view import Freshness
from tests.engine.batch.worlds import (
    ALL_PODS,
    EXAMPLES,
    BatchWorld,
    plain,
    policies_of,
    request,
    worlds,
)
from tests.engine.measured_cluster import NOW, node
from tests.engine.policy.worlds import Json, policies, policy

CORES = {"containers": [{"resources": {"requests": {"cpu": "2"}}}]}


def _among(policy_set: PolicySet, nodes: Sequence[str]) -> PolicySet:
    """Return policies that leave a pod no other nodes."""
    rule = f'filters: [{{name: among, expression: "node.name in {list(nodes)}"}}]'
    among = policy(rule).filters
    return PolicySet(replace(each, filters=(*each.filters, *among)) for each in policy_set)


def one_by_one(world: BatchWorld, nodes: Sequence[str]) -> list[BatchOutcome]:
    """Decide each pod on a cluster that was told of those before it, until one has no node."""
    state, placed = world.state(), []
    for each in world.requests:
        policy_set = _among(policies_of(each, world), nodes)
        decision = decide(each, policy_set, state.view(), NOW, scope=ALL_PODS)
        outcome = BatchOutcome.of(decision)
        if not outcome.node:
            break
        state.nominate(each.pod.key, outcome.node)
        placed.append(outcome)
    return placed


@settings(max_examples=EXAMPLES)
@given(worlds(), st.data())
def test_a_trial_places_pods_as_one_by_one(world: BatchWorld, data: st.DataObject) -> None:
    view = world.state().view()
    names = [name for name in view.names if name]
    chosen = data.draw(st.lists(st.sampled_from(names), unique=True) | st.none())
    rows = None if chosen is None else np.array([view.rows[name] for name in chosen], np.intp)
    trial = place_all(world.requests, world.policies, view, NOW, rows=rows)
    placed = one_by_one(world, names if chosen is None else chosen)
    assert plain(trial.outcomes[: len(placed)]) == plain(placed)
    is_whole = len(placed) == len(world.requests)
    assert trial.failed == (None if is_whole else len(placed))
    assert trial.nodes == ([each.node for each in placed] if is_whole else [])
    assert bool(trial.message) is not is_whole


def _node(name: str, cpu: str = "4") -> Node:
    return node(name, cpu=cpu, memory="8Gi", pods="9")


def _alike(count: int, spec: Json) -> list[PlacementRequest]:
    template = {"metadata": {"namespace": "default"}, "spec": spec}
    return [request(template, f"p{i}") for i in range(count)]


def test_pods_that_no_policy_places_go_where_least_is_requested() -> None:
    # Two nodes of 8 cores, one of 4: 2 of 8 cores leave more free than 2 of 4.
    nodes = [_node("small", "4"), _node("large", "8"), _node("broad", "8")]
    world = BatchWorld(PolicySet([]), nodes, [], _alike(2, CORES))
    trial = place_all(world.requests, world.policies, world.state().view(), NOW)
    assert sorted(trial.nodes) == ["broad", "large"]
    assert trial.outcomes[0].decision.policies == ()


def test_the_first_pod_without_a_node_ends_the_trial() -> None:
    # 2 nodes of 4 cores take 4 pods of 2 cores: the fifth has none, the sixth is not looked at.
    world = BatchWorld(PolicySet([]), [_node("a"), _node("b")], [], _alike(6, CORES))
    trial = place_all(world.requests, world.policies, world.state().view(), NOW)
    assert trial.failed == 4
    assert len(trial.outcomes) == 5
    assert trial.nodes == []
    assert trial.message.startswith("0 of 2 nodes fit; left out: 2 NodeResourcesFit (Insufficient")


def test_only_nodes_that_may_take_them_are_looked_at() -> None:
    spread = policies(spread="scores: [{name: few, expression: -node.podCount}]")
    world = BatchWorld(spread, [_node("a"), _node("b"), _node("c")], [], _alike(3, CORES))
    view = world.state().view()
    only_b = np.array([view.rows["b"]])
    trial = place_all(world.requests, world.policies, view, NOW, rows=only_b)
    assert [outcome.node for outcome in trial.outcomes] == ["b", "b", ""]
    assert trial.message.startswith("0 of 1 nodes fit")


def test_nothing_is_placed_while_the_pods_on_nodes_are_not_known() -> None:
    world = BatchWorld(PolicySet([]), [_node("a")], [], _alike(1, CORES))
    view = world.state().view()
    stale = Freshness(stale={Domain.PODS: "pods are 95 s old"})
    trial = place_all(world.requests, world.policies, view, NOW, freshness=stale)
    assert (trial.failed, trial.nodes, trial.message) == (0, [], "pods are 95 s old")
