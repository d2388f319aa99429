"""The status of policies of the API: whether each is in force, what is wrong, what it does.

What never belongs here: whether a policy is accepted (`webhook.placement`), where its pods were
bound (`policy_outcome`), when a status is written (`reconciler`).
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final

import msgspec

from engine.model.policy_resource import POLICY_GROUP, POLICY_VERSION
from engine.policy import CompiledPolicy
from engine.report import AuditedPolicy, OutcomeReport, PolicyOutcome
from webhook.cluster.objects import UNREADABLE
from webhook.controllers.reconciler import DesiredState, WriteLimits
from webhook.placement.live_policies import LivePolicies, PolicyCounts
from webhook.placement.policy_files import Acceptance, ResourceStanding

ACCEPTED: Final = "Accepted"
DEGRADED: Final = "Degraded"

_MOST_CHARACTERS: Final = 8_192  # of a message; a status is read by people
_TRUE: Final = "True"
_FALSE: Final = "False"


class Condition(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """A condition as `meta/v1` has it."""

    type: str  # `Accepted` or `Degraded`, or one that somebody else writes
    status: str  # True, False or Unknown
    observed_generation: int = 0  # of the policy that was judged
    last_transition_time: str = ""  # when `status` became what it is, ISO 8601
    reason: str = ""
    message: str = ""


class OutcomeStatus(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """Where the pods of a policy were bound in the window."""

    since: str = ""  # ISO 8601
    pods: int = 0  # those that were advised, or decided at their binding
    landed: int = 0  # of those, the ones on a node that they were meant for
    rejected: int = 0  # pods on a node that its filters turn away
    # mean points against the nodes that the scheduler took, as a text; "" if unknown
    gain: str = ""


class PolicyStatus(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    mode: str = ""  # the one in force; "" where the policy is not
    outcome: OutcomeStatus | None = None  # None where nobody counts
    conditions: tuple[Condition, ...] = ()  # ours, then those of others


@dataclass(frozen=True, slots=True, kw_only=True)
class PolicyFacts:
    """What is known of a policy in force."""

    policy: CompiledPolicy | None = None  # with the mode in force; None where it is not
    outcome: PolicyOutcome | None = None  # where its pods were bound; None where nobody counts
    since: str = ""  # when that count begins, ISO 8601
    audited: AuditedPolicy | None = None  # why it is kept in Audit mode; None if it is not
    error: str = ""  # a rule or condition that could not be evaluated lately; "" for none


def status_of(
    standing: ResourceStanding, facts: PolicyFacts, before: PolicyStatus, now: str
) -> PolicyStatus:
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


_FIGURES_SECONDS: Final = 60.0
"""Least time between two writes of figures alone."""

_NOT_IN_FORCE: Final = PolicyFacts()


@dataclass(frozen=True, slots=True)
class _Policy:
    standing: ResourceStanding
    facts: PolicyFacts | None  # None where it is not in force
    today: str  # ISO 8601

    @property
    def key(self) -> str:
        return self.standing.resource.path

    @property
    def version(self) -> int:
        return self.standing.resource.version


@dataclass(eq=False)
class PolicyStatuses(DesiredState[_Policy, PolicyStatus]):
    limits = WriteLimits(most_writes=20, apart_seconds=0.0)

    standings: Callable[[], Iterable[ResourceStanding]]
    # of each policy in force, by its name
    facts: Callable[[], Awaitable[Mapping[str, PolicyFacts]]]
    today: Callable[[], str]  # the time of day, ISO 8601

    async def objects(self) -> Iterable[_Policy]:
        """Return the policies of the API, each with its facts if it is in force."""
        standings = list(self.standings())
        facts = await self.facts() if standings else {}
        return [
            _Policy(
                each, facts.get(each.resource.policy_name) if each.policy else None, self.today()
            )
            for each in standings
        ]

    def current(self, found: _Policy) -> PolicyStatus:
        return read_status(found.standing.resource.status)

    def desired(self, found: _Policy, current: PolicyStatus) -> PolicyStatus:
        return status_of(found.standing, found.facts or _NOT_IN_FORCE, current, found.today)

    def apart_seconds(self, current: PolicyStatus, desired: PolicyStatus | None) -> float:
        """Return a longer time if figures alone have changed, or the words of a condition."""
        is_first = current.outcome is None
        are_figures = desired is not None and _standing(current) == _standing(desired)
        return _FIGURES_SECONDS if are_figures and not is_first else self.limits.apart_seconds

    def merge_patch(
        self,
        found: _Policy,
        current: PolicyStatus,  # noqa: ARG002 - as every desired state
        desired: PolicyStatus,
    ) -> tuple[str, Mapping[str, object]]:
        resource = found.standing.resource
        within = f"namespaces/{resource.namespace}/" if resource.namespace else ""
        group = f"/apis/{POLICY_GROUP}/{POLICY_VERSION}"
        path = f"{group}/{within}{resource.kind.plural}/{resource.name}/status"
        return path, {"metadata": {"uid": resource.uid}, "status": desired}

    def title(self, found: _Policy) -> str:
        return f"status of {found.key}"


def _standing(status: PolicyStatus) -> tuple[object, ...]:
    """Return what a status says but for figures and words, which may change with each decision."""
    conditions = (
        (each.type, each.status, each.reason, each.observed_generation)
        for each in status.conditions
    )
    return status.mode, *conditions


_OUTCOME_SECONDS: Final = 10.0
_ERROR_SECONDS: Final = 600.0


@dataclass(slots=True)
class _Errors:
    count: int
    at: float


@dataclass(eq=False)
class PolicyObservations:
    policies: LivePolicies
    counts: PolicyCounts  # of what they decided on this replica
    # where pods were bound; None where nobody counts
    outcome: Callable[[], Awaitable[OutcomeReport]] | None
    clock: Callable[[], float]

    def __post_init__(self) -> None:
        self._report: OutcomeReport | None = None
        self._read_at = float("-inf")
        self._errors: dict[str, _Errors] = {}

    async def read(self) -> dict[str, PolicyFacts]:
        now = self.clock()
        if self.outcome is not None and now - self._read_at >= _OUTCOME_SECONDS:
            self._read_at = now
            self._report = await self.outcome()
        outcomes: dict[str, PolicyOutcome] = {}
        for each in self._report.policies if self._report else ():
            outcomes.setdefault(each.policy, each)  # that of Enforce mode comes first
        audited = self._report.audited if self._report else {}
        in_force = {policy.name: policy for policy in self.policies.current}
        self._errors = {name: each for name, each in self._errors.items() if name in in_force}
        facts = {}
        for name, policy in in_force.items():
            kept = audited.get(name)
            facts[name] = PolicyFacts(
                policy=policy,
                outcome=outcomes.get(name),
                since=self._report.since if self._report else "",
                audited=kept if kept and kept.digest == policy.digest.hex() else None,
                error=self._error(name, now),
            )
        return facts

    def _error(self, name: str, now: float) -> str:
        """Return what failed last of a policy, if that was lately."""
        count, text = self.counts.errors(name)
        known = self._errors.get(name)
        if count and (known is None or known.count != count):
            known = self._errors[name] = _Errors(count, now)
        return text if known is not None and now - known.at < _ERROR_SECONDS else ""
