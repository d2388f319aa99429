"""What the leader observes of policies in force: their outcomes, and rules that failed lately."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Final

from engine.report import OutcomeReport, PolicyOutcome
from webhook.controllers.policy_status.status import PolicyFacts
from webhook.placement.live_policies import LivePolicies
from webhook.placement.policy_counts import PolicyCounts

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
