"""What the expressions of a policy mean, and what they come to."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final

from engine.policy import CompiledPolicy, ScoreRule
from engine.policy.findings import Finding
from engine.policy_lint.absent import absent_findings
from engine.policy_lint.effects import effect_findings
from engine.policy_lint.generated_names import generated_name_findings
from engine.policy_lint.logic import logic_findings
from engine.policy_lint.ordering import ordering_findings
from engine.policy_lint.parts import parts_of
from engine.policy_lint.samples import OutOfTimeError, samples_for
from engine.policy_lint.statuses import status_findings
from engine.policy_lint.units import Amount, absolute_findings, amount_of, unit_findings

_TOO_LONG: Final = "its rules take too long to try all of them: try them with `stowplan lint`"


def meaning_findings(policy: CompiledPolicy) -> Iterator[Finding]:
    """Yield a finding for each part of an expression that is hardly meant as it is written."""
    amounts: dict[str, Amount] = {}
    for part in parts_of(policy):
        yield from unit_findings(part.name, part.program, amounts)
        if part.variable:
            amounts[part.variable] = amount_of(part.program, amounts)
        if isinstance(part.rule, ScoreRule):
            yield from absolute_findings(policy, part, amounts)
        yield from logic_findings(part)
        yield from status_findings(part)
        yield from ordering_findings(policy, part)
        yield from generated_name_findings(part)
        yield from absent_findings(policy, part)


def observed_findings(
    policy: CompiledPolicy, is_over: Callable[[], bool] = lambda: False
) -> Iterator[Finding]:
    """Yield a finding for each part that is found to have no effect, or to fail, when it is tried.

    Args:
        policy: the policy.
        is_over: whether the time is up; then no further parts are tried, and the last one says so.
    """
    try:
        yield from effect_findings(policy, samples_for(policy, is_over))
    except OutOfTimeError:
        yield Finding("", _TOO_LONG)
