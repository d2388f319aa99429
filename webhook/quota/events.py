"""Events on an ElasticQuota with the number of requests it has denied, for `kubectl describe`.

Each replica reports its own denials: the sum over the replicas of a minute is the total.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

from engine.model.count_text import counted
from engine.model.elastic_quota import ElasticQuota, QuotaKey
from engine.quota import QuotaVerdict
from engine.view import ClusterView
from webhook.cluster.client.connection import Connection
from webhook.cluster.object_event import ObjectEvent, quota_reference
from webhook.quota.config import MonotonicClock

_FLUSH_SECONDS = 5.0
_INTERVAL_SECONDS = 60.0
_MOST_EVENTS = 20  # in a flush


@dataclass(slots=True)
class _Denials:
    """Denials by one quota since its last Event, which was attempted at `reported_at`."""

    count: int = 0
    since: datetime | None = None
    last_message: str = ""
    reported_at: float = float("-inf")  # by the monotonic clock


class QuotaEventRecorder:
    """Counts denials, and writes at most one Event per quota and minute.

    Args:
        connection: to the API server.
        view: the cluster.
        identity: of this process, written in each Event.
        now: the time of day, written in Events.
        clock: of the interval between Events.
    """

    def __init__(
        self,
        connection: Connection,
        *,
        view: Callable[[], ClusterView],
        identity: str,
        now: Callable[[], datetime] = lambda: datetime.now(UTC),
        clock: MonotonicClock | None = None,
    ) -> None:
        self._connection = connection
        self._view = view
        self._identity = identity
        self._clock = clock or MonotonicClock()
        self._now = now
        self._denials: dict[QuotaKey, _Denials] = {}

    def record(self, namespace: str, verdict: QuotaVerdict) -> None:
        """Count a denied request; quick, and bounded by the number of quotas."""
        quotas = self._view().namespaces.quotas.get(namespace, ())
        for quota in _named(verdict.exceeded, quotas):
            denials = self._denials.setdefault(quota.key, _Denials())
            denials.count += 1
            denials.since = denials.since or self._now()
            denials.last_message = verdict.message

    async def run(self) -> None:
        """Write Events until cancelled."""
        while True:
            await self._clock.sleep(_FLUSH_SECONDS)
            await self.flush()

    async def flush(self) -> None:
        """Write the Events that are due; those that fail are written a minute later."""
        now, quotas = self._clock.now(), self._view().namespaces.quotas
        left = _MOST_EVENTS
        for key, denials in list(self._denials.items()):
            if now - denials.reported_at < _INTERVAL_SECONDS:
                continue
            quota = next((quota for quota in quotas.get(key[0], ()) if quota.key == key), None)
            if quota is None or not denials.count:
                del self._denials[key]
            elif left:
                left -= 1
                denials.reported_at = now
                await self._write(quota, denials)

    async def _write(self, quota: ElasticQuota, denials: _Denials) -> None:
        until, count = self._now(), denials.count
        since = denials.since or until
        requests = counted(count, "request")
        event = ObjectEvent(
            about=quota_reference(quota),
            reason="QuotaExceeded",
            action="Refused",
            message=f"refused {requests} since {since:%H:%M:%S}, the last one:"
            f" {denials.last_message}",
            count=count,
            since=since,
            until=until,
        )
        if await event.write(self._connection, self._identity):
            denials.count -= count  # more may have been recorded meanwhile
            denials.since = self._now() if denials.count else None


def _named(names: Iterable[str], quotas: Sequence[ElasticQuota]) -> Sequence[ElasticQuota]:
    """Return the quotas of these names, all if there are none: then the cohort is exceeded."""
    exceeded = set(names)
    return [quota for quota in quotas if quota.name in exceeded] or quotas
