from __future__ import annotations

import msgspec
import numpy as np
import pytest

from engine.batch import place_all
from engine.cel import CelType
from engine.model import api
from engine.model.decision import Advice, PlacementRequest
from engine.model.node import Node
from engine.model.pod import Pod
from engine.model.time import Micros
from engine.model.well_known import HOSTNAME_LABEL, ZONE_LABEL
from engine.pipeline import decide
from engine.policy import RuleContext
from engine.policy.activation import (
    NODE_FIELDS,
    POD_FIELDS,
    node_value,
    pod_value,
    request_value,
)
from engine.policy.compile import compile_expression
from engine.policy.environment import ExpressionScope
from engine.policy.expressions import ScoreExpression
from engine.view import ClusterState, ClusterView, Domain
from tests.engine.measured_cluster import pod
from tests.engine.policy.worlds import GIB, NOW, node, policies, policy, request_of, usage, view_of

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
    for i, name in enumerate(["a1", "a1", "a2", "nowhere"]):
        state.set_pod(of("web", f"web-{i}", name), seen_at=NOW)
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
        taken.append(decision.best_node)
        if not decision.best_node:
            break
        state.set_pod(msgspec.structs.replace(request.pod, node_name=taken[-1]), seen_at=NOW)
    together = place_all(requests, rules, cluster().view(), NOW)
    assert [each.node for each in together.outcomes] == taken


_POLICY = policy("""
variables:
  - {name: team, expression: pod.labels.team}
  - {name: steps, expression: "pod.ownerKinds.all(kind, kind != 'X')"}
filters:
  - {name: team, expression: "variables.team == 'a' || node.labels[?'pool'].orValue('') != 'a'"}
  - {name: loop, expression: "variables.steps && node.podCount < 9"}
  - {name: name, expression: "pod.generateName != 'b' || node.ready"}
  - {name: size, expression: "pod.requests.cpu < 2.0 || 'pool' in node.labels"}
scores:
  - {name: free, expression: "node.allocatable.cpu - node.requested.cpu - pod.requests.cpu"}
  - {name: zone, expression: "pod.labels[?'zone'].orValue('') == 'z' ? 1 : 0"}
""")
_VIEW = view_of(node("a", labels={"pool": "a"}), node("b", labels={"pool": "b"}), node("c"))


def _evaluate(context: RuleContext) -> None:
    """Evaluate each rule."""
    for rule in _POLICY.filters:
        rule.outcome(context)
    for score in _POLICY.scores:
        score.outcome(context, np.arange(len(_VIEW)))


@pytest.mark.parametrize("owners", [["Y", "Y"], []])
def test_values_are_computed_once_for_a_request_on_several_views(owners: list[str]) -> None:
    request = request_of(ownerReferences=[{"kind": kind} for kind in owners])
    context = _POLICY.context(request, _VIEW, NOW)
    first, second = context.on(_VIEW), context.on(_VIEW)
    for each in (first, second):
        _evaluate(each)
    assert context.budget.steps_left - first.budget.steps_left == len(owners)
    assert second.budget.steps_left == context.budget.steps_left
    assert "p: variable `team`: no such key: `team`" in first.errors
    assert not any(line.startswith("p: variable") for line in second.errors)


def _node(view: ClusterView, *fields: str, now: Micros = NOW) -> dict[str, object]:
    return node_value(fields or NODE_FIELDS, view, view.rows["a"], now)


def test_amounts_are_in_cores_bytes_and_units() -> None:
    spec = {
        "containers": [
            {
                "resources": {
                    "requests": {"cpu": "250m", "memory": "1Gi", "nvidia.com/gpu": 2},
                    "limits": {"cpu": "1"},
                }
            }
        ]
    }
    pod = pod_value(POD_FIELDS, request_of(spec).pod)
    assert isinstance(pod, dict)
    assert pod["requests"] == {"cpu": 0.25, "memory": float(GIB), "nvidia.com/gpu": 2.0}
    assert pod["limits"] == {"cpu": 1.0}


def test_a_pod_that_requests_nothing_requests_0_and_has_no_limit() -> None:
    pod = pod_value(POD_FIELDS, request_of({"containers": [{}]}).pod)
    assert isinstance(pod, dict)
    assert pod["requests"] == {"cpu": 0.0, "memory": 0.0}
    assert pod["limits"] == {}


def test_a_pod_has_plain_values() -> None:
    request = request_of(
        {
            "tolerations": [{"key": "gpu", "operator": "Exists"}],
            "nodeSelector": {"zone": "a"},
            "priority": 9500,
        },
        generateName="web-",
        labels={"app": "web"},
        ownerReferences=[{"kind": "ReplicaSet", "name": "web"}],
    )
    pod = pod_value(POD_FIELDS, request.pod)
    assert isinstance(pod, dict)
    assert (pod["name"], pod["generateName"], pod["namespace"]) == ("", "web-", "shop")
    assert pod["tolerations"] == [{"key": "gpu", "operator": "Exists", "value": "", "effect": ""}]
    assert (pod["labels"], pod["nodeSelector"]) == ({"app": "web"}, {"zone": "a"})
    assert (pod["ownerKinds"], pod["koordinatorPriorityClass"]) == (["ReplicaSet"], "koord-prod")


def test_the_object_is_what_was_sent_and_there_is_no_old_one() -> None:
    request = request_of({"hostNetwork": True}, request={"operation": "CREATE"})
    assert request_value("object", request) == {
        "metadata": {"namespace": "shop"},
        "spec": {"hostNetwork": True},
    }
    assert request_value("oldObject", request) is None
    assert request_value("request", request) == {"operation": "CREATE"}


def test_a_namespace_always_has_its_name_as_a_label() -> None:
    assert request_value("namespaceObject", request_of(namespace_labels={"team": "a"})) == {
        "metadata": {
            "name": "shop",
            "labels": {"kubernetes.io/metadata.name": "shop", "team": "a"},
        }
    }


def test_a_node_has_the_sums_of_its_pods() -> None:
    state = ClusterState()
    state.set_node(
        node(
            "a",
            labels={"zone": "z"},
            taints=(api.Taint(key="gpu", effect="NoSchedule"),),
            allocatable={"cpu": 4000, "memory": 8 * GIB, "nvidia.com/gpu": 4},
        )
    )
    containers = [{"resources": {"requests": {"cpu": "500m"}}}]
    pod = request_of({"containers": containers, "tolerations": [{"operator": "Exists"}]}).pod
    state.assume(pod, Advice(nodes=("a",), id="1"), at=NOW)
    told = _node(state.view())
    assert told["labels"] == {"zone": "z"}
    assert told["taints"] == [{"key": "gpu", "value": "", "effect": "NoSchedule"}]
    assert told["allocatable"] == {"cpu": 4.0, "memory": 8.0 * GIB, "nvidia.com/gpu": 4.0}
    assert told["requested"] == {"cpu": 0.5, "memory": 0.0, "pods": 1.0, "nvidia.com/gpu": 0.0}
    assert told["limits"] == {"cpu": 0.0, "memory": 0.0, "nvidia.com/gpu": 0.0}
    assert told["podCount"] == 1


def test_usage_is_absent_without_a_report_and_once_it_is_3_minutes_old() -> None:
    assert "usage" not in _node(view_of(node("a")))
    assert "usage" in _node(view_of(node("a"), usage("a", age=179, cpu=1)))
    assert "usage" not in _node(view_of(node("a"), usage("a", age=180, cpu=1)))


def test_only_the_requested_fields_are_computed() -> None:
    assert _node(view_of(node("a")), "name", "usage") == {"name": "a"}


def test_every_value_is_one_the_language_knows() -> None:
    view = view_of(node("a"), usage("a", cpu=1))
    request = request_of()
    of_request = [pod_value(POD_FIELDS, request.pod), request_value("namespaceObject", request)]
    values = [_node(view), *of_request]
    assert all(type(value) is dict for value in values)
    assert not any(isinstance(value, CelType) for value in values)
