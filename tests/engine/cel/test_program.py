from __future__ import annotations

import gc
import weakref
from types import MappingProxyType

import pytest

from engine.cel import (
    Budget,
    BudgetExhaustedError,
    CelError,
    CelProblemsError,
    Environment,
    compile_program,
)
from engine.cel.values import DYN

ENVIRONMENT = Environment(variables=dict.fromkeys(("node", "pod", "l", "absent"), DYN))


def evaluate(source: str, budget: Budget | None = None, **activation: object) -> object:
    return compile_program(source, ENVIRONMENT).evaluate(activation, budget)


def test_an_expression_reads_plain_dicts() -> None:
    node = {"labels": {"zone": "eu-1"}, "usage": {"cpu": 1.5}, "podCount": 3}
    assert evaluate("node.labels.zone == 'eu-1' && node.usage.cpu < 2", node=node) is True
    assert evaluate("node.podCount + 1", node=node) == 4


def test_the_activation_may_be_any_mapping_and_stays_as_it_is() -> None:
    program = compile_program("l.map(x, x + 1)", ENVIRONMENT)
    activation = MappingProxyType({"l": [1, 2]})
    assert program.evaluate(activation) == [2, 3]
    assert set(activation) == {"l"}


class Held(dict[str, object]):
    """A map that can be waited for to be gone."""


@pytest.mark.parametrize(
    "source",
    [
        "node.told == 1 || node.zone == 2",
        "[1, 2].all(x, node.told == x)",
        "cel.bind(x, node.told, x == 1)",
    ],
)
def test_what_a_failed_evaluation_has_read_is_gone_with_the_failure(source: str) -> None:
    gc.collect()
    gc.disable()
    try:
        held = Held()
        gone = weakref.ref(held)
        with pytest.raises(CelError):
            evaluate(source, node=held)
        del held
        assert gone() is None
    finally:
        gc.enable()


def test_mistakes_are_raised_together() -> None:
    with pytest.raises(CelProblemsError) as caught:
        compile_program("nod.a == foo(1)", ENVIRONMENT)
    assert [problem.offset for problem in caught.value.problems] == [0, 9]


@pytest.mark.parametrize(
    ("source", "references"),
    [
        ("node.labels.zone == 'a'", {("node", "labels", "zone")}),
        ("node.labels['a/b'] == pod.x", {("node", "labels", "a/b"), ("pod", "x")}),
        ("has(node.labels.gpu)", {("node", "labels", "gpu")}),
        ("node.?labels[?'a'].orValue('')", {("node", "labels", "a")}),
        ("node.labels[pod.key]", {("node", "labels"), ("pod", "key")}),
        ("node.taints[0].key", {("node", "taints")}),
        ("node.taints.all(t, t.key in pod.keys)", {("node", "taints"), ("pod", "keys")}),
        ("cel.bind(u, node.usage, u.cpu)", {("node", "usage")}),
        ("node.name.size()", {("node", "name")}),
        ("size(node)", {("node",)}),
        ("1 + 1", set()),
    ],
)
def test_a_program_says_what_it_reads(source: str, references: set[tuple[str, ...]]) -> None:
    assert compile_program(source, ENVIRONMENT).references == references


def test_a_variable_without_a_value_is_an_error_that_can_be_absorbed() -> None:
    with pytest.raises(CelError, match="no such key: `absent`"):
        evaluate("absent")
    assert evaluate("absent || true") is True


@pytest.mark.parametrize(
    ("source", "value"),
    [
        ("false && 1 / 0 > 0", False),
        ("1 / 0 > 0 && false", False),
        ("true || 1 / 0 > 0", True),
        ("1 / 0 > 0 || true", True),
        ("dyn(1) && false", False),
        ("dyn('a') || true", True),
        ("1 / 0 > 0 && absent && false", False),
        ("[1, 0].exists(x, 1 / x == 1)", True),
        ("[0, 1].exists(x, 1 / x == 1)", True),
        ("[0, 2].all(x, 1 / x == 1)", False),
        ("has(node.missing) && node.missing == 'a'", False),
        ("true ? 1 : 1 / 0", 1),
        ("optional.of(1).orValue(1 / 0)", 1),
        ("cel.bind(x, 1 / 0, true)", True),
    ],
)
def test_an_error_that_does_not_matter_is_absorbed(source: str, value: object) -> None:
    assert evaluate(source, node={}) == value


@pytest.mark.parametrize(
    "source",
    [
        "1 / 0 > 0 && true",
        "true && dyn(1)",
        "1 / 0 > 0 || false",
        "[1, 0].all(x, 1 / x == 1)",
        "[2, 0].exists(x, 1 / x == 1)",
        "[1, 0].exists_one(x, 1 / x == 1)",
        "[1].filter(x, dyn(1))",
        "dyn(1) ? 1 : 2",
        "!dyn(1)",
        "cel.bind(x, 1 / 0, x + 1)",
        "optional.none().orValue(1 / 0)",
    ],
)
def test_an_error_that_matters_is_not(source: str) -> None:
    with pytest.raises(CelError):
        evaluate(source)


LOOPS = "l.all(x, l.all(y, true))"


def test_the_iterations_of_all_loops_count_together() -> None:
    # Ten outer turns, each with ten inner ones: 10 + 10 * 10.
    budget = Budget(200)
    evaluate(LOOPS, budget, l=list(range(10)))
    assert budget.steps_left == 90


@pytest.mark.parametrize(
    "source",
    [
        LOOPS,
        f"{LOOPS} || true",
        f"!{LOOPS} && false",
        "l.exists(x, l.exists(y, false))",
        f"cel.bind(b, {LOOPS}, true)",
    ],
)
def test_nothing_absorbs_an_exhausted_budget(source: str) -> None:
    with pytest.raises(BudgetExhaustedError):
        evaluate(source, Budget(99), l=list(range(10)))


def test_an_evaluation_without_a_budget_has_the_default_one() -> None:
    assert evaluate(LOOPS, l=list(range(99))) is True  # 99 + 99 * 99 = 9,900 steps
    with pytest.raises(BudgetExhaustedError):
        evaluate(LOOPS, l=list(range(100)))  # 100 + 100 * 100


@pytest.mark.parametrize(
    "source",
    [
        "'%s%s'.format([l[0], l[0]])",
        "l[0] + l[0]",
        "l[0].replace('', l[0])",
        "[l[0], l[0]].join()",
        "lists.range(10001)",
        "l[0].split('').map(x, l).flatten()",
        "base64.encode(bytes(l[0]))",
    ],
)
def test_no_result_grows_without_bounds(source: str) -> None:
    with pytest.raises(BudgetExhaustedError):
        evaluate(source, l=["x" * 60_000])


def test_the_memory_of_many_results_is_bounded_too() -> None:
    # Each text of 60,000 characters costs 58 steps and its turn one: 169 of 10,000 steps.
    with pytest.raises(BudgetExhaustedError):
        evaluate("lists.range(1000).map(i, l[0] + string(i)).size()", l=["x" * 60_000])


def test_a_value_nested_beyond_reason_is_an_error() -> None:
    deep: list[object] = []
    for _ in range(10_000):
        deep = [deep]
    with pytest.raises(CelError, match="nested too deeply"):
        evaluate("l == [l]", l=deep)


def test_a_number_beyond_every_type_is_an_error() -> None:
    with pytest.raises(CelError):
        evaluate("l == 1.0", l=10**400)


@pytest.mark.parametrize(
    ("expression", "expected"),
    [
        ("string(timestamp('2023-01-01T00:00:00+02:00'))", "2023-01-01T00:00:00+02:00"),
        ("string(timestamp('2023-01-01T00:00:00.5-05:30'))", "2023-01-01T00:00:00.5-05:30"),
        ("string(timestamp('2023-01-01T00:00:00+00:00'))", "2023-01-01T00:00:00Z"),
        (
            "string(timestamp('2023-01-01T00:00:00+02:00') + duration('1h'))",
            "2023-01-01T01:00:00+02:00",
        ),
        ("timestamp('2023-01-01T00:00:00+02:00') == timestamp('2022-12-31T22:00:00Z')", True),
        ("timestamp('2023-01-01T00:00:00+02:00').getHours()", 22),  # of UTC
        ("duration('-90s').getMilliseconds()", 0),  # of the fraction, as the suite has it
        ("'%e'.format([1.5])", "1.500000e+00"),
        ("'%s'.format([b'a'])", "a"),
        ("has({'a': dyn(3)}.a.b)", False),
        ("{'a': dyn({'b': 3})}.?a.b.?c.orValue(2)", 2),
        ("isIP('::ffff:a00:1')", True),
        ("quantity('9m').asApproximateFloat() == 0.009", True),
        ("quantity('1') == dyn(1)", False),
        ("string(duration('9223372036.854775807s'))", "9223372036.854775807s"),
    ],
)
def test_what_engines_disagree_about(expression: str, expected: object) -> None:
    assert compile_program(expression, Environment()).evaluate({}) == expected


@pytest.mark.parametrize(
    "expression",
    [
        "'%s'.format([b'\\xff'])",
        "0.0 / 0.0 < 1.0",
        "{'a': dyn(3)}.?a.b",
        "'abc'.indexOf('a', 4)",
        "lists.range(-1)",
    ],
)
def test_what_engines_disagree_about_and_is_an_error(expression: str) -> None:
    program = compile_program(expression, Environment())
    with pytest.raises(CelError):
        program.evaluate({})


@pytest.mark.parametrize(
    ("expression", "warning"),
    [
        ("1 != 1.0", "`!=` of `int` and `double`: convert one of them"),
        ("[-1, 'a'].size() == 2", "values of the types int, string in one literal"),
        ("{'a': 1, 'b': 'x'}.size() == 2", "values of the types int, string in one literal"),
    ],
)
def test_what_kubernetes_refuses_is_warned_of(expression: str, warning: str) -> None:
    program = compile_program(expression, Environment())
    assert [found.message for found in program.warnings] == [warning]


@pytest.mark.parametrize("expression", ["1 < 1.5", "[1, null] == []", "[dyn(1), 'a'] == []"])
def test_what_kubernetes_accepts_is_not_warned_of(expression: str) -> None:
    assert compile_program(expression, Environment()).warnings == ()
