"""The warnings for a policy."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from engine.policy import CompiledPolicy, NodeExpression
from engine.policy.part_places import condition_part, variable_part
from engine.policy_lint.effects import effect_warnings
from engine.policy_lint.samples import OutOfTimeError, samples_for
from engine.policy_lint.units import Amount, amount_of, unit_warnings


def lint_policy(
    policy: CompiledPolicy, is_over: Callable[[], bool] = lambda: False
) -> tuple[str, ...]:
    """Return a line for each part of a policy that is valid and probably not meant.

    Where a unit explains why a rule has no effect, only the unit is named.

    Args:
        policy: the policy.
        is_over: whether the time is up; then no further parts are tried, and the last line says so.
    """
    variables: dict[str, Amount] = {}
    units: list[str] = []
    for name, program in policy.variables.items():
        units += (f"{variable_part(name)}: {text}" for text in unit_warnings(program, variables))
        variables[name] = amount_of(program, variables)
    for name, program in policy.conditions.items():
        units += (f"{condition_part(name)}: {text}" for text in unit_warnings(program))
    for rule in policy.rules:
        if isinstance(rule.evaluator, NodeExpression):
            found = unit_warnings(rule.evaluator.program, variables)
            units += (f"{rule.name}: {text}" for text in found)
    explained = {text.partition(":")[0] for text in units}
    effects = _effects(policy, is_over)
    return (*units, *(text for text in effects if text.partition(":")[0] not in explained))


def _effects(policy: CompiledPolicy, is_over: Callable[[], bool]) -> Iterator[str]:
    try:
        yield from effect_warnings(policy, samples_for(policy, is_over))
    except OutOfTimeError:
        yield "its rules take too long to try all of them: try them with `stowplan lint`"
