"""What a pod asks for itself counts in every ranking, as it does for the scheduler."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from random import Random
from typing import Any

import jsonpatch
import msgspec
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.batch import place_all
from engine.model.decision import PlacementRequest
from engine.model.hold import HOLD_GATE
from engine.model.node import Node
from engine.model.policy_resource import WISH_WEIGHTS
from engine.pipeline import decide
from engine.placement import encode
from engine.policy import PolicySet, load_policies
from engine.simulation import SchedulerModel, node_scores, passing_nodes
from engine.view import ClusterState
from tests.builders import node_from, request_from
from tests.engine.measured_cluster import NOW, pod, report
from tests.engine.plugins.neighbour_worlds import model_of, random_cluster, random_pod, state_of
from tests.engine.policy.worlds import policies

Json = dict[str, Any]
BALANCED = load_policies([Path("policies/balanced/policy.yaml")])
OWNER = {"kind": "ReplicaSet", "name": "web", "uid": "u"}
ZONE = "topology.kubernetes.io/zone"
SOFT = {"key": "spot", "value": "true", "effect": "PreferNoSchedule"}
RESOURCES = {"limits": {"cpu": "200m", "memory": "128Mi"}, "requests": {"cpu": "100m"}}


def free_node(i: int, *taints: Json) -> Node:
    name, amounts = f"n{i:02}", {"cpu": "8", "memory": "32Gi", "pods": "110"}
    labels = {"kubernetes.io/hostname": name, ZONE: "ab"[i % 2]}
    wire = {
        "metadata": {"name": name, "labels": labels},
        "spec": {"taints": list(taints)},
        "status": {"allocatable": amounts, "capacity": amounts},
    }
    return node_from(wire)


def replica(i: int, **spec: Any) -> PlacementRequest:  # noqa: ANN401 (any part)
    wire = {
        "metadata": {
            "name": f"web-{i}",
            "uid": f"uid-{i}",
            "namespace": "shop",
            "labels": {"app": "web"},
            "ownerReferences": [OWNER],
        },
        "spec": {
            "containers": [{"name": "c", "image": "x", "resources": RESOURCES}],
            "schedulingGates": [{"name": HOLD_GATE}],
            **spec,
        },
    }
    return request_from(wire)


def deployment(**spec: Any) -> list[PlacementRequest]:  # noqa: ANN401
    return [replica(i, **spec) for i in range(12)]


def state_with(
    nodes: Sequence[Node], requests: Sequence[PlacementRequest], policies: PolicySet
) -> ClusterState:
    state = ClusterState()
    state.track_sums(policies.sum_profiles)
    for node in nodes:  # those with taints are idle
        state.set_node(node)
        state.set_usage(report(node.name, {"cpu": 0 if node.taints else 2000, "memory": 2**30}))
        if not node.taints:
            state.set_pod(pod(f"busy-{node.name}", node.name, limits={"cpu": "2"}), seen_at=NOW)
    for request in requests:
        state.set_pod(request.pod, seen_at=NOW)
    return state


def one_by_one(
    nodes: Sequence[Node], requests: Sequence[PlacementRequest], policies: PolicySet
) -> list[str]:
    """Return the node of each pod, decided on a cluster that was told of those before it."""
    state, taken = state_with(nodes, requests, policies), []
    for request in requests:
        decision = decide(request, policies, state.view(), NOW)
        taken.append(decision.names[decision.best(1).item()])
        state.nominate(request.pod.key, taken[-1])
    return taken


def placed(
    nodes: Sequence[Node], requests: Sequence[PlacementRequest], policies: PolicySet = BALANCED
) -> list[str]:
    """Return the node of each pod, about which batches, gangs and single decisions agree."""
    view = state_with(nodes, requests, policies).view()
    batch = place_all(requests, policies, view, NOW).nodes
    assert batch == one_by_one(nodes, requests, policies)
    return batch


def advised(
    nodes: Sequence[Node], requests: Sequence[PlacementRequest], policies: PolicySet = BALANCED
) -> list[str]:
    """Return where the scheduler binds pods with advice, each once the one before it is bound."""
    state, taken, scheduler = state_with(nodes, [], policies), [], SchedulerModel(0)
    for request in requests:
        view = state.view()
        operations = encode(decide(request, policies, view, NOW), request, view).operations
        after = jsonpatch.apply_patch(json.loads(request.raw), list(operations))
        written = PlacementRequest(pod=model_of(after), raw=b"")
        taken.append(scheduler.place(written, view, NOW))
        del view
        state.set_pod(msgspec.structs.replace(written.pod, node_name=taken[-1]), seen_at=NOW)
    return taken


NODES = [free_node(i) for i in range(24)]


def test_replicas_of_a_deployment_are_spread_over_free_nodes() -> None:
    taken = placed(NODES, deployment())
    assert len(set(taken)) == len(set(advised(NODES, deployment()))) == 12
    assert sum(int(name[1:]) % 2 for name in taken) == 6


def test_a_zone_that_a_pod_prefers_is_kept() -> None:
    zone = {"key": ZONE, "operator": "In", "values": ["b"]}
    preferred = [{"weight": 1, "preference": {"matchExpressions": [zone]}}]
    affinity = {"nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": preferred}}
    taken = placed(NODES, deployment(affinity=affinity))
    for each in (taken, advised(NODES, deployment(affinity=affinity))):
        assert {int(name[1:]) % 2 for name in each} == {1}
        assert len(set(each)) == 12


def test_pods_that_prefer_to_be_apart_are() -> None:
    siblings = {"matchLabels": {"app": "web"}}
    term = {"topologyKey": "kubernetes.io/hostname", "labelSelector": siblings}
    weighted = [{"weight": 100, "podAffinityTerm": term}]
    affinity = {"podAntiAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": weighted}}
    assert len(set(placed(NODES, deployment(affinity=affinity)))) == 12


def test_nodes_with_soft_taints_stay_empty_while_others_fit() -> None:
    # By resources alone the tainted ones are the best: 100 points by LimitAware, some 50 by
    # LoadAware x 2; against 300 for no taint.
    tainted = [free_node(i, SOFT) for i in range(24, 28)]
    for place in (placed, advised):
        taken = place([*NODES, *tainted], deployment())
        assert set(taken).isdisjoint(node.name for node in tainted)


def test_weights_can_be_changed_and_scores_switched_off() -> None:
    text = "scores: [{name: first, expression: 'node.name == \"n24\" ? 1 : 0'}]\n"
    nodes = [*NODES, free_node(24, SOFT)]

    def best(placement: str = "") -> str:
        return one_by_one(nodes, [replica(0)], policies(p=text + placement))[0]

    assert best() != "n24"  # 300 points for no taint
    assert best("placement: {schedulerScores: {TaintToleration: 0}}") == "n24"
    assert best("placement: {schedulerScores: Off}") == "n24"
    assert best('placement: {schedulerScores: "Off"}') == "n24"


@pytest.mark.parametrize("plugin", ["TaintToleration", "PodTopologySpread"])
def test_a_score_of_a_policy_takes_the_place_of_the_schedulers(plugin: str) -> None:
    state = state_with([*NODES, free_node(24, SOFT)], [], PolicySet())
    text = f"scores: [{{name: mine, plugin: {plugin}, weight: 7}}]"
    scored = decide(replica(0), policies(p=text), state.view(), NOW).scored
    weights = {score.rule: score.weight for score in scored}
    both = {"TaintToleration": 3, "PodTopologySpread": 2}
    assert weights == {name: both[name] for name in both if name != plugin} | {"mine": 7}


def test_scores_that_cannot_tell_nodes_apart_are_left_out() -> None:
    lone = msgspec.structs.replace(replica(0).pod, owner_kinds=())
    view = state_with(NODES, [], PolicySet()).view()
    decision = decide(PlacementRequest(pod=lone, raw=b""), policies(p="scores: []"), view, NOW)
    assert decision.scored == ()


@settings(max_examples=40)
@given(random=st.randoms(use_true_random=False))
def test_without_scores_of_policies_the_best_node_is_the_schedulers_but_for_resources(
    random: Random,
) -> None:
    cluster, incoming = random_cluster(random), random_pod(random)
    if random.random() < 0.5:
        incoming["metadata"]["ownerReferences"] = [OWNER]
    view, model = state_of(cluster).view(), model_of(incoming)
    (rows,) = passing_nodes(model, view, NOW).nonzero()
    request = PlacementRequest(pod=model, raw=b"")
    decision = decide(request, policies(p="scores: []"), view, NOW)
    if not rows.size:
        assert not len(decision.ranking)
        return
    points = node_scores(model, view, NOW)
    totals = np.sum([weight * points[name] for name, weight in WISH_WEIGHTS], axis=0)
    best = rows[totals == totals.max()].tolist()
    assert decision.best(1).item() in best
