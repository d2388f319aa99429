from __future__ import annotations

import re
from collections.abc import Iterator
from typing import get_args, get_origin

import msgspec
import numpy as np
import pytest
from pydantic import BaseModel

from engine.batch import place_all
from engine.cel import CelError, CelProblemsError, CelType, Environment, compile_program
from engine.cel.values import type_of
from engine.documents.validation import MOST_PROBLEMS
from engine.errors import InvalidFileError
from engine.model import api
from engine.model.decision import Advice, PlacementRequest
from engine.model.node import Node
from engine.model.pod import Pod
from engine.model.time import Micros
from engine.model.well_known import HOSTNAME_LABEL, ZONE_LABEL
from engine.pipeline import decide
from engine.plugins import PLUGINS
from engine.policy import RuleContext
from engine.policy.compile import compile_expression
from engine.policy.environment import (
    BY_RESOURCE,
    LISTS_OF_RESOURCES,
    NODE_FIELDS,
    POD_FIELDS,
    TABLE,
    ExpressionScope,
    environment,
    misspelt_resources,
    node_value,
    pod_value,
    request_value,
    scope_of,
)
from engine.policy.rules import ScoreExpression
from engine.view import ClusterState, ClusterView, Domain
from tests.engine.measured_cluster import pod
from tests.engine.policy.worlds import GIB, NOW, node, policies, policy, request_of, usage, view_of
from tests.policy_docs.names import name_reference


def _keys(value: object) -> set[str]:
    assert isinstance(value, dict)
    return set(value)


def _declared(path: str) -> set[str]:
    return {
        entry.path.rpartition(".")[2] for entry in TABLE if entry.path.rpartition(".")[0] == path
    }


def test_a_pod_has_exactly_the_declared_fields() -> None:
    assert _keys(pod_value(POD_FIELDS, request_of().pod)) == _declared("pod")


def test_a_node_has_exactly_the_declared_fields() -> None:
    view = view_of(node("a", created=NOW), usage("a", cpu=1))
    assert set(NODE_FIELDS) == _declared("node")
    assert _keys(node_value(NODE_FIELDS, view, view.rows["a"], NOW)) == _declared("node")


def test_a_namespace_has_exactly_the_declared_fields() -> None:
    value = request_value("namespaceObject", request_of())
    assert isinstance(value, dict)
    assert _keys(value) == _declared("namespaceObject")
    assert _keys(value["metadata"]) == _declared("namespaceObject.metadata")


def test_every_value_has_its_declared_type() -> None:
    view = view_of(node("a", created=NOW), usage("a", cpu=1))
    values = {"pod": pod_value(POD_FIELDS, request_of().pod)}
    values["node"] = node_value(NODE_FIELDS, view, view.rows["a"], NOW)
    checked = 0
    for entry in TABLE:
        root, _, field = entry.path.partition(".")
        if root in values and field and "." not in field:
            found = values[root]
            assert isinstance(found, dict)
            assert type_of(found[field]).name == entry.type.name, entry.path
            checked += 1
    assert checked == len(_declared("pod")) + len(_declared("node"))


@pytest.mark.parametrize(
    ("expression", "scope"),
    [
        ("pod.name == ''", ExpressionScope.MATCH),
        ("object.spec == request.options", ExpressionScope.MATCH),
        ("variables.a == 1", ExpressionScope.VARIABLES),
        ("node.name == ''", ExpressionScope.RULES),
    ],
)
def test_a_name_is_known_from_its_place_on(expression: str, scope: ExpressionScope) -> None:
    for place in ExpressionScope:
        known = environment(place, {"a": type_of(1)})
        if place >= scope:
            compile_program(expression, known)
        else:
            with pytest.raises(CelProblemsError, match="unknown name"):
                compile_program(expression, known)


def test_the_scope_in_which_a_name_is_first_known() -> None:
    assert scope_of("object") is ExpressionScope.MATCH
    assert scope_of("variables") is ExpressionScope.VARIABLES
    assert scope_of("node") is ExpressionScope.RULES
    assert scope_of("nod") is None


@pytest.mark.parametrize(
    ("expression", "message", "hint"),
    [
        (
            "node.usage.cpuu > 1.0",
            "`node.usage` cannot have a resource `cpuu`",
            "did you mean `cpu`?",
        ),
        (
            "has(pod.limits.memry)",
            "`pod.limits` cannot have a resource `memry`",
            "did you mean `memory`?",
        ),
        (
            "pod.requests['accelerator'] > 0.0",
            "`pod.requests` cannot have a resource `accelerator`",
            "resources of a vendor are named with its domain, as `nvidia.com/gpu`",
        ),
        (
            "node.allocatable[?'Memory'].hasValue()",
            "`node.allocatable` cannot have a resource `Memory`",
            "did you mean `memory`?",
        ),
    ],
)
def test_a_resource_that_cannot_be_is_a_mistake(expression: str, message: str, hint: str) -> None:
    program = compile_program(expression, environment(ExpressionScope.RULES))
    (problem,) = misspelt_resources(program.root)
    assert (problem.message, problem.hint) == (message, hint)


@pytest.mark.parametrize(
    "expression",
    [
        "node.allocatable['ephemeral-storage'] > 0.0",
        "node.requested.pods < node.allocatable.pods",
        "'gpu' in pod.requests",
        "pod.requests[?'nvidia.com/gpu'].orValue(0.0) > 0",
        "node.allocatable['hugepages-2Mi'] > 0.0",
        "pod.requests.exists(name, name == 'gpu')",
        "pod.requests[pod.labels.resource] > 0.0",
        "node.labels.cpuu == ''",
    ],
)
def test_a_resource_that_may_be_is_none(expression: str) -> None:
    program = compile_program(expression, environment(ExpressionScope.RULES))
    assert list(misspelt_resources(program.root)) == []


def test_a_ratio_of_amounts_is_a_fraction_and_not_an_integer() -> None:
    program = compile_program(
        "node.usage.memory / node.allocatable.memory", environment(ExpressionScope.RULES)
    )
    view = view_of(node("a"), usage("a", memory=2 * GIB))
    value = node_value(["usage", "allocatable"], view, view.rows["a"], NOW)
    assert program.evaluate({"node": value}) == 0.25  # 2 of 8 GiB


_BY_NODE = {"nodePowerModel"}
"""Arguments that map names of nodes to something."""

_VENDOR = "resources of a vendor are named with its domain, as `nvidia.com/gpu`"


def _mistakes(spec: str) -> list[tuple[str, str]]:
    with pytest.raises(InvalidFileError) as caught:
        policy(spec)
    return [(problem.message, problem.hint) for problem in caught.value.problems]


@pytest.mark.parametrize(
    ("spec", "message", "hint"),
    [
        (
            "filters: [{plugin: LoadAware, args: {usageThresholds: {memroy: 90}}}]",
            "`usageThresholds` cannot have a resource `memroy`",
            "did you mean `memory`?",
        ),
        (
            "filters: [{plugin: LoadAware, args: {prodUsageThresholds: {cpus: 90}}}]",
            "`prodUsageThresholds` cannot have a resource `cpus`",
            "did you mean `cpu`?",
        ),
        (
            "filters: [{plugin: LoadAware, args: {aggregated: {usageThresholds: {CPU: 1}}}}]",
            "`usageThresholds` cannot have a resource `CPU`",
            "did you mean `cpu`?",
        ),
        (
            "filters: [{plugin: LimitAware, args: {defaultLimitToAllocatableRatio: {memry: 1}}}]",
            "`defaultLimitToAllocatableRatio` cannot have a resource `memry`",
            "did you mean `memory`?",
        ),
        (
            "scores: [{plugin: LimitAware, args: {scoringResourceWeights: {accelerator: 1}}}]",
            "`scoringResourceWeights` cannot have a resource `accelerator`",
            _VENDOR,
        ),
        (
            "scores: [{plugin: LoadAware, args: {supportedResources: [cpu, ephemeral-storge]}}]",
            "`supportedResources` cannot have a resource `ephemeral-storge`",
            "did you mean `ephemeral-storage`?",
        ),
        (
            "scores: [{plugin: ResourceLimitAware, args: {resources: [{name: cpuu}]}}]",
            "`resources` cannot have a resource `cpuu`",
            "did you mean `cpu`?",
        ),
        (
            "scores: [{plugin: ResourceLimitAware, args: {defaultLimits: {memmory: 1Gi}}}]",
            "`defaultLimits` cannot have a resource `memmory`",
            "did you mean `memory`?",
        ),
        (
            """
            scores:
            - plugin: NodeResourcesFit
              args: {scoringStrategy: {resources: [{name: gpus}]}}
            """,
            "`resources` cannot have a resource `gpus`",
            _VENDOR,
        ),
    ],
)
def test_a_resource_that_cannot_be_is_a_mistake_in_args_too(
    spec: str, message: str, hint: str
) -> None:
    assert _mistakes(spec) == [(message, hint)]


@pytest.mark.parametrize(
    "name",
    [
        "cpu",
        "memory",
        "ephemeral-storage",
        "pods",
        "nvidia.com/gpu",
        "kubernetes.io/batch-cpu",
        "hugepages-2Mi",
        "attachable-volumes-aws-ebs",
    ],
)
def test_a_resource_that_may_be_is_taken(name: str) -> None:
    args = f"{{usageThresholds: {{{name}: 90}}, supportedResources: [{name}]}}"
    assert policy(f"filters: [{{plugin: LoadAware, args: {args}}}]").filters


def test_each_name_is_shown_where_it_stands() -> None:
    with pytest.raises(InvalidFileError) as caught:
        policy(
            """
            filters:
            - plugin: LoadAware
              args:
                usageThresholds: {cpu: 65, memroy: 90}
            scores:
            - plugin: ResourceLimitAware
              args:
                resources:
                - name: cpuu
            """
        )
    shown = [problem.source[problem.column - 1 :] for problem in caught.value.problems]
    assert shown == ["memroy: 90}", "cpuu"]


def test_a_misspelt_resource_does_not_hide_another_mistake() -> None:
    args = "{usageThresholds: {memroy: 90}, estimater: x}"
    assert [
        message for message, _ in _mistakes(f"filters: [{{plugin: LoadAware, args: {args}}}]")
    ] == [
        "unknown key `estimater`",
        "`usageThresholds` cannot have a resource `memroy`",
    ]


def test_what_has_another_shape_is_left_to_the_schema() -> None:
    args = "{usageThresholds: [memroy], supportedResources: [[cpuu], 1, {name: 2}, {}]}"
    messages = [
        message for message, _ in _mistakes(f"filters: [{{plugin: LoadAware, args: {args}}}]")
    ]
    assert "expected a mapping of keys to values" in messages
    assert not any("cannot have a resource" in message for message in messages)


def test_only_the_first_hundred_misspelt_resources_are_reported() -> None:
    names = ", ".join(f"r{number}: 1" for number in range(2 * MOST_PROBLEMS))
    spec = f"filters: [{{plugin: LoadAware, args: {{usageThresholds: {{{names}}}}}}}]"
    assert len(_mistakes(spec)) == MOST_PROBLEMS


def _fields(annotation: object) -> Iterator[tuple[str, object]]:
    """Yield the key and the annotation of each field of the models that an annotation speaks of."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        for name, field in annotation.model_fields.items():
            yield field.alias or name, field.annotation
            yield from _fields(field.annotation)
    for argument in get_args(annotation):
        yield from _fields(argument)


def test_every_argument_that_speaks_of_resources_is_known() -> None:
    fields = [field for plugin in PLUGINS.values() for field in _fields(plugin.args)]
    maps = {name for name, annotation in fields if get_origin(annotation) is dict}
    assert maps - _BY_NODE == BY_RESOURCE
    assert {name for name, _ in fields if name.lower().endswith("resources")} == LISTS_OF_RESOURCES


DIFFERENCES = re.findall(
    r"^\| `(.+?)` \| (?:`(.+?)`|an error)[;:]?.*\| .* \|$",
    name_reference().partition("| expression | here |")[2].partition("\n\n")[0],
    re.MULTILINE,
)


@pytest.mark.parametrize(("expression", "here"), DIFFERENCES)
def test_expressions_whose_value_differs_from_cel_go_are_as_the_page_says(
    expression: str, here: str
) -> None:
    program = compile_program(expression, Environment())
    if here:
        assert program.evaluate({}) == compile_program(here, Environment()).evaluate({})
    else:
        with pytest.raises(CelError):
            program.evaluate({})


def test_the_page_of_differences_from_cel_go_is_read_as_a_whole() -> None:
    table = name_reference().partition("| expression | here |")[2].partition("\n\n")[0]
    assert len(DIFFERENCES) == len(table.strip().splitlines()) - 2  # without its head


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
