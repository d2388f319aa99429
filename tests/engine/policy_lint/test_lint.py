from __future__ import annotations

from pathlib import Path

import pytest

from engine.policy import load_policies
from engine.policy_lint import lint_policy
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
