"""The audit of ElasticQuotas: finds namespaces whose pods use more than `max`.

No verdict lets that happen. It does where pods were created while nobody judged them, where a quota
is younger than its pods, or where `max` was lowered.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from datetime import UTC, datetime

from engine.model.elastic_quota import QuotaKey
from engine.quota import QuotaUsage
from webhook.cluster.client.connection import Connection
from webhook.cluster.object_event import ObjectEvent, quota_reference
from webhook.quota import MonotonicClock

_ROUND_SECONDS = 5.0
_SETTLE_SECONDS = 30.0  # pods that are replaced may overlap in the view for a moment
_INTERVAL_SECONDS = 3600.0  # an Event is kept for an hour
_RETRY_SECONDS = 60.0
_MOST_EVENTS = 20  # in a round


class QuotaAudit:
    """The task of the leader that reports quotas whose pods use more than `max`.

    Args:
        connection: to the API server.
        usages: returns the usage of each quota.
        identity: of this process, written in each Event.
        show: called in each round with the number of quotas above `max`.
        now: the time of day, written in Events.
        clock: of the interval between Events.
        may_write: whether this replica leads at this very moment.
    """

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
