from __future__ import annotations

import re
from collections.abc import Iterator
from typing import get_args, get_origin

import pytest
from pydantic import BaseModel

from engine.cel import CelError, CelProblemsError, Environment, compile_program
from engine.cel.values import type_of
from engine.documents.validation import MOST_PROBLEMS
from engine.errors import InvalidFileError
from engine.plugins import PLUGINS
from engine.policy.activation import (
    NODE_FIELDS,
    POD_FIELDS,
    node_value,
    pod_value,
    request_value,
)
from engine.policy.environment import (
    BY_RESOURCE,
    LISTS_OF_RESOURCES,
    TABLE,
    ExpressionScope,
    environment,
    manual,
    misspelt_resources,
    scope_of,
)
from tests.engine.policy.worlds import GIB, NOW, node, policy, request_of, usage, view_of


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
    manual().partition("| expression | here |")[2].partition("\n\n")[0],
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
    table = manual().partition("| expression | here |")[2].partition("\n\n")[0]
    assert len(DIFFERENCES) == len(table.strip().splitlines()) - 2  # without its head
