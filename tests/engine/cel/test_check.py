from __future__ import annotations

import pytest

from engine.cel import CelType, Environment, Limits, ObjectType, ast
from engine.cel.check import Checked, check
from engine.cel.parser import parse
from engine.cel.values import BOOL, DOUBLE, DURATION, DYN, INT, STRING, TYPE, Duration

STRING_AS_BOOL = "a string is no bool: compare it with `'true'`"

TAINT = ObjectType("taint", fields={"key": STRING, "effect": STRING})
NODE = ObjectType(
    "node",
    fields={
        "name": STRING,
        "labels": CelType("map", (STRING, STRING)),
        "usage": ObjectType("usage", fields={"cpu": DOUBLE}),
        "podCount": INT,
        "taints": CelType("list", (TAINT,)),
    },
)
NO_NUMBER = "a string is no number: drop the quotes, or convert it with `double(..)`"
ENVIRONMENT = Environment(variables={"node": NODE, "pod": DYN})


def checked(source: str, environment: Environment = ENVIRONMENT) -> Checked:
    return check(parse(source), environment)


def problems(source: str) -> list[tuple[int, str, str]]:
    found = checked(source).problems
    return [(problem.offset, problem.message, problem.hint) for problem in found]


@pytest.mark.parametrize(
    ("source", "type_name"),
    [
        ("node.name", "string"),
        ("node.labels['zone']", "string"),
        ("node.labels.zone == 'a'", "bool"),
        ("node.usage.cpu / 2.0", "double"),
        ("node.usage.cpu / pod.x", "double"),
        ("pod.x / pod.y", "dyn"),
        ("pod.x < pod.y", "bool"),
        ("node.taints.map(t, t.key)", "list(string)"),
        ("node.taints.filter(t, t.key == 'a')", "list(taint)"),
        ("node.taints[0].key", "string"),
        ("node.labels.map(k, k)", "list(string)"),
        ("node.labels.transformMap(k, v, v.size())", "map(string, int)"),
        ("node.?labels.?zone.orValue('')", "string"),
        ("node.?podCount", "optional_type(int)"),
        ("optional.of(1).optMap(x, 'a')", "optional_type(string)"),
        ("cel.bind(x, 1.5, x)", "double"),
        ("true ? 1 : 2", "int"),
        ("true ? 1 : 'a'", "dyn"),
        ("[1, 2]", "list(int)"),
        ("[1, 'a']", "list(dyn)"),
        ("{'a': 1}", "map(string, int)"),
        ("node.name.size()", "int"),
        ("timestamp(0) - timestamp(0)", "google.protobuf.Duration"),
        ("dyn(1)", "dyn"),
        ("math.abs(pod.x)", "dyn"),
        ("math.abs(1)", "int"),
        ("type(1)", "type"),
    ],
)
def test_types_are_known_as_far_as_they_are_certain(source: str, type_name: str) -> None:
    found = checked(source)
    assert not found.problems
    assert str(found.type) == type_name


@pytest.mark.parametrize(
    ("source", "offset", "message", "hint"),
    [
        ("nod.name", 0, "unknown name `nod`", "did you mean `node`?"),
        ("node.lables.zone", 5, "`node` has no field `lables`", "did you mean `labels`?"),
        ("node['lables']", 5, "`node` has no field `lables`", "did you mean `labels`?"),
        ("has(node.usage.cpuu)", 15, "`usage` has no field `cpuu`", "did you mean `cpu`?"),
        ("node.taints.all(t, t.ky == '')", 21, "`taint` has no field `ky`", "did you mean `key`?"),
        ("node.name.x", 10, "a value of type `string` has no fields", ""),
        (
            "node.name.startWith('a')",
            10,
            "unknown function `startWith`",
            "did you mean `startsWith`?",
        ),
        (
            "node.taints.exist(true)",
            12,
            "unknown function `exist`",
            "did you mean `exists`?",
        ),
        (
            "startsWith(node.name, 'a')",
            0,
            "unknown function `startsWith`",
            "write `x.startsWith()`",
        ),
        (
            "node.taints.all(true)",
            12,
            "unknown function `all`",
            "the macro `all` takes other arguments",
        ),
        ("node.name.size(1)", 10, "`size` takes 0 arguments, not 1", ""),
        ("size()", 0, "`size` takes 1 argument, not 0", ""),
        ("node.name.contains(1)", 10, "`string` has no function `contains(int)`", ""),
        ("size(1)", 0, "`size` does not take (int)", ""),
        (
            "node.name + 1",
            10,
            "`+` does not apply to `string` and `int`",
            "convert one of them, with `string(..)` or with `double(..)`",
        ),
        (
            "2.0 < '4GB'",
            4,
            "`<` does not apply to `double` and `string`",
            "write `quantity('4G').asApproximateFloat()`",
        ),
        ("node.name == 1", 10, "`==` does not apply to `string` and `int`", NO_NUMBER),
        ("node.name < 1", 10, "`<` does not apply to `string` and `int`", NO_NUMBER),
        (
            "1 in node.name",
            2,
            "`in` does not apply to `int` and `string`",
            "a list is written `['a', 'b']`; to search a string, `x.contains(y)`",
        ),
        ("has(node)", 4, "`has` needs a field", "write `has(a.b)`, or `'b' in a`"),
        ("has(node.?name)", 10, "`has` needs a field", "write `has(a.b)`, or `'b' in a`"),
        ("-node.name", 0, "`-` does not apply to `string`", ""),
        ("!node.name", 6, "expected `bool`, not `string`", STRING_AS_BOOL),
        ("node.name && true", 5, "expected `bool`, not `string`", STRING_AS_BOOL),
        ("node.podCount ? 1 : 2", 5, "expected `bool`, not `int`", ""),
        ("node.taints.exists(t, t.key)", 24, "expected `bool`, not `string`", STRING_AS_BOOL),
        ("node.name.all(c, true)", 5, "a value of type `string` cannot be looped over", ""),
        (
            "node.taints['a']",
            12,
            "a list has no index of type `string`",
            "write `node.taints.exists(e, e.key == 'a')`",
        ),
        ("node.name.orValue('')", 5, "expected an optional, not `string`", ""),
        ("[?node.name]", 7, "expected an optional, not `string`", ""),
    ],
)
def test_a_mistake_is_found_with_its_place_and_advice(
    source: str, offset: int, message: str, hint: str
) -> None:
    assert problems(source) == [(offset, message, hint)]


def test_mixing_number_types_gets_advice() -> None:
    ((offset, message, hint),) = problems("node.usage.cpu * 2 > 1.0")
    assert (offset, message) == (15, "`*` does not apply to `double` and `int`")
    assert "decimal point" in hint


@pytest.mark.parametrize(
    "source",
    [
        "'a'.matches('(')",
        "pod.x.find('(?=a)')",
        f"pod.x.matches('{'a' * 257}')",
        "duration('1x')",
        "timestamp('yesterday')",
        "quantity('1Zi')",
        "ip('1.2.3')",
        "semver('x')",
        "'%%'.format([1])",
        "'%s'.format([pod.x, pod.y])",
        "'%s'.format([])",
        "'%a'.format([pod.x])",
    ],
)
def test_a_bad_literal_is_found_at_load(source: str) -> None:
    assert len(problems(source)) == 1


@pytest.mark.parametrize(
    "source",
    [
        "'a'.matches(pod.x)",
        "duration(pod.x)",
        "quantity('1' + '1')",
        "'%s'.format(pod.x)",
        "pod.x.format([1])",
        "'%d%% of %s'.format([5, pod.x])",
    ],
)
def test_what_is_not_a_literal_is_left_to_the_evaluation(source: str) -> None:
    assert not problems(source)


def test_all_mistakes_are_reported_in_source_order() -> None:
    found = problems("nod.a == node.nam && foo(node.lables) || 1 + 'a'")
    assert [offset for offset, _, _ in found] == [0, 14, 21, 30, 43]


@pytest.mark.parametrize(
    "source",
    [
        "pod.anything.at.all[0] == 1",
        "node.podCount < 1.5 && node.podCount == 1u",
        "node.name == null",
        "node.labels.zone.split('-')[0] in ['a', 'b']",
        "pod.x + 1 > 2 && pod.x + 'a' == 'b'",
        "has(node.labels.gpu) && node.labels.gpu == 'a100'",
        "'cpu' in node.usage",
        "node.labels.all(k, v, k != v)",
        "cel.bind(u, node.usage, u.cpu < 0.5)",
        "type(node.name) == string",
        "node.taints == [] || node.taints.size() == 0",
        "quantity('1Gi').isLessThan(quantity(pod.memory))",
    ],
)
def test_a_sound_expression_raises_no_alarm(source: str) -> None:
    assert not checked(source).problems


def test_loops_may_nest_as_deep_as_the_limits_say() -> None:
    nested = "[1].all(a, [a].all(b, [b].all(c, true)))"
    assert [offset for offset, _, _ in problems(nested)] == [22]
    deeper = Environment(limits=Limits(nesting=3))
    assert not checked(nested, deeper).problems
    assert not problems("[1].filter(a, true).map(a, a).all(a, true)")


def test_constructors_of_literals_become_literals() -> None:
    assert checked("duration('1s')").root == ast.Literal(Duration(10**9), DURATION, offset=0)
    assert isinstance(checked("duration(pod.x)").root, ast.Call)


def test_macro_variables_get_names_that_nothing_else_has() -> None:
    root = checked("[1].all(x, [2].all(x, x == 1))").root
    names = [node.variables for node, _ in ast.walk(root) if isinstance(node, ast.Quantifier)]
    assert names == [("x@0",), ("x@1",)]
    assert ast.Local("x@1", offset=0) in [node for node, _ in ast.walk(root)]


def _root(source: str, variables: list[str], container: str = "") -> ast.Node:
    environment = Environment(variables=dict.fromkeys(variables, DYN), container=container)
    return checked(source, environment).root


def test_a_dotted_path_is_the_longest_declared_name_in_the_innermost_namespace() -> None:
    a_b = ast.Variable("a.b", offset=0)
    assert _root("a.b.c", ["a.b.c", "a.b"]) == ast.Variable("a.b.c", offset=0)
    assert _root("a.b.c", ["a.b", "a"]) == ast.Select(a_b, "c", offset=0)
    assert _root("b", ["a.b", "b"], "a") == a_b
    assert _root(".b", ["a.b", "b"], "a") == ast.Variable("b", offset=0)
    assert _root("b", ["a.b", "b"], "a.x") == a_b


def test_a_macro_variable_hides_every_name_that_begins_with_it() -> None:
    root = _root("[{}].map(b, b.c)", ["b.c"])
    assert isinstance(root, ast.Transform)
    assert root.result == ast.Select(ast.Local("b@0", offset=0), "c", offset=0)
    absolute = _root("[{}].map(b, .b.c)", ["b.c"])
    assert isinstance(absolute, ast.Transform)
    assert absolute.result == ast.Variable("b.c", offset=0)


def test_types_are_names_too_unless_a_variable_hides_them() -> None:
    assert _root("int", []) == ast.Literal(INT, TYPE, offset=0)
    assert _root("google.protobuf.Duration", []) == ast.Literal(DURATION, TYPE, offset=0)
    assert _root("int", ["int"]) == ast.Variable("int", offset=0)
    assert checked("type(true) == bool").type == BOOL
