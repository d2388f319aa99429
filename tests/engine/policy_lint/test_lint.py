from __future__ import annotations

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
    assert (of_rule.part, of_rule.message[:16]) == ("r", "true for no node")
    moments = iter([False] * (len(samples_for(compiled).requests) + 1))
    found, last = observed_findings(compiled, lambda: next(moments, True))
    assert found == of_variable
    assert last.message.startswith("its rules take too long")
