from __future__ import annotations

import json
from pathlib import Path

import pytest

from engine.documents import read_documents
from engine.policy import CompiledPolicy, PolicySet, load_policies
from engine.policy.compile import compile_policy
from engine.policy_lint import CHECKS, Check, PolicyWarning, joint_warnings, policy_warnings
from engine.policy_lint.lint import meaning_findings, observed_findings
from engine.policy_lint.samples import samples_for
from tests.engine.policy.worlds import policy


def test_variables_and_match_conditions_have_units_too() -> None:
    spec = """
    match: {matchConditions: [{name: c, expression: pod.requests.cpu > 500}]}
    variables: [{name: v, expression: pod.requests.memory < 64.0}]
    filters: [{name: r, expression: variables.v || node.ready}]
    """
    findings = meaning_findings(policy(spec))
    assert [each.part for each in findings] == ["variable `v`", "match condition `c`"]


def test_a_policy_that_takes_too_long_is_tried_in_part_and_says_so() -> None:
    compiled = policy("""
    variables: [{name: v, expression: 1 / 0}]
    filters: [{name: r, expression: node.usage.cpu < 0.0}]
    """)
    of_variable, of_rule = observed_findings(compiled)
    assert (of_rule.part, of_rule.message[:14]) == ("r", "it rejects all")
    moments = iter([False] * (len(samples_for(compiled).requests) + 1))
    found, last = observed_findings(compiled, lambda: next(moments, True))
    assert found == of_variable
    assert last.message.startswith("its rules take too long")


def chain(variables: int, expression: str) -> CompiledPolicy:
    """Return a policy whose variables each read the one before."""
    each = [{"name": "v0", "expression": "pod.requests.cpu > 1.0"}]
    each += [
        {"name": f"v{n}", "expression": expression.format(before=f"variables.v{n - 1}", n=n)}
        for n in range(1, variables)
    ]
    last = f"variables.v{variables - 1}"
    filters = [
        {"name": name, "expression": f"{last} || node.podCount < {most}"}
        for name, most in (("a", 5), ("b", 7))
    ]
    return policy(json.dumps({"variables": each, "filters": filters}))


def test_variables_that_read_others_twice_are_not_written_out() -> None:
    # Written out, the last of 40 variables has 2**40 parts.
    compiled = chain(40, "{before} && ({before} || pod.priority > {n})")
    assert not [each for each in meaning_findings(compiled) if "no node" in each.message]


def test_a_long_chain_of_nested_variables_is_no_fault() -> None:
    nested = "(" * 20 + "{before}" + " || pod.priority > {n})" * 20
    assert not [each for each in meaning_findings(chain(60, nested)) if each.part == "b"]


def test_conflicts_are_not_looked_for_once_the_time_is_up() -> None:
    compiled = policy("""
    filters:
    - {name: a, expression: node.podCount < 5}
    - {name: b, expression: node.podCount > 7}
    """)
    (found,) = meaning_findings(compiled)
    assert found.part == "b"
    assert not list(meaning_findings(compiled, lambda: True))


POLICY = b"""\
apiVersion: stowplan.dev/v1alpha1
kind: PlacementPolicy
metadata:
  name: many
spec:
  match:
    matchConditions:
      - { name: large, expression: pod.requests.cpu > 500 }
  variables:
    - name: small
      expression: pod.requests.memory < 64.0
  filters:
    - name: low
      expression: node.usage.memory < 4096.0
    - name: joined
      expression: "node.taints.exists(t, t.key == pod.labels['a'] + node.name)"
    - name: zone
      expression: node.labels.z == '-'
  scores:
    - name: size
      expression: "node.allocatable.cpu > 4000 ? 5 : 6"
  placement: { dynamicFilters: Required }
"""


_ROOT = Path(__file__).parents[3]
_SHIPPED = (*load_policies([_ROOT / "policies", _ROOT / "webhook" / "demo" / "policies"]),)


@pytest.mark.parametrize("compiled", _SHIPPED, ids=lambda compiled: compiled.name)
def test_the_policies_that_ship_give_no_warning(compiled: CompiledPolicy) -> None:
    found = policy_warnings(compiled)
    assert [each for each in found if each.check is not Check.PLACEMENT] == []


def test_the_policies_that_ship_contradict_none_of_the_others() -> None:
    assert joint_warnings(PolicySet(_SHIPPED)) == ()


def test_a_rule_that_another_policy_has_for_the_same_pods_is_named() -> None:
    rules = (
        "filters: [{name: few, expression: node.podCount < 50}]\n"
        "scores: [{name: s, expression: -node.podCount}]"
    )
    match = "match: {objectSelector: {matchLabels: {app: web}}}\n"
    of_filter, of_score = joint_warnings(PolicySet((policy(rules, "a"), policy(rules, "b"))))
    assert str(of_filter).startswith("few: `few` of policy `a` is the same, for the same pods")
    assert "together their weight is 2" in of_score.message
    assert joint_warnings(PolicySet((policy(rules, "a"), policy(match + rules, "b")))) == ()
    variables = "variables: [{{name: v, expression: '{}'}}]\n"
    reading = "filters: [{name: few, expression: node.podCount < variables.v}]"
    others = (policy(variables.format(number) + reading, f"p{number}") for number in (5, 6))
    assert joint_warnings(PolicySet(others)) == ()


def test_a_unit_explains_why_a_rule_has_no_effect() -> None:
    spec = "filters: [{name: r, expression: node.usage.cpu / node.allocatable.cpu < 65}]"
    (warning,) = policy_warnings(policy(spec))
    assert warning.message.startswith("unit? ")


def found(content: bytes = POLICY) -> tuple[PolicyWarning, ...]:
    (document,) = read_documents(content, "many.yaml")
    compiled, problems = compile_policy(document)
    assert compiled is not None, problems
    return policy_warnings(compiled)


def test_each_warning_stands_at_the_part_that_it_is_about() -> None:
    places = {(each.check, each.part, each.place.line) for each in found()}
    assert places >= {
        (Check.PLACEMENT, "", 22),
        (Check.MEANING, "match condition `large`", 8),
        (Check.MEANING, "variable `small`", 11),
        (Check.MEANING, "low", 14),
        (Check.COST, "joined", 16),
        (Check.LABELS, "zone", 18),
        (Check.MEANING, "size", 21),
    }


def test_wishes_of_pods_that_are_ignored_are_named() -> None:
    def ignored(placement: str, score: str = "LoadAware") -> list[str]:
        text = f"scores: [{{plugin: {score}}}]\nplacement: {{schedulerScores: {placement}}}"
        return [str(each) for each in policy_warnings(policy(text)) if "ignores" in each.message]

    (line,) = ignored("{TaintToleration: 0}")
    assert line == "`schedulerScores` ignores what pods ask for themselves: soft taints"
    (line,) = ignored("Off", "NodeAffinity")
    assert line.endswith("soft taints, spread over nodes and zones, preferred affinity to pods")
    assert ignored("{TaintToleration: 1}") == []


def test_a_warning_is_shown_as_mistakes_are() -> None:
    (warning,) = (each for each in found() if each.part == "low")
    place, source, caret, hint = str(warning.diagnostic).splitlines()
    assert place.startswith("many.yaml:14:37: low: unit? ")
    assert source == " |       expression: node.usage.memory < 4096.0"
    assert caret == f" | {'.' * 36}^"
    assert hint == "hint: for 4096 Mi write `4294967296.0`"


def test_a_policy_that_is_as_meant_has_none() -> None:
    assert policy_warnings(policy("filters: [{name: r, expression: node.ready}]")) == ()


@pytest.mark.parametrize(
    "expression",
    [
        "node.labels[?'kubevirt.io/schedulable'].orValue('') == 'true'",
        "'feature.node.kubernetes.io/cpu-cpuid.AVX' in node.labels",
    ],
)
def test_a_promise_on_a_label_that_changes_while_pods_run_is_warned_of(expression: str) -> None:
    rules = policy(f'filters: [{{name: f, expression: "{expression}"}}]')
    (warning,) = policy_warnings(rules)
    assert (warning.check, warning.part) == (Check.LABELS, "f")
    assert "changes in the life of a node" in warning.message
    as_a_score = policy(f'scores: [{{name: s, expression: "{expression} ? 1 : 0"}}]')
    assert policy_warnings(as_a_score) == ()


def test_every_check_is_explained() -> None:
    assert set(CHECKS) == set(Check)
    page = (_ROOT / "docs" / "lint.md").read_text(encoding="utf-8")
    assert [check for check in Check if f"`{check.value}`" not in page] == []


def test_a_plugin_that_filters_and_ranks_by_the_same_args_is_warned_of_once() -> None:
    rule = b"[{plugin: LoadAware, args: {usageThresholds: {cpu: 1}}}]"
    head, _, _ = POLICY.partition(b"  match:")
    (warning,) = found(head + b"  filters: " + rule + b"\n  scores: " + rule)
    assert (warning.check, warning.part) == (Check.UNUSUAL, "LoadAware")
