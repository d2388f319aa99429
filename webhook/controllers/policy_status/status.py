"""What the status of a policy says, made of what is known of it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final

import msgspec

from engine.policy import CompiledPolicy
from engine.report import AuditedPolicy, PolicyOutcome
from webhook.cluster.decode_errors import UNREADABLE
from webhook.placement.policy_resources import (
    Acceptance,
    ResourceStanding,
)

ACCEPTED: Final = "Accepted"
DEGRADED: Final = "Degraded"

_MOST_CHARACTERS: Final = 8_192  # of a message; a status is read by people
_TRUE: Final = "True"
_FALSE: Final = "False"


class Condition(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """A condition as `meta/v1` has it.

    Attributes:
        type: `Accepted` or `Degraded`, or one that somebody else writes.
        status: True, False or Unknown.
        observed_generation: of the policy that was judged.
        last_transition_time: when `status` became what it is, ISO 8601.
        reason: in one word.
        message: for people.
    """

    type: str
    status: str
    observed_generation: int = 0
    last_transition_time: str = ""
    reason: str = ""
    message: str = ""


class OutcomeStatus(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """Where the pods of a policy were bound in the window.

    Attributes:
        since: ISO 8601.
        pods: those that were advised, or decided at their binding.
        landed: of those, the ones on a node that they were meant for.
        rejected: pods on a node that its filters turn away.
        gain: mean points against the nodes that the scheduler took, as a text; "" if unknown.
    """

    since: str = ""
    pods: int = 0
    landed: int = 0
    rejected: int = 0
    gain: str = ""


class PolicyStatus(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """The status of a policy.

    Attributes:
        mode: the one in force; "" where the policy is not.
        outcome: None where nobody counts.
        conditions: ours, then those of others.
    """

    mode: str = ""
    outcome: OutcomeStatus | None = None
    conditions: tuple[Condition, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class PolicyFacts:
    """What is known of a policy in force.

    Attributes:
        policy: with the mode in force; None where it is not.
        outcome: where its pods were bound; None where nobody counts.
        since: when that count begins, ISO 8601.
        audited: why it is kept in Audit mode; None if it is not.
        error: a rule or condition that could not be evaluated lately; "" for none.
    """

    policy: CompiledPolicy | None = None
    outcome: PolicyOutcome | None = None
    since: str = ""
    audited: AuditedPolicy | None = None
    error: str = ""


def status_of(
    standing: ResourceStanding, facts: PolicyFacts, before: PolicyStatus, now: str
) -> PolicyStatus:
    """Return the status of a policy as it should be.

    Args:
        standing: what became of it.
        facts: what is known of it.
        before: its status as it is.
        now: ISO 8601.
    """
    generation = standing.resource.generation
    known = {each.type: each for each in before.conditions}
    ours = [
        _condition(kind, *made, generation, known.get(kind), now)
        for kind, made in ((ACCEPTED, _accepted(standing)), (DEGRADED, _degraded(facts)))
    ]
    others = [each for each in before.conditions if each.type not in {ACCEPTED, DEGRADED}]
    return PolicyStatus(
        mode=facts.policy.mode.value if facts.policy is not None else "",
        outcome=_outcome(facts),
        conditions=(*ours, *others),
    )


def read_status(status: Mapping[str, Any]) -> PolicyStatus:
    """Return a status as it was written; an empty one where it cannot be read."""
    try:
        return msgspec.convert(status, PolicyStatus)
    except UNREADABLE:
        return PolicyStatus()


def _condition(
    kind: str,
    status: str,
    reason: str,
    message: str,
    generation: int,
    before: Condition | None,
    now: str,
) -> Condition:
    is_same = before is not None and before.status == status
    return Condition(
        type=kind,
        status=status,
        observed_generation=generation,
        last_transition_time=before.last_transition_time if before and is_same else now,
        reason=reason,
        message=message,
    )


def _accepted(standing: ResourceStanding) -> tuple[str, str, str]:
    acceptance, message = standing.acceptance, standing.message
    if acceptance is Acceptance.INVALID:
        message = _lines([message, *map(str, standing.problems)])
    return _TRUE if acceptance is Acceptance.ACCEPTED else _FALSE, acceptance.value, message


def _degraded(facts: PolicyFacts) -> tuple[str, str, str]:
    """Return whether a policy in force does less than it should, with the worst reason first."""
    if facts.policy is None:
        return "Unknown", "NotInForce", "it is not in force"
    found: list[tuple[str, str]] = []
    if facts.audited is not None:
        found.append(("KeptInAudit", f"it is kept in Audit mode: {facts.audited.reason}"))
    if facts.outcome is not None and facts.outcome.worse:
        found.append(("MakesThingsWorse", f"it makes things worse: {facts.outcome.worse}"))
    if facts.error:
        found.append(("RuleErrors", f"lately it could not be evaluated for a pod: {facts.error}"))
    if facts.policy.slow_parts:
        found.append(("SlowParts", _lines(map(str, facts.policy.slow_parts))))
    if not found:
        return _FALSE, "AsExpected", ""
    return _TRUE, found[0][0], _lines(message for _, message in found)


def _outcome(facts: PolicyFacts) -> OutcomeStatus | None:
    if facts.outcome is None:
        return None
    figures = facts.outcome.total
    gain = figures.mean_gained
    return OutcomeStatus(
        since=facts.since,
        pods=figures.pods,
        landed=figures.landed,
        rejected=figures.rejected,
        gain="" if gain is None else f"{gain:.1f}",
    )


def _lines(texts: Iterable[str]) -> str:
    """Return lines, as many as fit; says how many were left out."""
    lines, room, left_out = list[str](), _MOST_CHARACTERS, 0
    for text in texts:
        room -= len(text) + 1
        if room < 0:
            left_out += 1
        else:
            lines.append(text)
    return "\n".join([*lines, f"and {left_out} more"] if left_out else lines)
