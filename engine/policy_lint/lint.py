"""The warnings for a policy."""

from __future__ import annotations

from engine.policy import CompiledPolicy, NodeExpression
from engine.policy_lint.effects import effect_warnings
from engine.policy_lint.samples import samples_for
from engine.policy_lint.units import Amount, amount_of, unit_warnings


def lint_policy(policy: CompiledPolicy) -> tuple[str, ...]:
    """Return a line for each part of a policy that is valid and probably not meant.

    Where a unit explains why a rule has no effect, only the unit is named.
    """
    variables: dict[str, Amount] = {}
    units: list[str] = []
    for name, program in policy.variables.items():
        units += (f"variable `{name}`: {text}" for text in unit_warnings(program, variables))
        variables[name] = amount_of(program, variables)
    for name, program in policy.conditions.items():
        units += (f"match condition `{name}`: {text}" for text in unit_warnings(program))
    for rule in policy.rules:
        if isinstance(rule.evaluator, NodeExpression):
            found = unit_warnings(rule.evaluator.program, variables)
            units += (f"{rule.name}: {text}" for text in found)
    explained = {text.partition(":")[0] for text in units}
    effects = effect_warnings(policy, samples_for(policy))
    return (*units, *(text for text in effects if text.partition(":")[0] not in explained))
