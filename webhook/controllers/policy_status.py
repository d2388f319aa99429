"""The status of policies of the API: whether each is in force, what is wrong, what it does.

What belongs here: what a status says, and the task of the leader that writes it. What never does:
whether a policy is accepted (`webhook.placement`), where its pods were bound (`outcome`).
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final

import msgspec

from engine.model.api import PlacementPolicy
from engine.model.policy_resource import POLICY_GROUP, POLICY_VERSION, PolicyResource
from engine.policy import CompiledPolicy
from engine.report import AuditedPolicy, OutcomeReport, PolicyOutcome
from webhook.cluster.client.connection import ApiError, Connection
from webhook.cluster.objects import UNREADABLE
from webhook.placement.live_policies import LivePolicies, PolicyCounts
from webhook.placement.policy_files import Acceptance, ResourceStanding
from webhook.quota import MonotonicClock

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


_MERGE_PATCH: Final = "application/merge-patch+json"
_ROUND_SECONDS: Final = 1.0
_FIGURES_SECONDS: Final = 60.0  # between two writes of figures alone
_RETRY_SECONDS: Final = 5.0
_MOST_WRITES: Final = 20  # in a round
_CALL_SECONDS: Final = 5.0
_NOT_IN_FORCE: Final = PolicyFacts()

_log = logging.getLogger(__name__)
_policy: Final = msgspec.json.Decoder(PlacementPolicy).decode


@dataclass(slots=True)
class _Record:
    """What was done about one policy; moments by the clock of the controller."""

    # the status that was written last, None before the first time
    written: PolicyStatus | None = None
    version: int = 0  # that the write made
    written_at: float = float("-inf")  # when it was
    failed_at: float = float("-inf")  # when a write failed last


class PolicyStatusController:
    """The task of the leader; restarted whenever this replica starts to lead.

    Args:
        connection: to the API server.
        standings: what became of each policy of the API.
        facts: of each policy in force, by its name.
        today: the time of day, ISO 8601.
        clock: of pauses.
        may_write: whether this replica leads at this very moment.
    """

    def __init__(
        self,
        connection: Connection,
        *,
        standings: Callable[[], Iterable[ResourceStanding]],
        facts: Callable[[], Awaitable[Mapping[str, PolicyFacts]]],
        today: Callable[[], str],
        clock: MonotonicClock | None = None,
        may_write: Callable[[], bool] = lambda: True,
    ) -> None:
        self._connection = connection
        self._standings = standings
        self._facts = facts
        self._today = today
        self._clock = clock or MonotonicClock()
        self._may_write = may_write
        self._records: dict[str, _Record] = {}

    async def run(self) -> None:
        """Repeat rounds until cancelled."""
        self._records.clear()
        while True:
            await self.round()
            await self._clock.sleep(_ROUND_SECONDS)

    async def round(self) -> None:
        """Write each status that is wrong and due, those first that were written longest ago."""
        standings = {each.resource.path: each for each in self._standings()}
        self._records = {key: each for key, each in self._records.items() if key in standings}
        if not standings:
            return
        facts, today = await self._facts(), self._today()
        due = []
        for path, standing in standings.items():
            record = self._records.setdefault(path, _Record())
            shown = self._shown(standing.resource, record)
            of_policy = facts.get(standing.resource.policy_name) if standing.policy else None
            wanted = status_of(standing, of_policy or _NOT_IN_FORCE, shown, today)
            if wanted != shown and self._is_due(record, shown, wanted):
                due.append((record.written_at, path, wanted))
        due.sort(key=lambda each: each[:2])
        for _, path, wanted in due[:_MOST_WRITES]:
            if self._may_write():
                await self._write(standings[path].resource, self._records[path], wanted)

    def _shown(self, resource: PolicyResource, record: _Record) -> PolicyStatus:
        """Return the status of a policy; the last write may not have been observed yet."""
        if record.written is not None and record.version > resource.version:
            return record.written
        return read_status(resource.status)

    def _is_due(self, record: _Record, shown: PolicyStatus, wanted: PolicyStatus) -> bool:
        """Whether a wrong status is written now; figures alone wait for some time."""
        now = self._clock.now()
        if now - record.failed_at < _RETRY_SECONDS:
            return False
        are_figures = (shown.mode, shown.conditions) == (wanted.mode, wanted.conditions)
        is_first = shown.outcome is None
        return not are_figures or is_first or now - record.written_at >= _FIGURES_SECONDS

    async def _write(self, resource: PolicyResource, record: _Record, wanted: PolicyStatus) -> None:
        """Write a status; after a failure it is tried again when it is due."""
        body = msgspec.json.encode({"metadata": {"uid": resource.uid}, "status": wanted})
        try:
            async with asyncio.timeout(_CALL_SECONDS):
                answer = await self._connection.write(
                    "PATCH", _path(resource), body, content_type=_MERGE_PATCH
                )
            record.version = _policy(answer).metadata.version
        except (ApiError, TimeoutError, msgspec.DecodeError) as error:
            record.failed_at = self._clock.now()
            _log.debug("status of %s: %s", resource.path, error or "no answer in time")
            return
        record.written, record.written_at = wanted, self._clock.now()


def _path(resource: PolicyResource) -> str:
    within = f"namespaces/{resource.namespace}/" if resource.namespace else ""
    api = f"/apis/{POLICY_GROUP}/{POLICY_VERSION}"
    return f"{api}/{within}{resource.kind.plural}/{resource.name}/status"


_OUTCOME_SECONDS: Final = 10.0
_ERROR_SECONDS: Final = 600.0


@dataclass(slots=True)
class _Errors:
    count: int
    at: float


class PolicyObservations:
    """Facts of policies by name.

    Args:
        policies: those in force.
        counts: of what they decided on this replica.
        outcome: where pods were bound; None where nobody counts.
        clock: seconds that only go forward.
    """

    def __init__(
        self,
        policies: LivePolicies,
        counts: PolicyCounts,
        outcome: Callable[[], Awaitable[OutcomeReport]] | None,
        clock: Callable[[], float],
    ) -> None:
        self._policies = policies
        self._counts = counts
        self._outcome = outcome
        self._clock = clock
        self._report: OutcomeReport | None = None
        self._read_at = float("-inf")
        self._errors: dict[str, _Errors] = {}

    async def read(self) -> dict[str, PolicyFacts]:
        """Return the facts of every policy in force."""
        now = self._clock()
        if self._outcome is not None and now - self._read_at >= _OUTCOME_SECONDS:
            self._read_at = now
            self._report = await self._outcome()
        outcomes: dict[str, PolicyOutcome] = {}
        for each in self._report.policies if self._report else ():
            outcomes.setdefault(each.policy, each)  # that of Enforce mode comes first
        audited = self._report.audited if self._report else {}
        in_force = {policy.name: policy for policy in self._policies.current}
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
        count, text = self._counts.errors(name)
        known = self._errors.get(name)
        if count and (known is None or known.count != count):
            known = self._errors[name] = _Errors(count, now)
        return text if known is not None and now - known.at < _ERROR_SECONDS else ""
