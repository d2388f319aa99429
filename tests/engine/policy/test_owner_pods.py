from __future__ import annotations

import msgspec
import pytest

from engine.batch import decide_batch
from engine.model.node import Node
from engine.model.pod import Pod
from engine.model.request import PlacementRequest
from engine.model.well_known import HOSTNAME_LABEL, ZONE_LABEL
from engine.pipeline import decide
from engine.policy import RuleContext
from engine.policy.environment import ExpressionScope
from engine.policy.expressions import ScoreExpression
from engine.policy.programs import compile_expression
from engine.view import ClusterState, ClusterView, Domain
from tests.engine.measured_cluster import NOW, pod
from tests.engine.policy.worlds import policies

ZONES = {"a1": "a", "a2": "a", "b1": "b", "nowhere": ""}


def of(app: str, name: str, node: str = "", *kinds: str) -> Pod:
    labels = {"app": app}
    return msgspec.structs.replace(
        pod(name, node), labels=labels, owner_kinds=kinds or ("ReplicaSet",)
    )


def cluster() -> ClusterState:
    state = ClusterState()
    for name, zone in ZONES.items():
        labels = {HOSTNAME_LABEL: name} | ({ZONE_LABEL: zone} if zone else {})
        room = {"cpu": 4000, "memory": 1 << 33, "pods": 110}
        state.set_node(Node(name=name, labels=labels, allocatable=room))
    for i, node in enumerate(["a1", "a1", "a2", "nowhere"]):
        state.set_pod(of("web", f"web-{i}", node), seen_at=NOW)
    state.set_pod(of("db", "db-0", "b1"), seen_at=NOW)
    return state


def values(source: str, new: Pod, view: ClusterView) -> dict[str, float]:
    rule = ScoreExpression(compile_expression(source, ExpressionScope.RULES, {}))
    context = RuleContext(PlacementRequest(pod=new, raw=b""), view, NOW)
    column = rule.column(context, view.valid)
    return {view.names[row]: float(column[row]) for row in view.valid.nonzero()[0]}


@pytest.mark.parametrize("on_node", ["node.podsOfOwner", "[node.podsOfOwner][0]"])
def test_pods_with_the_labels_of_the_pod_are_counted_on_its_node_and_in_its_zone(
    on_node: str,
) -> None:
    view, zone = cluster().view(), on_node.replace("podsOfOwner", "podsOfOwnerInZone")
    for _ in range(2):  # nothing is remembered for another pod
        web, db = of("web", "new"), of("db", "new")
        assert values(on_node, web, view) == {"a1": 2, "a2": 1, "b1": 0, "nowhere": 1}
        assert values(zone, web, view) == {"a1": 3, "a2": 3, "b1": 0, "nowhere": 0}
        assert values(on_node, db, view) == {"a1": 0, "a2": 0, "b1": 1, "nowhere": 0}
        job = of("web", "new", "", "Job")
        assert set(values(f"{on_node} + {zone}", job, view).values()) == {0}


def test_a_rule_sees_the_pods_that_came_meanwhile() -> None:
    state = cluster()
    assert values("node.podsOfOwnerInZone", of("db", "new"), state.view())["b1"] == 1
    state.set_pod(of("db", "db-1", "b1"), seen_at=NOW)
    assert values("node.podsOfOwnerInZone", of("db", "new"), state.view())["b1"] == 2


def test_a_rule_about_an_owner_rests_on_nodes_and_pods() -> None:
    rule = ScoreExpression(compile_expression("node.podsOfOwner", ExpressionScope.RULES, {}))
    assert rule.reads == (Domain.NODES, Domain.PODS)


@pytest.mark.parametrize(
    "rule",
    [
        "scores: [{name: spread, expression: '-2 * node.podsOfOwner - node.podsOfOwnerInZone'}]",
        "filters: [{name: at-most-two, expression: node.podsOfOwner < 2}]\nscores: []",
        "filters: [{name: zone, expression: node.podsOfOwnerInZone < 5}]\nscores: []",
    ],
)
def test_pods_that_are_decided_together_are_decided_as_one_by_one(rule: str) -> None:
    rules = policies(p=f"{rule}\nplacement: {{schedulerScores: Off}}")
    requests = [
        PlacementRequest(pod=of(("web", "db")[i % 3 == 2], f"new-{i}"), raw=b"") for i in range(9)
    ]
    state, taken = cluster(), []
    for request in requests:
        state.set_pod(request.pod, seen_at=NOW)
        decision = decide(request, rules, state.view(), NOW)
        best = decision.best(1)
        taken.append(decision.names[best.item()] if best.size else "")
        if best.size:
            state.set_pod(msgspec.structs.replace(request.pod, node_name=taken[-1]), seen_at=NOW)
    together = decide_batch(requests, rules, cluster().view(), NOW)
    assert [each.node or "" for each in together] == taken
