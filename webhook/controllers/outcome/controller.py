"""The task of the leader that counts where pods are bound, and acts on policies that do harm."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final

import msgspec

from engine.model.time import Micros, date
from engine.outcome import (
    OutcomeCounts,
    OutcomeWindow,
    PolicyLanding,
    WindowState,
    WorseRules,
    advised_landings,
    may_be_audited,
)
from engine.policy import CompiledPolicy, Mode, PolicySet
from engine.report import AuditedPolicy, OutcomeReport
from webhook.cluster.client.connection import ApiError, Connection
from webhook.cluster.object_event import ObjectEvent, ObjectReference
from webhook.controllers.outcome.audited_policies import AUDITED_ANNOTATION, AuditedPolicies
from webhook.controllers.outcome.bound_pods import BoundPod, BoundPods
from webhook.controllers.outcome.record import (
    AUDITED_KEY,
    REPORT_KEY,
    WINDOW_KEY,
    OutcomeRecord,
    Recorded,
)
from webhook.placement.live_policies import WhenWorse

_ROUND_SECONDS: Final = 20.0
_STORE_SECONDS: Final = 60.0
_LAST_STORE_SECONDS: Final = 2.0
_REPORTED: Final = "makes things worse than the scheduler alone would"
_SET_TO_AUDIT: Final = "is set to Audit"

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class OutcomeParts:
    """What the controller works with.

    Attributes:
        connection: to the API server, for Events.
        identity: of this process, written in each Event.
        bound: the pods that are bound.
        record: of the figures.
        audited: keeps policies in Audit mode here.
        annotate: writes an annotation on the Lease, for the other replicas.
        policies: those in force.
        is_ready: whether the cluster and the policies are complete.
        now: the time of day.
    """

    connection: Connection
    identity: str
    bound: BoundPods
    record: OutcomeRecord
    audited: AuditedPolicies
    annotate: Callable[[str, str], None]
    policies: Callable[[], PolicySet]
    is_ready: Callable[[], bool]
    now: Callable[[], Micros]


@dataclass(frozen=True, slots=True, kw_only=True)
class OutcomeRules:
    """By what a policy is measured.

    Attributes:
        window_seconds: the time whose figures count.
        worse: when it makes things worse.
        when_worse: what follows then.
    """

    window_seconds: int
    worse: WorseRules
    when_worse: WhenWorse


class OutcomeController:
    """Counts what became of decisions while this replica leads.

    Args:
        parts: what it works with.
        rules: by what policies are measured.
        clock: seconds that only go forward.

    Attributes:
        counts: figures since the start of this process.
        worse: why which policy makes things worse; empty on replicas that do not lead.
        audited_policies: those in Audit mode for what they did; likewise.
    """

    def __init__(
        self,
        parts: OutcomeParts,
        rules: OutcomeRules,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.counts = OutcomeCounts()
        self.worse: Mapping[str, str] = {}
        self.audited_policies: Mapping[str, AuditedPolicy] = {}
        self._parts = parts
        self._rules = rules
        self._clock = clock
        self._window: OutcomeWindow | None = None
        self._stored: WindowState | None = None
        self._stored_at = float("-inf")

    async def run(self) -> None:
        """Count until cancelled."""
        await self.begin()
        try:
            while True:
                await self.round()
                await asyncio.sleep(_ROUND_SECONDS)
        finally:
            await self.end()

    async def begin(self) -> None:
        """Go on where the last leader ended."""
        self._window = await self._restored()
        self._parts.bound.begin(self._count)

    async def end(self) -> None:
        """Count no more: another replica does, and goes on from here if it can be told."""
        window, self._window = self._window, None
        self._parts.bound.end()
        self.worse, self.audited_policies = {}, {}
        if window is not None:
            try:
                async with asyncio.timeout(_LAST_STORE_SECONDS):
                    await self._store(window)
            except (ApiError, TimeoutError) as error:
                _log.info("the latest outcomes are not stored: %s", error)

    async def report(self) -> OutcomeReport:
        """Return the figures: those of this moment if this replica leads, else the stored ones."""
        if self._window is not None:
            return self._report(self._window)
        return await self._parts.record.report(self._rules.window_seconds)

    def _count(self, bound: BoundPod) -> None:
        """Count where a pod was bound, by what its decision or its advice says of that node."""
        window, landings = self._window, self._landings(bound)
        if window is not None and landings:
            window.add(bound.namespace, landings, self._parts.now())
            self.counts.add(bound.namespace, landings)

    def _landings(self, bound: BoundPod) -> Sequence[PolicyLanding]:
        if bound.decided is not None:
            return bound.decided.landings
        if bound.advice is None:
            return ()
        acting = {each.name for each in self._parts.policies() if each.mode is Mode.ENFORCE}
        return advised_landings(bound.advice, bound.node_name, acting)

    async def round(self) -> None:
        """Follow what an operator has written, judge the policies, and store the figures."""
        if self._window is None or not self._parts.is_ready():
            return
        try:
            recorded = await self._parts.record.read()
            self._follow(self._window, recorded.audited)
            await self._judge_policies(self._window, recorded)
            if self._clock() - self._stored_at >= _STORE_SECONDS:
                await self._store(self._window)
        except ApiError as error:
            _log.warning("outcomes are not stored: %s", error)

    def _follow(self, window: OutcomeWindow, audited: Mapping[str, AuditedPolicy]) -> None:
        """Keep the recorded policies in Audit mode, on every replica."""
        for name in self.audited_policies.keys() - audited.keys():
            _log.warning("policy `%s` is in force again", name)
            window.forget(name)
        self.audited_policies = audited
        self._parts.audited.use(audited)
        self._parts.annotate(AUDITED_ANNOTATION, msgspec.json.encode(audited).decode())

    async def _judge_policies(self, window: OutcomeWindow, recorded: Recorded) -> None:
        """Report policies that make things worse, and set them to Audit where that is wanted."""
        report, before = self._report(window), self.worse
        self.worse = {each.policy: each.worse for each in report.policies if each.worse}
        by_name = {policy.name: policy for policy in self._parts.policies()}
        new: dict[str, AuditedPolicy] = {}
        for name, reason in self.worse.items():
            is_audited = self._rules.when_worse == "Audit" and may_be_audited(by_name[name])
            if is_audited:
                new[name] = self._audited(by_name[name], reason)
            elif name not in before:
                await self._event_of(name, reason, recorded, "Reported", _REPORTED)
        if not new:
            return
        audited = {**recorded.audited, **new}
        await self._parts.record.write({AUDITED_KEY: audited}, recorded.version)
        self._follow(window, audited)
        for name, policy in new.items():
            window.forget(name)
            _log.warning("policy `%s` is set to Audit: %s", name, policy.reason)
            await self._event_of(name, policy.reason, recorded, "SetToAudit", _SET_TO_AUDIT)

    def _audited(self, policy: CompiledPolicy, reason: str) -> AuditedPolicy:
        since = f"{date(self._parts.now()):%Y-%m-%dT%H:%M:%SZ}"
        return AuditedPolicy(digest=policy.digest.hex(), since=since, reason=reason)

    async def _event_of(
        self, name: str, reason: str, recorded: Recorded, action: str, consequence: str
    ) -> None:
        parts, now = self._parts, datetime.now(UTC)
        event = ObjectEvent(
            about=ObjectReference(
                api_version="v1",
                kind="ConfigMap",
                namespace=parts.record.config_map.namespace,
                name=parts.record.config_map.name,
                uid=recorded.uid,
            ),
            reason="PolicyMakesThingsWorse",
            action=action,
            message=f"policy `{name}` {consequence}: {reason}",
            since=now,
            until=now,
        )
        await event.write(parts.connection, parts.identity)

    async def _store(self, window: OutcomeWindow) -> None:
        """Store the figures if they have changed."""
        self._stored_at, state = self._clock(), window.state()
        if state == self._stored:
            return
        await self._parts.record.write({WINDOW_KEY: state, REPORT_KEY: self._report(window)})
        self._stored = state

    async def _restored(self) -> OutcomeWindow:
        """Return the figures of the last leader, none where they cannot be read."""
        try:
            recorded = await self._parts.record.read()
            window = OutcomeWindow(self._rules.window_seconds, recorded.window)
        except (ApiError, ValueError) as error:
            _log.warning("outcomes begin anew: %s", error)
            return OutcomeWindow(self._rules.window_seconds)
        self._follow(window, recorded.audited)
        return window

    def _report(self, window: OutcomeWindow) -> OutcomeReport:
        parts = self._parts
        return window.report(
            parts.now(), parts.policies(), self._rules.worse, self.audited_policies
        )
