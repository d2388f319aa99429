"""Pods of a batch are placed as one by one would be."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

import msgspec
import pytest

from engine.batch import BatchOutcome, place_all
from engine.model.decision import PlacementRequest
from engine.model.node import Node
from engine.pipeline import decide
from tests.engine.batch.worlds import ALL_PODS, BatchWorld, plain, policies_of, request
from tests.engine.measured_cluster import GI, NOW, node, report
from tests.engine.policy.worlds import Json, policies


def one_by_one(world: BatchWorld) -> list[BatchOutcome]:
    """Decide each pod on a cluster that was told of those before it, until one has no node."""
    state, outcomes = world.state(), []
    for each in world.requests:
        decision = decide(each, policies_of(each, world), state.view(), NOW, scope=ALL_PODS)
        outcomes.append(BatchOutcome.of(decision))
        if not outcomes[-1].node:
            break
        state.nominate(each.pod.key, outcomes[-1].node)
    return outcomes


def _alike(count: int, spec: Json, **metadata: str) -> list[PlacementRequest]:
    template = {"metadata": {"namespace": "default", **metadata}, "spec": spec}
    return [request(template, f"p{i}") for i in range(count)]


def _nodes(count: int) -> list[Node]:
    return [node(f"n{i}", cpu="4", memory="8Gi", pods="3") for i in range(count)]


SPREAD = policies(spread="scores: [{name: few, expression: -node.podCount}]")
FULL = policies(full="scores: [{name: full, expression: node.podCount}]")
CONTAINERS = {"containers": [{"resources": {"requests": {"cpu": "1"}}}]}


def test_nominations_count_for_the_pods_after_them() -> None:
    # PodState avoids nodes that pods are to come to: each node is taken once before any is twice.
    state_policy = policies(state="scores: [{plugin: PodState}]")
    world = BatchWorld(state_policy, _nodes(2), [], _alike(4, CONTAINERS))
    outcomes = place_all(world.requests, world.policies, world.state().view(), NOW).outcomes
    assert [outcome.node for outcome in outcomes[:2]] in (["n0", "n1"], ["n1", "n0"])
    assert plain(outcomes) == plain(one_by_one(world))


def test_pods_spread_as_each_sees_those_before_it() -> None:
    # Two nodes of 3 pods each: by turns, and the seventh pod fits nowhere.
    world = BatchWorld(SPREAD, _nodes(2), [], _alike(7, CONTAINERS))
    outcomes = place_all(world.requests, world.policies, world.state().view(), NOW).outcomes
    taken = [outcome.node for outcome in outcomes]
    assert [len(set(taken[i : i + 2])) for i in (0, 2, 4)] == [2, 2, 2]
    assert taken[6] == ""
    assert outcomes[6].message.startswith(
        "0 of 2 nodes fit; left out: 2 NodeResourcesFit (Too many"
    )
    assert [outcome.candidates for outcome in outcomes] == [2, 2, 2, 2, 2, 1, 0]


def _apart(key: str, value: str) -> Json:
    term = {"topologyKey": "host", "labelSelector": {"matchLabels": {key: value}}}
    required = {"requiredDuringSchedulingIgnoredDuringExecution": [term]}
    return {**CONTAINERS, "affinity": {"podAntiAffinity": required}}


def _hosts(count: int) -> list[Node]:
    return [replace(each, labels={"host": each.name}) for each in _nodes(count)]


def test_pods_of_one_template_that_others_tell_apart_are_decided_apart() -> None:
    # `half` is "0" and "1" by turns, and a pod on n0 keeps those with "1" away.
    [keeper] = _alike(1, _apart("half", "1"))
    running = msgspec.structs.replace(keeper.pod, name="keeper", node_name="n0")
    world = BatchWorld(SPREAD, _hosts(2), [running], _alike(4, CONTAINERS))
    outcomes = place_all(world.requests, world.policies, world.state().view(), NOW).outcomes
    assert [outcomes[i].node for i in (1, 3)] == ["n1", "n1"]
    assert plain(outcomes) == plain(one_by_one(world))


def test_a_pod_that_keeps_others_away_counts_for_templates_before_it() -> None:
    plain_pods = _alike(6, CONTAINERS)
    [keeper] = _alike(1, _apart("half", "1"))
    keeper = replace(
        keeper, pod=msgspec.structs.replace(keeper.pod, name="keeper", uid="uid-keeper")
    )
    requests = [*plain_pods[:2], keeper, *plain_pods[2:]]
    world = BatchWorld(FULL, _hosts(3), [], requests)
    outcomes = place_all(world.requests, world.policies, world.state().view(), NOW).outcomes
    nodes = [outcome.node for outcome in outcomes]
    # p0, p1 and p2 fill a node; of those where p3 has room the keeper's is the fullest.
    assert nodes[0] == nodes[1] == nodes[3] != nodes[2]
    assert nodes[4] not in {nodes[0], nodes[2]}
    assert plain(outcomes) == plain(one_by_one(world))


def test_pods_that_spread_see_those_before_them() -> None:
    constraint = {
        "topologyKey": "host",
        "maxSkew": 1,
        "whenUnsatisfiable": "DoNotSchedule",
        "labelSelector": {"matchLabels": {"app": "shop"}},
    }
    spec = {**CONTAINERS, "topologySpreadConstraints": [constraint]}
    template = {"metadata": {"namespace": "default", "labels": {"app": "shop"}}, "spec": spec}
    world = BatchWorld(FULL, _hosts(3), [], [request(template, f"p{i}") for i in range(6)])
    outcomes = place_all(world.requests, world.policies, world.state().view(), NOW).outcomes
    # The fullest node is the best, but each of three takes one pod before any takes two.
    taken = [outcome.node for outcome in outcomes]
    assert [len(set(taken[i : i + 3])) for i in (0, 3)] == [3, 3]
    assert plain(outcomes) == plain(one_by_one(world))


_ZONES_EVENLY = {
    "topologySpreadConstraints": [
        {
            "topologyKey": "zone",
            "maxSkew": 1,
            "whenUnsatisfiable": "DoNotSchedule",
            "labelSelector": {"matchLabels": {"app": "shop"}},
        }
    ]
}
_NEAR_SHOP = {"topologyKey": "zone", "labelSelector": {"matchLabels": {"app": "shop"}}}
_IN_ONE_ZONE = {
    "affinity": {"podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [_NEAR_SHOP]}}
}


@pytest.mark.parametrize(
    "specs",
    [
        [_ZONES_EVENLY],
        [_IN_ONE_ZONE],
        [_apart("app", "shop")],
        [_ZONES_EVENLY, {}, _apart("half", "1")],
        [_apart("app", "shop"), _IN_ONE_ZONE, _ZONES_EVENLY],
    ],
    ids=["spread", "near", "apart", "beside others", "all three"],
)
def test_pods_with_an_eye_on_each_other_are_decided_as_one_by_one(specs: Sequence[Json]) -> None:
    policy_set = policies(
        few="scores: [{name: few, expression: -node.podCount}]",
        fit="scores: [{plugin: NodeResourcesFit}]",
        even="scores: [{plugin: NodeResourcesBalancedAllocation}]",
    )
    nodes = [
        replace(
            node(f"n{i}", cpu=str(2 + i % 7), memory="8Gi", pods="4"),
            labels={"host": f"n{i}"} | ({} if i % 9 == 0 else {"zone": "abc"[i % 3]}),
        )
        for i in range(60)
    ]
    by_template = [
        [
            request(
                {
                    "metadata": {"namespace": "default", "labels": {"app": app}},
                    "spec": {**CONTAINERS, **spec},
                },
                f"p{i}",
            )
            for i in range(90)
        ]
        for spec, app in zip(specs, ("shop", "shop", "till"), strict=False)
    ]
    requests = [by_template[i // 2 % len(specs)][i] for i in range(90)]
    world = BatchWorld(policy_set, nodes, [], requests)
    batch = place_all(requests, policy_set, world.state().view(), NOW).outcomes
    assert plain(batch) == plain(one_by_one(world))
    assert len({outcome.node for outcome in batch}) > 15


def test_nodes_that_come_by_a_pod_count_even_where_no_rule_scores_them() -> None:
    # No pod is near one of an odd number until p1 is, which may be near itself: so it comes first.
    near = {"topologyKey": "host", "labelSelector": {"matchLabels": {"half": "1"}}}
    required = {"requiredDuringSchedulingIgnoredDuringExecution": [near]}
    spec = {**CONTAINERS, "affinity": {"podAffinity": required}}
    room = policies(room="filters: [{name: room, expression: node.podCount < 4}]")
    world = BatchWorld(room, _hosts(12), [], _alike(5, spec)[1:])
    outcomes = place_all(world.requests, world.policies, world.state().view(), NOW).outcomes
    assert "" != outcomes[0].node == outcomes[1].node
    assert plain(outcomes) == plain(one_by_one(world))


_EVEN_HOSTS = {"topologyKey": "host", "maxSkew": 1, "whenUnsatisfiable": "DoNotSchedule"}
_ODD = {"labelSelector": {"matchLabels": {"half": "1"}}}
_SHOP = {"labelSelector": {"matchLabels": {"app": "shop"}}}
_NEAR_ODD = [{"topologyKey": "host", **_ODD}]


@pytest.mark.parametrize(
    "spec",
    [
        {"topologySpreadConstraints": [_EVEN_HOSTS | _ODD]},
        {"topologySpreadConstraints": [_EVEN_HOSTS | _SHOP | {"matchLabelKeys": ["half"]}]},
        {
            "affinity": {
                "podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": _NEAR_ODD}
            }
        },
    ],
    ids=["spread by selector", "spread by key", "affinity"],
)
def test_pods_that_their_own_selectors_tell_apart_are_decided_apart(spec: Json) -> None:
    # `half` is "1" and "0" by turns: half of the pods do not count for what all of them ask for.
    labels = {"app": "shop"}
    template = {"metadata": {"namespace": "default", "labels": labels}, "spec": CONTAINERS | spec}
    world = BatchWorld(FULL, _hosts(4), [], [request(template, f"p{i}") for i in range(1, 10)])
    outcomes = place_all(world.requests, world.policies, world.state().view(), NOW).outcomes
    assert plain(outcomes) == plain(one_by_one(world))


def test_a_batch_leaves_the_view_and_what_it_remembers_as_they_are() -> None:
    world = BatchWorld(SPREAD, _nodes(3), [], _alike(5, CONTAINERS))
    view, first = world.state().view(), world.requests[0]
    before = decide(first, SPREAD, view, NOW)
    place_all(world.requests, SPREAD, view, NOW)
    after = decide(first, SPREAD, view, NOW)
    assert after.totals.tolist() == before.totals.tolist()
    assert after.candidates.tolist() == before.candidates.tolist()


@pytest.mark.parametrize("templates", [1, 3, 20])
def test_a_batch_on_many_nodes_is_decided_as_one_by_one(templates: int) -> None:
    ratios = "{defaultLimitToAllocatableRatio: {cpu: 150%}}"
    policy_set = policies(
        few="scores: [{name: few, expression: -node.podCount}]",
        fit="scores: [{plugin: NodeResourcesFit}]",
        limits=f"scores: [{{plugin: LimitAware, args: {ratios}}}]",
        load="scores: [{plugin: LoadAware, weight: 2}]",
    )
    nodes = [node(f"n{i}", cpu=str(2 + i % 7), memory="8Gi", pods="4") for i in range(700)]
    reports = [report(f"n{i}", {"cpu": 37 * i % 1900, "memory": GI}) for i in range(0, 700, 2)]
    specs: list[Json] = [
        {"containers": [{"resources": {"requests": {"cpu": f"{i}00m"}, "limits": {"cpu": "1"}}}]}
        for i in range(1, templates + 1)
    ]
    by_template = [_alike(300, spec) for spec in specs]
    requests = [by_template[i % templates][i] for i in range(300)]
    world = BatchWorld(policy_set, [*nodes, *reports], [], requests)
    batch = place_all(requests, policy_set, world.state().view(), NOW).outcomes
    assert plain(batch) == plain(one_by_one(world))
    assert len({outcome.node for outcome in batch}) > 100


_LIMITS = "{plugin: LimitAware, args: {defaultLimitToAllocatableRatio: {cpu: 150%}}}"
_TAKING_TURNS = {
    "where foretold": "scores: [{name: few, expression: -node.podCount}, {plugin: LoadAware}]",
    "onto nodes just taken": "scores: [{name: full, expression: node.requested.cpu}]",
    "by limits": f"filters: [{_LIMITS}]\nscores: [{_LIMITS}, {{plugin: LoadAware}}]",
    "by rules of one pod at a time": (
        "filters: [{name: half, expression: node.podCount < 2 || pod.labels.half == '1'}]\n"
        "scores: [{plugin: NodeResourcesBalancedAllocation}, {plugin: TargetLoadPacking}]"
    ),
    "evenly over all nodes": (
        f"scores: [{_LIMITS.replace('}}}', '}, strategy: Balanced}}')},"
        " {plugin: LoadAware, args: {strategy: Balanced}}]"
    ),
    "without a score on some nodes": (
        "scores: [{name: load, expression: node.usage.cpu - double(node.podCount)}]"
    ),
}


@pytest.mark.parametrize("rules", _TAKING_TURNS.values(), ids=_TAKING_TURNS)
@pytest.mark.parametrize("others", ["", "match: {objectSelector: {matchLabels: {tier: web}}}\n"])
def test_templates_that_take_turns_are_decided_as_one_by_one(rules: str, others: str) -> None:
    # The second policy is for every second template alone, if it is for some only.
    policy_set = policies(own=rules, others=f"{others}scores: [{{plugin: NodeResourcesFit}}]")
    nodes = [node(f"n{i}", cpu=str(2 + i % 5), memory="8Gi", pods="4") for i in range(40)]
    reports = [report(f"n{i}", {"cpu": 37 * i % 1900, "memory": GI}) for i in range(0, 40, 3)]
    templates: list[Json] = [
        {
            "metadata": {
                "namespace": "default",
                "labels": {
                    "tier": ("web", "db")[i % 2],
                    "koordinator.sh/priority-class": ("koord-prod", "koord-batch")[i % 3 == 0],
                },
            },
            "spec": {
                "containers": [
                    {
                        "resources": {
                            "requests": {"cpu": f"{100 + 50 * i}m"},
                            "limits": {"cpu": "1"} if i % 4 else {},
                        }
                    }
                ]
            },
        }
        for i in range(11)
    ]
    requests = [request(templates[i % 11], f"p{i}") for i in range(170)]
    world = BatchWorld(policy_set, [*nodes, *reports], [], requests)
    batch = place_all(requests, policy_set, world.state().view(), NOW).outcomes
    assert plain(batch) == plain(one_by_one(world))
    assert batch[0].node


_ORDERS = {
    "by turns": lambda i: i % 7,
    "in runs": lambda i: i // 4 % 7,
    "without order": lambda i: i * i * 31 // 7 % 7,
    "two of them most of the time": lambda i: i % 2 if i % 23 else i // 23 % 7,
}


@pytest.mark.parametrize("order", _ORDERS.values(), ids=_ORDERS)
@pytest.mark.parametrize("rules", _TAKING_TURNS.values(), ids=_TAKING_TURNS)
def test_templates_in_any_order_are_decided_as_one_by_one(
    rules: str, order: Callable[[int], int]
) -> None:
    # Pods of the sixth keep their own away, those of the last are even.
    far_apart = _apart("app", "app5")
    even = {**_ZONES_EVENLY["topologySpreadConstraints"][0]}
    even["labelSelector"] = {"matchLabels": {"app": "app6"}}
    specs: list[Json] = [{}, {}, {}, {}, {}, far_apart, {"topologySpreadConstraints": [even]}]
    templates: list[Json] = [
        {
            "metadata": {"namespace": "default", "labels": {"app": f"app{i}"}},
            "spec": spec
            | {"containers": [{"resources": {"requests": {"cpu": f"{100 + 60 * i}m"}}}]},
        }
        for i, spec in enumerate(specs)
    ]
    nodes = [
        replace(
            node(f"n{i}", cpu=str(2 + i % 5), memory="8Gi", pods="6"),
            labels={"host": f"n{i}", "zone": "abc"[i % 3]},
        )
        for i in range(30)
    ]
    reports = [report(f"n{i}", {"cpu": 37 * i % 1900, "memory": GI}) for i in range(0, 30, 3)]
    requests = [request(templates[order(i)], f"p{i}") for i in range(150)]
    world = BatchWorld(policies(own=rules), [*nodes, *reports], [], requests)
    batch = place_all(requests, world.policies, world.state().view(), NOW).outcomes
    assert plain(batch) == plain(one_by_one(world))
    assert any(outcome.node for outcome in batch)


def _of_tier(tier: str, expression: str) -> str:
    match = f"match: {{objectSelector: {{matchLabels: {{tier: {tier}}}}}}}\n"
    return f"{match}scores: [{{name: score, expression: '{expression}'}}]"


TIERS = policies(
    large=_of_tier("large", "node.allocatable.cpu - 100.0 * double(node.podCount)"),
    small=_of_tier("small", "-node.allocatable.cpu"),
    taken=_of_tier("taken", "node.allocatable.cpu * double(node.podCount)"),
)


def test_a_rare_template_sees_all_pods_since_its_last_turn() -> None:
    # So many nodes that a part of them is evaluated: those of the latest pods, and likely ones. It
    # begins anew for the small nodes; by then it lacks the largest, which the last pod is to take.
    tiers = ["taken", *["large"] * 290, "small", "large", "small", "large", "taken"]
    pods = [
        request(
            {"metadata": {"namespace": "default", "labels": {"tier": tier}}, "spec": CONTAINERS},
            f"p{i}",
        )
        for i, tier in enumerate(tiers)
    ]
    # Pods of one template that follow each other are not looked up in the part: two take turns.
    for i in range(1, 291, 2):
        pods[i] = request(
            {"metadata": {"namespace": "default", "labels": {"tier": "large"}}, "spec": LESS},
            f"p{i}",
        )
    nodes = [node(f"n{i}", cpu=f"{4000 + i}m", memory="8Gi", pods="3") for i in range(2_600)]
    world = BatchWorld(TIERS, nodes, [], pods)
    batch = place_all(world.requests, world.policies, world.state().view(), NOW).outcomes
    assert batch[-1].node == "n2599"
    assert plain(batch) == plain(one_by_one(world))


LESS = {"containers": [{"resources": {"requests": {"cpu": "500m"}}}]}
