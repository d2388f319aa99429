from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TypeAlias

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from engine.cel import DYN, CelError, CelProblemsError, Program, compile_program
from engine.model.label_condition import (
    MOST_REQUIREMENTS,
    MOST_TERMS,
    MOST_VALUES,
    Exactness,
    LabelCondition,
)
from engine.model.selectors import Requirement
from engine.policy import CompiledPolicy
from engine.policy.context import PolicyContext
from engine.policy.environment import ExpressionScope, environment
from engine.policy.label_analysis import (
    DOES_NOT_FAIL,
    NO_NUMBER,
    PASSES,
    AnyOf,
    Constant,
    Goal,
    LabelSummary,
    Precomputed,
    analyze,
    condition_of,
)
from tests.engine.policy.label_filters import label_filters, labels, mixed_filters, variables
from tests.engine.policy.worlds import NOW, node, policy, request_of, view_of

Labels: TypeAlias = Mapping[str, str]

_NAMES = ("yes", "n", "text", "key", "list", "absent")
_ENVIRONMENT = environment(ExpressionScope.RULES, dict.fromkeys(_NAMES, DYN))
_GENEROUS = settings(max_examples=200)
nodes = st.lists(labels, min_size=8, max_size=8)


def compiled(source: str) -> Program:
    try:
        return compile_program(source, _ENVIRONMENT)
    except CelProblemsError:
        assume(condition=False)  # loops within loops within loops
        raise


def activation(values: Mapping[str, object]) -> dict[str, object]:
    return {"variables": values, "pod": {"name": "x", "labels": {"pool": "batch"}}}


def condition(
    source: str, goal: Goal = PASSES, values: Mapping[str, object] | None = None
) -> LabelCondition:
    return condition_of(analyze(compiled(source).root), goal, activation(values or {}))


def passes(program: Program, goal: Goal, values: Mapping[str, object], labels: Labels) -> bool:
    """Return whether the evaluator lets a node pass."""
    node = {"name": "n", "labels": labels, "usage": {"cpu": 0.1}}
    try:
        answer = program.evaluate({**activation(values), "node": node})
    except CelError:
        answer = None
    return answer is True if goal is PASSES else answer is not False


def ensure_written(found: LabelCondition) -> None:
    """Check that a pod can carry a condition."""
    assert len(found.terms) <= MOST_TERMS
    for term in found.terms:
        assert len(term) <= MOST_REQUIREMENTS
        assert all(len(requirement.values) <= MOST_VALUES for requirement in term)


@pytest.mark.parametrize("goal", [PASSES, DOES_NOT_FAIL])
@_GENEROUS
@given(source=label_filters, values=variables, nodes=nodes)
def test_a_node_has_the_labels_if_and_only_if_it_passes_the_filter(
    goal: Goal, source: str, values: Mapping[str, object], nodes: list[Labels]
) -> None:
    program = compiled(source)
    found = condition(source, goal, values)
    ensure_written(found)
    # Two things alone may be beyond requirements here, and then the labels are still needed.
    assert all(reason == NO_NUMBER or "8 terms" in reason for reason in found.reasons)
    assert goal is DOES_NOT_FAIL or NO_NUMBER not in found.reasons
    for each in nodes:
        allowed, passing = found.allows(each), passes(program, goal, values, each)
        assert allowed or not passing
        assert allowed == passing or found.exactness is not Exactness.EXACT


@pytest.mark.parametrize("goal", [PASSES, DOES_NOT_FAIL])
@_GENEROUS
@given(source=mixed_filters, values=variables, nodes=nodes)
def test_a_node_without_the_labels_fails_the_filter(
    goal: Goal, source: str, values: Mapping[str, object], nodes: list[Labels]
) -> None:
    program = compiled(source)
    found = condition(source, goal, values)
    ensure_written(found)
    for each in nodes:
        allowed, passing = found.allows(each), passes(program, goal, values, each)
        assert allowed or not passing
        assert allowed == passing or found.exactness is not Exactness.EXACT


def text(found: LabelCondition) -> str:
    """Return terms in short: `a In x y & b Exists | c Gt 3`."""
    terms = (" & ".join(map(_requirement_text, term)) or "anything" for term in found.terms)
    return " | ".join(terms) or "nothing"


def _requirement_text(one: Requirement) -> str:
    bound = [str(one.bound)] if one.operator in {"Gt", "Lt"} else []
    return " ".join([one.key, one.operator, *sorted(one.values), *bound])


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        # A GPU guard, said in five ways.
        ("!('gpu' in node.labels)", "gpu DoesNotExist"),
        ("!has(node.labels.gpu)", "gpu DoesNotExist"),
        ("!node.labels[?'gpu'].hasValue()", "gpu DoesNotExist"),
        ("has(node.labels) && !(has(node.labels.gpu))", "gpu DoesNotExist"),
        ("pod.labels.pool == 'gpu' || !('gpu' in node.labels)", "gpu DoesNotExist"),
        # Zones: In asks for presence, as the filter does.
        ("node.labels.zone in ['a', 'b']", "zone In a b"),
        ("node.labels.zone in {'a': 1, 'b': 2}", "zone In a b"),
        ("node.labels.zone == 'a' || 'b' == node.labels['zone']", "zone In a b"),
        ("['a', 'b'].exists(z, node.labels.zone == z)", "zone In a b"),
        ("['a', 'b'].all(z, node.labels.zone != z)", "zone Exists & zone NotIn a b"),
        ("['a', 'b'].all(k, k in node.labels)", "a Exists & b Exists"),
        ("['a', 'b'].exists(i, z, i > 0 && node.labels.zone == z)", "zone In b"),
        # A missing label fails `!=` and `!(.. == ..)`, while NotIn lets it pass.
        ("node.labels.zone != 'a'", "zone Exists & zone NotIn a"),
        ("!(node.labels.zone == 'a')", "zone Exists & zone NotIn a"),
        ("node.labels[?'zone'].orValue('') != 'a'", "zone NotIn a"),
        ("node.labels.?zone.orValue('a') == 'a'", "zone DoesNotExist | zone In a"),
        ("!has(node.labels.zone) || node.labels.zone != 'a'", "zone NotIn a"),
        ("has(node.labels.g) ? node.labels.g == 'a100' : true", "g DoesNotExist | g In a100"),
        (
            "!(node.labels.a == 'x' || node.labels.b == 'y')",
            "a Exists & a NotIn x & b Exists & b NotIn y",
        ),
        (
            "!(node.labels.a == 'x' && node.labels.b == 'y')",
            "a Exists & a NotIn x | b Exists & b NotIn y",
        ),
        ("node.labels.a == 'x' ? node.labels.b == 'y' : false", "a In x & b In y"),
        # Old and new names of one label.
        (
            "node.labels[?'new'].or(node.labels[?'old']).orValue('') == 'x'",
            "new In x | new DoesNotExist & old In x",
        ),
        # Numbers: bounds are label values, so never negative, and 03 is 3.
        ("int(node.labels.gen) > 3", "gen Gt 3"),
        ("3 < int(node.labels.gen)", "gen Gt 3"),
        ("int(node.labels.gen) >= 3", "gen Gt 2"),
        ("int(node.labels.gen) <= 3", "gen Lt 4"),
        ("int(node.labels.gen) == 3", "gen Gt 2 & gen Lt 4"),
        ("int(node.labels.gen) != 3", "gen Lt 3 | gen Gt 3"),
        ("int(node.labels.gen) in [3, 4, 9]", "gen Gt 2 & gen Lt 5 | gen Gt 8 & gen Lt 10"),
        ("int(node.labels.gen) > 2.5", "gen Gt 2"),
        ("int(node.labels.gen) > -1", "gen Lt 1 | gen Gt 0"),
        ("int(node.labels.gen) >= 9223372036854775807", "gen Gt 9223372036854775806"),
        ("int(node.labels.gen) > 9223372036854775807", "nothing"),
        ("int(node.labels.gen) < 0", "nothing"),
        ("int(node.labels[?'gen'].orValue('9')) > 3", "gen DoesNotExist | gen Gt 3"),
        (
            "node.labels.?gen.optMap(g, int(g) > 3 && g != '5').orValue(false)",
            "gen Gt 3 & gen NotIn 5",
        ),
        ("cel.bind(g, int(node.labels.gen), g > 3 && g < 9)", "gen Gt 3 & gen Lt 9"),
        # What no label can be.
        ("node.labels.a == 'not a value!'", "nothing"),
        ("node.labels.a in []", "nothing"),
        ("!(node.labels.a in [])", "anything"),
        ("node.labels.a != 'not a value!'", "a Exists"),
        ("node.labels.a in ['x', 'not a value!', '']", "a In  x"),
        ("'not a key!' in node.labels || 'b' in node.labels", "b Exists"),
        ("node.labels['not a key!'] != 'x' || 'b' in node.labels", "b Exists"),
        ("node.labels[dyn(1)] == 'x' || 'b' in node.labels", "b Exists"),
        ("node.labels.a == dyn(3)", "nothing"),
        ("node.labels.a != dyn(3)", "a Exists"),
        # The pod's side may fail, too.
        ("node.labels[pod.labels.pool] == 'x'", "batch In x"),
        ("node.labels.a == pod.labels.absent", "nothing"),
        ("node.labels.a == pod.labels.absent || 'b' in node.labels", "b Exists"),
        ("pod.labels.absent == 'x' || true", "anything"),
        ("cel.bind(v, pod.labels.absent, node.labels.a != v || 'b' in node.labels)", "b Exists"),
    ],
)  # fmt: skip
def test_worked_examples(source: str, expected: str) -> None:
    found = condition(source)
    assert text(found) == expected
    assert found.exactness is Exactness.EXACT


@pytest.mark.parametrize(
    "meaning",
    [
        "['p'].exists(v, ['q'].exists(w, w == 'q')) && 'a' in node.labels",
        "['p'].exists(v, ['a'].exists(w, w in node.labels))",
    ],
)
def test_macro_variables_of_one_name_do_not_get_in_each_others_way(meaning: str) -> None:
    # What `y` means is put inside the second loop, whose `w` has the depth of its own `w`.
    source = f"cel.bind(y, {meaning}, ['b'].exists(w, y && w in node.labels))"
    assert text(condition(source)) == "a Exists & b Exists"


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("node.labels.zone in ['a', 'b']", "zone DoesNotExist | zone In a b"),
        ("node.labels.zone != 'a'", "zone NotIn a"),
        ("!(node.labels.a == 'x' || node.labels.b == 'y')", "a NotIn x & b NotIn y"),
        ("'gpu' in node.labels", "gpu Exists"),
        ("int(node.labels.gen) >= 0", "anything"),  # fails or is true, so all pass
    ],
)
def test_where_failures_pass_only_what_is_false_is_shut_out(source: str, expected: str) -> None:
    found = condition(source, DOES_NOT_FAIL)
    assert text(found) == expected
    assert found.exactness is Exactness.EXACT


def test_no_requirement_lets_what_is_no_number_pass() -> None:
    # Not false: more than 3, or no integer, or missing. Gt says the first alone.
    found = condition("int(node.labels.gen) > 3 && 'a' in node.labels", DOES_NOT_FAIL)
    assert text(found) == "a Exists"
    assert found.reasons == (NO_NUMBER,)


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("node.labels.pool == 'batch' && node.usage.cpu < 0.5", "pool In batch"),
        ("node.labels.pool == 'batch' && node.name != 'n'", "pool In batch"),
        ("node.labels.pool == 'batch' && !node.unschedulable", "pool In batch"),
        ("node.labels.pool == 'batch' && node.taints.size() == 0", "pool In batch"),
        ("has(node.usage) ? 'a' in node.labels : 'b' in node.labels", "a Exists | b Exists"),
        # A filter fails without a label that it reads, whatever it does with it.
        ("node.labels.pool.startsWith('batch')", "pool Exists"),
        ("node.labels.a == node.labels.b", "a Exists & b Exists"),
        ("node.usage.cpu / double(node.labels.cores) < 0.5", "cores Exists"),
        ("node.labels.a < 'm' && 'b' in node.labels", "a Exists & b Exists"),
    ],
)  # fmt: skip
def test_a_filter_about_more_than_labels_leaves_the_labels_that_it_needs(
    source: str, expected: str
) -> None:
    found = condition(source)
    assert text(found) == expected
    assert found.exactness is Exactness.PARTIAL


@pytest.mark.parametrize(
    ("source", "reason"),
    [
        (
            "node.labels.pool == 'batch' || node.usage.cpu < 0.5",
            "`node.usage.cpu < 0.5` asks for more than labels",
        ),
        ("node.name == 'n'", "`node.name == 'n'` asks for more than labels"),
        ("!has(node.usage)", "`has(node.usage)` asks for more than labels"),
        (
            "node.labels.all(k, k != 'gpu')",
            "no requirement says the same as `node.labels.all(k, k != 'gpu')`",
        ),
        (
            "node.labels[?'a'] == optional.of('x')",
            "no requirement says the same as `node.labels[?'a'] == optional.of('x')`",
        ),
        (
            "['a', 'b'].exists_one(k, k in node.labels)",
            "no requirement says the same as `['a', 'b'].exists_one(k, k in node.labels)`",
        ),
    ],
)
def test_a_filter_of_which_nothing_follows_for_labels_says_why(source: str, reason: str) -> None:
    found = condition(source)
    assert found.exactness is Exactness.NONE
    assert found.terms == ((),)
    assert found.reasons == (reason,)


@pytest.mark.parametrize(
    "source", ["pod.name == 'y' && node.usage.cpu < 0.5", "pod.name == 'x' || node.name == 'n'"]
)
def test_what_the_pod_settles_is_exact(source: str) -> None:
    assert condition(source).exactness is Exactness.EXACT


def test_a_number_beyond_all_types_fails_the_filter_as_a_whole() -> None:
    # JSON knows such numbers. Elsewhere `||` would absorb a failure.
    source = "double(variables.n) > 1.0 || 'a' in node.labels"
    values = {"n": 10**400}
    assert not passes(compiled(source), PASSES, values, {"a": ""})
    assert condition(source, values=values).exactness is Exactness.NONE


def test_a_loop_may_go_through_a_few_elements_only() -> None:
    some = {"list": [f"v{i}" for i in range(MOST_VALUES)]}
    many = {"list": [f"v{i}" for i in range(MOST_VALUES + 1)]}
    looping = "variables.list.exists(z, node.labels.zone == z)"
    listing = "node.labels.zone in variables.list"
    for source in (looping, listing):
        assert condition(source, values=some).exactness is Exactness.EXACT
        assert condition(source, values=many).exactness is not Exactness.EXACT


def _multiplying(depth: int) -> str:
    """Return an expression whose meaning doubles with each of its variables."""
    head, last = "cel.bind(v0, node.labels.a == 'x', ", "v0"
    for i in range(1, depth):
        head += f"cel.bind(v{i}, {last} && !{last} || {last}, "
        last = f"v{i}"
    return head + last + ")" * depth


@pytest.mark.parametrize(
    "source",
    [
        _multiplying(16),
        " && ".join(f"(node.labels.a{i} == 'x' || node.labels.b{i} == 'y')" for i in range(40)),
        " || ".join(f"(node.labels.a{i} == 'x' && node.labels.b{i} == 'y')" for i in range(40)),
        "variables.list.exists(x, variables.list.all(y, node.labels[dyn('a' + string(x))] == 'b'))",
        "variables.list.all(x, variables.list.all(y, int(node.labels.a) != x * 64 + y))",
        "node.labels[?'a0']"
        + "".join(f".or(node.labels[?'a{i}'])" for i in range(1, 30))
        + ".orValue('') == 'x'",
        "".join(f"node.labels.a{i} == 'x' ? 'b{i}' in node.labels : " for i in range(30)) + "true",
    ],
)
@pytest.mark.parametrize("goal", [PASSES, DOES_NOT_FAIL])
def test_a_hostile_filter_is_given_up_or_widened(source: str, goal: Goal) -> None:
    found = condition(source, goal, {"list": list(range(64))})
    assert found.exactness is not Exactness.EXACT
    ensure_written(found)


@pytest.mark.parametrize("operator", ["==", "!=", "<", ">"])
@pytest.mark.parametrize("goal", [PASSES, DOES_NOT_FAIL])
def test_a_constant_that_is_not_a_number_compares_with_all_alike(operator: str, goal: Goal) -> None:
    source, values = f"int(node.labels.a) {operator} variables.n", {"n": math.nan}
    found, program = condition(source, goal, values), compiled(source)
    for on_node in ({}, {"a": "0"}, {"a": "7"}, {"a": "x"}):
        assert found.allows(on_node) or not passes(program, goal, values, on_node)


_VARIABLES = """
variables:
- {name: zones, expression: "pod.annotations[?'zones'].orValue('').split(',')"}
- {name: yes, expression: "'yes' in pod.labels"}
"""


def summary(expression: str, on_error: str = "RejectNode") -> LabelSummary:
    rule = f'filters: [{{name: f, expression: "{expression}", onError: {on_error}}}]'
    (found,) = policy(f"{_VARIABLES}\n{rule}").filters
    return found.labels.summary


@pytest.mark.parametrize(
    ("expression", "exactness"),
    [
        ("!('gpu' in node.labels)", Exactness.EXACT),
        ("variables.yes || !('gpu' in node.labels)", Exactness.EXACT),
        ("node.labels.zone in variables.zones", Exactness.EXACT),
        ("variables.zones.exists(z, node.labels.zone == z)", Exactness.EXACT),
        ("variables.yes ? node.labels.a == pod.name : int(node.labels.b) > 3", Exactness.EXACT),
        ("cel.bind(z, pod.name, !(node.labels.a != z))", Exactness.EXACT),
        ("variables.yes", Exactness.EXACT),
        ("'a' in node.labels && node.usage.cpu < pod.requests.cpu", Exactness.PARTIAL),
        ("variables.yes ? node.labels.a.startsWith(pod.name) : true", Exactness.PARTIAL),
        ("node.labels.a == pod.name || node.usage.cpu < 0.5", Exactness.NONE),
        ("variables.yes || node.usage.cpu < 0.5", Exactness.NONE),
        ("variables.yes && node.name == pod.name", Exactness.NONE),
    ],
)
def test_how_much_labels_carry_is_known_before_there_is_a_pod(
    expression: str, exactness: Exactness
) -> None:
    assert summary(expression).exactness is exactness


def test_numbers_cannot_be_carried_where_failures_pass() -> None:
    expression = "int(node.labels.gen) > pod.priority"
    assert summary(expression).exactness is Exactness.EXACT
    assert summary(expression, "IgnoreRule").exactness is Exactness.NONE


def test_a_summary_has_a_few_words() -> None:
    assert summary("'a' in node.labels").summary == "labels"
    assert summary("'a' in node.labels && node.ready").summary == "labels in part"
    assert summary("node.ready").summary == "advice only"
    (reason,) = summary("node.ready && variables.yes").reasons
    assert reason == "`node.ready` asks for more than labels"


@pytest.mark.parametrize(
    "expression",
    [
        "node.labels['kubernetes.io/hostname'] != 'n1'",
        "node.labels['kubernetes.io/hostname'] in variables.zones",
    ],
)
def test_a_requirement_on_hostnames_is_known(expression: str) -> None:
    assert summary(expression).keys == {"kubernetes.io/hostname"}


def test_a_filter_that_no_node_can_pass_is_known() -> None:
    assert summary("node.labels.zone == 'not a value!'").unsatisfiable
    assert not summary("node.labels.zone == 'a'").unsatisfiable


def test_a_plugin_says_nothing_of_labels() -> None:
    (rule,) = policy("filters: [{plugin: LimitAware}]").filters
    assert rule.labels.summary.exactness is Exactness.NONE
    assert rule.labels.summary.reasons == {"it is a plugin"}


GPU_GUARD = policy(
    """
    variables:
    - name: wantsGpu
      expression: pod.requests[?'nvidia.com/gpu'].orValue(0.0) > 0
    filters:
    - name: keep-off
      expression: variables.wantsGpu || !('gpu' in node.labels)
    - name: newest
      expression: int(node.labels.generation) > 3
    """
)
_GPU_SPEC = {"containers": [{"resources": {"requests": {"nvidia.com/gpu": "1"}}}]}


def terms(compiled: CompiledPolicy, **spec: object) -> list[list[list[str]]]:
    """Return label and operator of what each filter of a policy requires for a pod."""
    context = PolicyContext(request_of(dict(spec)), NOW, variables=compiled.variables)
    return [
        [[f"{one.key} {one.operator}" for one in term] for term in found.terms]
        for found in (rule.labels.condition(context) for rule in compiled.filters)
    ]


def test_what_is_required_depends_on_the_pod() -> None:
    assert terms(GPU_GUARD) == [[["gpu DoesNotExist"]], [["generation Gt"]]]
    assert terms(GPU_GUARD, **_GPU_SPEC) == [[[]], [["generation Gt"]]]


def test_what_is_remembered_of_one_pod_is_not_told_of_another() -> None:
    for _ in range(2):
        assert terms(GPU_GUARD)[0] == [["gpu DoesNotExist"]]
        assert terms(GPU_GUARD, **_GPU_SPEC)[0] == [[]]


def test_a_part_that_is_the_same_for_every_pod_is_precomputed_at_load() -> None:
    guard, newest = (rule.labels.predicate for rule in GPU_GUARD.filters)
    assert isinstance(newest, Precomputed)
    assert isinstance(guard, AnyOf)
    assert [type(operand) for operand in guard.operands] == [Constant, Precomputed]


def test_the_outcome_of_a_filter_says_what_it_requires() -> None:
    view = view_of(node("a", labels={"gpu": "x", "generation": "4"}))
    context = GPU_GUARD.context(request_of(), view, NOW)
    outcomes = [rule.outcome(context) for rule in GPU_GUARD.filters]
    for outcome in outcomes:
        assert outcome.labels.exactness is Exactness.EXACT
        row = view.rows["a"]
        assert outcome.labels.allows({"gpu": "x", "generation": "4"}) != outcome.rejects[row]


def test_a_variable_that_fails_is_a_failure_of_what_reads_it() -> None:
    broken = policy(
        """
        variables: [{name: pool, expression: "pod.labels.pool"}]
        filters:
        - {name: reject, expression: "node.labels.pool == variables.pool"}
        - name: ignore
          expression: node.labels.pool == variables.pool
          onError: IgnoreRule
        """
    )
    assert terms(broken) == [[], [[]]]  # no node passes the first, every node the second
