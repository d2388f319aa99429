from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest

from engine.cel import CelError, Program, compile_program
from engine.cel.unparse import unparse
from engine.policy import load_policies
from engine.policy.environment import ExpressionScope, environment
from engine.policy_tests.cross_check import KNOWN_DIFFERENCES, CrossCheck, without_optionals
from engine.policy_tests.runner import run_cases

ROOT = Path(__file__).parents[3]
RULES = environment(ExpressionScope.RULES)
CASE = """\
- name: two nodes
  now: 2026-01-01T00:00:00Z
  cluster:
    nodes:
      - {metadata: {name: a, labels: {n: "1", zone: x}}, status: {allocatable: {cpu: 4, pods: 9}}}
      - {metadata: {name: b}, status: {allocatable: {cpu: 8, pods: 9}}}
  pod: {spec: {containers: [{resources: {requests: {cpu: 500m}}}]}}
  expect: {verdict: Place}
"""


def checked(folder: Path, expression: str, check: CrossCheck) -> CrossCheck:
    """Return a cross-check of a score by one expression, on two nodes."""
    (folder / "policy.yaml").write_text(
        "apiVersion: stowplan.dev/v1alpha1\nkind: PlacementPolicy\nmetadata: {name: p}\n"
        f"spec: {{scores: [{{name: s, expression: {expression!r}}}]}}\n"
    )
    (folder / "cases.yaml").write_text(CASE)
    run = run_cases(folder, examine=check.examine)
    assert not run.problems
    return check


class Other:
    """An engine that takes 8 for 9."""

    def evaluate(self, program: Program, activation: Mapping[str, object]) -> object:
        value = program.evaluate(activation)
        return 9.0 if value == 8.0 else value


@pytest.mark.parametrize(
    "expression",
    [
        "node.allocatable.cpu * 2.0",
        "double(node.labels.n)",  # an error on one node, in both
        "'n' in node.labels ? 1 : 0",
        "double(node.labels[?'n'].orValue('7'))",
        "node.?labels.orValue({}).size()",
        "now > timestamp('2026-01-01T00:00:00Z') - duration('90m') ? 1 : 0",
        "size(pod.ownerKinds.filter(k, k.startsWith('Job')))",
        "node.labels.exists(k, k == 'zone') ? 1.5 : 2.5",
        "node.allocatable.cpu == 8 || 5 > node.allocatable.cpu ? 1 : 0",
    ],
)
def test_what_both_engines_agree_on_is_counted(expression: str, tmp_path: Path) -> None:
    check = checked(tmp_path, expression, CrossCheck())
    assert not check.differences
    assert (check.compared, check.expressions) == (2, {expression})
    assert not check.known
    assert not check.unreadable


def test_a_difference_says_where_and_what(tmp_path: Path) -> None:
    check = checked(tmp_path, "node.allocatable.cpu", CrossCheck(witness=Other()))
    (found,) = check.differences
    assert (found.policy, found.part, found.node, found.case) == ("p", "s", "b", "two nodes")
    assert (str(found.ours), str(found.theirs)) == ("8.0", "9.0")


@pytest.mark.parametrize(
    ("expression", "known"),
    [
        ("dyn(node.allocatable.cpu) + dyn(1)", "arithmetic of numbers of unlike types"),
        ("[node.allocatable.cpu] == [8] ? 1 : 0", "equality of values of unlike types"),
        ("double(null == dyn(1) ? 1 : 0)", "equality of values of unlike types"),
        ("dyn(0.0 / 0.0 < node.allocatable.cpu)", "order of NaN"),
        ("dyn(string(node.allocatable.cpu > 0))", "text of a bool"),
        ("duration('90s').getMilliseconds()", "milliseconds of a duration"),
    ],
)
def test_known_differences_are_no_finding(expression: str, known: str, tmp_path: Path) -> None:
    check = checked(tmp_path, expression, CrossCheck())
    assert not check.differences
    assert check.known == {known: 2}


@pytest.mark.parametrize(
    "expression",
    [
        "node.labels[?'n'].hasValue() ? 1 : 0",
        "math.greatest(node.allocatable.cpu, 5.0)",
        "double(quantity('4Gi').asInteger())",
        "cel.bind(x, node.allocatable.cpu, x * x)",
    ],
)
def test_what_the_other_engine_cannot_read_is_named(expression: str, tmp_path: Path) -> None:
    check = checked(tmp_path, expression, CrossCheck())
    assert (check.compared, check.unreadable) == (0, {expression})


def test_every_known_difference_is_documented() -> None:
    page = (ROOT / "docs" / "cel-environment.md").read_text()
    for known in KNOWN_DIFFERENCES:
        assert f"| {known.what} |" in page


@pytest.mark.parametrize(
    "labels", [{}, {"zone": "a"}, {"zone": "b", "n": "1"}], ids=["none", "one", "two"]
)
@pytest.mark.parametrize(
    "expression",
    [
        "node.labels[?'zone'].orValue('none') == 'a'",
        "node.?labels.orValue({'zone': 'c'})",
        "[1].exists(x, node.labels[?'n'].orValue('') == string(x))",
        "node.labels[?node.labels[?'zone'].orValue('n')].orValue('?')",
    ],
)
def test_an_expression_without_optionals_means_the_same(
    expression: str, labels: dict[str, str]
) -> None:
    program = compile_program(expression, RULES)
    text = unparse(without_optionals(program.root))
    assert "[?" not in text
    assert ".?" not in text
    activation = {"node": {"labels": labels}}
    assert outcome(compile_program(text, RULES), activation) == outcome(program, activation)


def outcome(program: Program, activation: Mapping[str, object]) -> object:
    """Return the value of a program, None where there is an error."""
    try:
        return program.evaluate(activation)
    except CelError:
        return None


def test_policies_that_ship_come_to_the_same() -> None:
    policies = ROOT / "policies" / "spot-for-batch"
    check = CrossCheck()
    run_cases(policies, examine=check.examine)
    assert check.expressions == {
        p.source for policy in load_policies([policies]) for p in policy.programs
    }
    assert not check.differences
