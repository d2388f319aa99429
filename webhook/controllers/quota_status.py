"""The controller of ElasticQuotas: keeps `status.used` correct and removes ended reservations.

No verdict rests on `status.used`; it is for people and dashboards. So it may be late: a write of
the status makes a replica that reserves at that moment try again, which must stay rare.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from itertools import islice
from typing import Final

import msgspec

from engine.model import api
from engine.model.elastic_quota import (
    SECONDS_PER_RELEASE_ANNOTATION,
    UPSTREAM_GROUP,
    ElasticQuota,
    QuotaKey,
    release_interval,
)
from engine.model.quantity import amount_text
from engine.model.resources import Amounts
from engine.quota import QuotaUsage, StatusCounts, decode_reservations, status_used
from engine.view import ClusterView
from webhook.cluster.client.connection import ApiError, Connection
from webhook.cluster.object_event import ObjectEvent, quota_reference
from webhook.quota import MonotonicClock, QuotaConfig

# The audit of ElasticQuotas: finds namespaces whose pods use more than `max`.
#
# No verdict lets that happen. It does where pods were created while nobody judged them, where a
# quota is younger than its pods, or where `max` was lowered.


_ROUND_SECONDS = 5.0
_SETTLE_SECONDS = 30.0  # pods that are replaced may overlap in the view for a moment
_INTERVAL_SECONDS = 3600.0  # an Event is kept for an hour
_RETRY_SECONDS = 60.0
_MOST_EVENTS = 20  # in a round


class QuotaAudit:
    """The task of the leader that reports quotas whose pods use more than `max`."""

    def __init__(
        self,
        connection: Connection,
        *,
        usages: Callable[[], Iterable[QuotaUsage]],
        identity: str,
        show: Callable[[int], None] = lambda _quotas: None,
        now: Callable[[], datetime] = lambda: datetime.now(UTC),
        clock: MonotonicClock | None = None,
        may_write: Callable[[], bool] = lambda: True,
    ) -> None:
        self._connection = connection
        self._usages = usages
        self._identity = identity
        self._show = show
        self._now = now
        self._clock = clock or MonotonicClock()
        self._may_write = may_write
        self._since: dict[QuotaKey, tuple[float, datetime]] = {}
        self._due_at: dict[QuotaKey, float] = {}

    async def run(self) -> None:
        """Repeat rounds until cancelled."""
        self._since.clear()
        self._due_at.clear()
        try:
            while True:
                await self.round()
                await self._clock.sleep(_ROUND_SECONDS)
        finally:
            self._show(0)  # the next leader counts them

    async def round(self) -> None:
        """Count the quotas above `max`, and write the Events that are due."""
        now = self._clock.now()
        above = {usage.quota.key: usage for usage in self._usages() if usage.exceeded}
        self._since = {key: self._since.get(key, (now, self._now())) for key in above}
        self._due_at = {key: at for key, at in self._due_at.items() if key in above}
        lasting = [key for key, (since, _) in self._since.items() if now - since >= _SETTLE_SECONDS]
        self._show(len(lasting))
        due = [key for key in lasting if now >= self._due_at.get(key, now)]
        for key in due[:_MOST_EVENTS] if self._may_write() else ():
            written = await self._event(above[key]).write(self._connection, self._identity)
            self._due_at[key] = now + (_INTERVAL_SECONDS if written else _RETRY_SECONDS)

    def _event(self, usage: QuotaUsage) -> ObjectEvent:
        _, since = self._since[usage.quota.key]
        return ObjectEvent(
            about=quota_reference(usage.quota),
            reason="QuotaOverMax",
            action="Audited",
            message=f"pods use more than max: {usage.clause}",
            since=since,
            until=self._now(),
        )


# The controller of figures: annotations of ElasticQuotas by which people see what they share.
#
# No verdict rests on them. A write makes a replica that reserves on the same quota at that moment
# try again, so there are few: of what has changed, and of one quota every ten seconds at most.


_MERGE_PATCH: Final = "application/merge-patch+json"
_FIGURES_ROUND_SECONDS: Final = 1.0
_APART_SECONDS: Final = 10.0
_MOST_WRITES: Final = 10  # in a round
_CALL_SECONDS: Final = 5.0
_TOLERANCE: Final = 0.2
"""The part by which the time between releases must have changed to be written for itself alone."""

_decode: Final = msgspec.json.Decoder(api.ElasticQuota).decode
_log = logging.getLogger(__name__)


@dataclass(slots=True)
class _Record:
    """The writes of one quota; moments by the clock of the controller."""

    attempted_at: float = float("-inf")
    version: int = 0  # made by the last write
    written: Mapping[str, str] = field(default_factory=dict)


class QuotaFigureController:
    """The task of the leader; restarted whenever this replica starts to lead."""

    def __init__(
        self,
        connection: Connection,
        *,
        quotas: Callable[[], Iterable[ElasticQuota]],
        figures: Callable[[], Mapping[QuotaKey, Mapping[str, str]]],
        clock: MonotonicClock | None = None,
        may_write: Callable[[], bool] = lambda: True,
    ) -> None:
        self._connection = connection
        self._quotas = quotas
        self._figures = figures
        self._clock = clock or MonotonicClock()
        self._may_write = may_write
        self._records: dict[QuotaKey, _Record] = {}

    async def run(self) -> None:
        """Repeat rounds until cancelled."""
        self._records.clear()
        while True:
            await self.round()
            await self._clock.sleep(_FIGURES_ROUND_SECONDS)

    async def round(self) -> None:
        """Write the figures that have changed and are due, those that wait for longest first."""
        now, expected = self._clock.now(), self._figures()
        quotas = {quota.key: quota for quota in self._quotas()}
        self._records = {key: each for key, each in self._records.items() if key in quotas}
        due = [
            (self._records.setdefault(key, _Record()).attempted_at, key, wanted)
            for key, quota in quotas.items()
            if _is_news(self._shown(quota), wanted := expected.get(key, {}))
        ]
        due.sort(key=lambda each: each[:2])
        for attempted_at, key, wanted in due[:_MOST_WRITES]:
            if now - attempted_at >= _APART_SECONDS and self._may_write():
                await self._write(quotas[key], wanted)

    def _shown(self, quota: ElasticQuota) -> Mapping[str, str]:
        """Return the figures of a quota; the last write may not have been observed yet."""
        record = self._records.get(quota.key)
        if record is not None and record.version > quota.version:
            return record.written
        return quota.figures

    async def _write(self, quota: ElasticQuota, wanted: Mapping[str, str]) -> None:
        """Write the figures of a quota; after a failure they are written when they are due."""
        record = self._records[quota.key]
        record.attempted_at = self._clock.now()
        texts = {**dict.fromkeys(self._shown(quota)), **wanted}  # null removes a name
        path = (
            f"/apis/{quota.group}/v1alpha1/namespaces/{quota.namespace}/elasticquotas/{quota.name}"
        )
        body = msgspec.json.encode({"metadata": {"uid": quota.uid, "annotations": texts}})
        try:
            async with asyncio.timeout(_CALL_SECONDS):
                answer = await self._connection.write(
                    "PATCH", path, body, content_type=_MERGE_PATCH
                )
            version = _decode(answer).metadata.version
        except (ApiError, TimeoutError, msgspec.DecodeError) as error:
            reason = str(error) or "no answer in time"
            _log.debug("figures of quota `%s/%s`: %s", quota.namespace, quota.name, reason)
            return
        record.version, record.written = version, wanted


def _is_news(shown: Mapping[str, str], wanted: Mapping[str, str]) -> bool:
    """Return whether figures differ by more than a time that is only guessed."""
    if _without_interval(shown) != _without_interval(wanted):
        return True
    before, after = release_interval(shown), release_interval(wanted)
    if before is None or after is None:
        return before != after
    return abs(after - before) > _TOLERANCE * before


def _without_interval(figures: Mapping[str, str]) -> dict[str, str]:
    return {key: text for key, text in figures.items() if key != SECONDS_PER_RELEASE_ANNOTATION}


_STATUS_MERGE_PATCH = "application/merge-patch+json"

_decode_quota = msgspec.json.Decoder(api.ElasticQuota).decode


@dataclass(frozen=True, slots=True, kw_only=True)
class ControllerRules:
    """Scope and rates of the controller."""

    # pods that `status.used` adds up. With `Running` the controller of scheduler-plugins writes the
    # same, should it run as well
    counts: StatusCounts = "Running"
    # API groups whose status is written. Koordinator's scheduler writes that of its own quotas
    groups: Collection[str] = (UPSTREAM_GROUP,)
    round_seconds: float = 1.0  # pause between two rounds
    prune_seconds: float = 5.0  # least time between two removals of reservations
    # time for which a status is wrong before it is written: pods rarely come alone
    settle_seconds: float = 1.0
    apart_seconds: float = 5.0  # least time between two writes of one status
    most_writes: int = 20  # of all quotas in a round
    drift_seconds: float = 60.0  # time after which a wrong status or a reservation counts as drift


@dataclass(slots=True)
class _StatusRecord:
    """The status of a quota; moments by the clock of the controller."""

    wrong_since: float | None = None
    attempted_at: float = float("-inf")
    written: tuple[int, Amounts] | None = None  # version made by the last write, and its amounts
    drift_logged: bool = False


class QuotaController:
    """The task of the leader; restarted whenever this replica starts to lead."""

    def __init__(
        self,
        connection: Connection,
        *,
        view: Callable[[], ClusterView],
        prune: Callable[[], Awaitable[None]],
        config: QuotaConfig | None = None,
        may_write: Callable[[], bool] = lambda: True,
        show_drift: Callable[[str, int], None] = lambda _what, _quotas: None,
        rules: ControllerRules | None = None,
    ) -> None:
        self._connection = connection
        self._view = view
        self._prune = prune
        self._config = config or QuotaConfig()
        self._clock = self._config.clock
        self._may_write = may_write
        self._show_drift = show_drift
        self._rules = rules or ControllerRules()
        self._records: dict[QuotaKey, _StatusRecord] = {}
        self._reserved_since: dict[tuple[QuotaKey, str], float] = {}
        self._stuck: set[QuotaKey] = set()
        self._pruned_at = float("-inf")

    async def run(self) -> None:
        """Repeat rounds until cancelled."""
        self._records.clear()
        self._reserved_since.clear()
        self._stuck.clear()
        while True:
            await self.round()
            await self._clock.sleep(self._rules.round_seconds)

    async def round(self) -> None:
        """Prune reservations if it is time, and write each status that is wrong and due."""
        # 1. Remove ended reservations, also in namespaces without requests.
        if self._clock.now() - self._pruned_at >= self._rules.prune_seconds:
            self._pruned_at = self._clock.now()
            await self._prune()
            self._show_drift("reservations", self._with_stuck_reservations(self._clock.now()))

        # 2. Write the status of quotas where it has been wrong for a while.
        now = self._clock.now()
        wrong = [
            (quota, used) for quota, used in self._expected() if self._is_wrong(quota, used, now)
        ]
        for quota, used in islice(self._due(wrong, now), self._rules.most_writes):
            await self._write(quota, used)
        self._show_drift("status", sum(self._has_drifted(quota, now) for quota, _ in wrong))

    def _expected(self) -> list[tuple[ElasticQuota, Amounts]]:
        """Return each quota with its correct status; drop the records of deleted quotas."""
        view = self._view()
        expected = [
            (quota, status_used(quota, view, self._rules.counts))
            for listed in view.namespaces.quotas.values()
            for quota in listed
            if quota.group in self._rules.groups
        ]
        for key in self._records.keys() - {quota.key for quota, _ in expected}:
            del self._records[key]
        return expected

    def _is_wrong(self, quota: ElasticQuota, used: Amounts, now: float) -> bool:
        """Whether a status differs; the last write may not have been observed yet."""
        record = self._records.setdefault(quota.key, _StatusRecord())
        reported = quota.used
        if record.written is not None and record.written[0] > quota.version:
            reported = record.written[1]
        if reported != used:
            if record.wrong_since is None:
                record.wrong_since = now
            return True
        if record.drift_logged:
            _log.info("status of quota `%s/%s` is right again", quota.namespace, quota.name)
        record.wrong_since, record.drift_logged = None, False
        return False

    def _due(
        self, wrong: list[tuple[ElasticQuota, Amounts]], now: float
    ) -> Iterator[tuple[ElasticQuota, Amounts]]:
        """Yield the statuses to write now, those wrong for longest first."""
        rules = self._rules
        for quota, used in sorted(wrong, key=lambda pair: self._wrong_since(pair[0])):
            settled = now - self._wrong_since(quota) >= rules.settle_seconds
            if settled and now - self._records[quota.key].attempted_at >= rules.apart_seconds:
                yield quota, used

    def _wrong_since(self, quota: ElasticQuota) -> float:
        return self._records[quota.key].wrong_since or 0.0

    async def _write(self, quota: ElasticQuota, used: Amounts) -> None:
        """Write a status; after a failure it is tried again when it is due."""
        if not self._may_write():
            return
        record = self._records[quota.key]
        record.attempted_at = self._clock.now()
        texts: dict[str, str | None] = dict.fromkeys(quota.used)  # null removes a name
        texts |= {name: amount_text(name, amount) for name, amount in used.items()}
        path = (
            f"/apis/{quota.group}/v1alpha1/namespaces/{quota.namespace}"
            f"/elasticquotas/{quota.name}/status"
        )
        try:
            async with asyncio.timeout(self._config.call_seconds):
                answer = await self._connection.write(
                    "PATCH",
                    path,
                    msgspec.json.encode({"status": {"used": texts}}),
                    content_type=_STATUS_MERGE_PATCH,
                )
            version = _decode_quota(answer).metadata.version
        except (ApiError, TimeoutError, msgspec.DecodeError) as error:
            reason = str(error) or "no answer in time"
            _log.debug("status of quota `%s/%s`: %s", quota.namespace, quota.name, reason)
            return
        record.written = version, used
        record.wrong_since = self._clock.now()  # if it is wrong again, then of something new

    def _has_drifted(self, quota: ElasticQuota, now: float) -> bool:
        """Whether a status has been wrong for too long; logged once."""
        if now - self._wrong_since(quota) < self._rules.drift_seconds:
            return False
        record = self._records[quota.key]
        if not record.drift_logged:
            record.drift_logged = True
            _log.warning("status of quota `%s/%s` stays wrong", quota.namespace, quota.name)
        return True

    def _with_stuck_reservations(self, now: float) -> int:
        """Return how many quotas have reservations that should have ended, or unreadable ones."""
        late = now - self._config.timeouts.unseen_seconds - self._rules.drift_seconds
        known: dict[tuple[QuotaKey, str], float] = {}
        stuck: set[QuotaKey] = set()
        for quota in (
            quota for listed in self._view().namespaces.quotas.values() for quota in listed
        ):
            reservations = decode_reservations(quota.reservations, quota.uid)
            if reservations is None:
                stuck.add(quota.key)
                continue
            allowances = (
                f"{allowance.replica} {allowance.serial}"
                for allowance in reservations.allowances.values()
            )
            # A surge is listed for as long as it lasts.
            pods = (key for key, pod in reservations.by_key.items() if not pod.surge)
            for key in (*pods, *allowances):
                known[quota.key, key] = since = self._reserved_since.get((quota.key, key), now)
                if since <= late:
                    stuck.add(quota.key)
        for namespace, _, name in stuck - self._stuck:
            _log.warning("reservations of quota `%s/%s` stay, or cannot be read", namespace, name)
        self._reserved_since, self._stuck = known, stuck
        return len(stuck)
