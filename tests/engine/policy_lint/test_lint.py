from __future__ import annotations

from pathlib import Path

import pytest

from engine.policy import load_policies
from engine.policy_lint import lint_policy
from engine.policy_lint.samples import samples_for
from tests.engine.policy.worlds import policy

_ROOT = Path(__file__).parents[3]
_POLICIES = [
    *load_policies([_ROOT / "policies"]),
    *load_policies([_ROOT / "webhook" / "demo" / "policies"]),
]


@pytest.mark.parametrize("compiled", _POLICIES, ids=lambda compiled: compiled.name)
def test_the_policies_that_ship_give_no_warning(compiled: object) -> None:
    assert lint_policy(compiled) == ()  # type: ignore[arg-type]  # found above


def test_a_unit_explains_why_a_rule_has_no_effect() -> None:
    spec = "filters: [{name: r, expression: node.usage.cpu / node.allocatable.cpu < 65}]"
    (warning,) = lint_policy(policy(spec))
    assert warning.startswith("r: unit? ")


def test_variables_and_match_conditions_have_units_too() -> None:
    spec = """
    match: {matchConditions: [{name: c, expression: pod.requests.cpu > 500}]}
    variables: [{name: v, expression: pod.requests.memory < 64.0}]
    filters: [{name: r, expression: variables.v || node.ready}]
    """
    warnings = lint_policy(policy(spec))
    assert [warning.partition(": unit? ")[0] for warning in warnings] == [
        "variable `v`",
        "match condition `c`",
    ]


def test_a_policy_that_takes_too_long_is_tried_in_part_and_says_so() -> None:
    compiled = policy("""
    variables: [{name: v, expression: 1 / 0}]
    filters: [{name: r, expression: node.usage.cpu < 0.0}]
    """)
    of_variable, of_rule = lint_policy(compiled)
    assert of_rule.startswith("r: true for no node")
    moments = iter([False] * (len(samples_for(compiled).requests) + 1))
    warnings = lint_policy(compiled, lambda: next(moments, True))
    last = "its rules take too long to try all of them: try them with `stowplan lint`"
    assert warnings == (of_variable, last)
