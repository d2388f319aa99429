"""Tells how many requests an ElasticQuota has refused, as Events that `kubectl describe` shows.

Each replica tells of its own refusals: the sum over the replicas of a minute is what was refused.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import msgspec

from engine.model.elastic_quota import ElasticQuota
from engine.quota import QuotaVerdict
from engine.view import ClusterView
from webhook.cluster.client.connection import ApiError, Connection

_ROUND_SECONDS = 5.0
_APART_SECONDS = 60.0
_MOST_EVENTS = 20  # in a round
_CALL_SECONDS = 5.0
_LONGEST_MESSAGE = 1000  # the API server takes 1024
_LONGEST_NAME = 200

_log = logging.getLogger(__name__)


@dataclass(slots=True)
class _Refused:
    """What was refused since it was last told; moments by the clock."""

    count: int = 0
    since: datetime | None = None
    last: str = ""
    told_at: float = float("-inf")


class QuotaEventRecorder:
    """Counts refusals, and writes at most one Event per quota and minute.

    Args:
        connection: to the API server.
        view: the cluster as it is.
        identity: of this process, told with each Event.
        clock: seconds that only go forward.
        now: the time of day, written in Events.
        sleep: waits for some seconds.
    """

    def __init__(
        self,
        connection: Connection,
        *,
        view: Callable[[], ClusterView],
        identity: str,
        clock: Callable[[], float] = time.monotonic,
        now: Callable[[], datetime] = lambda: datetime.now(UTC),
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self._connection = connection
        self._view = view
        self._identity = identity
        self._clock = clock
        self._now = now
        self._sleep = sleep
        self._refused: dict[tuple[str, str, str], _Refused] = {}

    def record(self, namespace: str, verdict: QuotaVerdict) -> None:
        """Count a request that was refused; quick, and bounded by the quotas there are."""
        quotas = self._view().namespaces.quotas.get(namespace, ())
        for quota in _named(verdict.exceeded, quotas):
            key = (quota.namespace, quota.group, quota.name)
            refused = self._refused.setdefault(key, _Refused())
            refused.count += 1
            refused.since = refused.since or self._now()
            refused.last = verdict.message

    async def run(self) -> None:
        """Tell of refusals until cancelled."""
        while True:
            await self._sleep(_ROUND_SECONDS)
            await self.flush()

    async def flush(self) -> None:
        """Write the Events that are due; those that fail are told of a minute later."""
        now, quotas = self._clock(), self._view().namespaces.quotas
        left = _MOST_EVENTS
        for key, refused in list(self._refused.items()):
            if now - refused.told_at < _APART_SECONDS:
                continue
            quota = next(
                (one for one in quotas.get(key[0], ()) if (one.group, one.name) == key[1:]), None
            )
            if quota is None or not refused.count:
                del self._refused[key]
            elif left:
                left -= 1
                refused.told_at = now
                await self._tell(quota, refused)

    async def _tell(self, quota: ElasticQuota, refused: _Refused) -> None:
        body = msgspec.json.encode(self._event(quota, refused))
        count, path = refused.count, f"/api/v1/namespaces/{quota.namespace}/events"
        try:
            async with asyncio.timeout(_CALL_SECONDS):
                await self._connection.write("POST", path, body)
        except (ApiError, TimeoutError) as error:
            why = str(error) or "no answer in time"
            _log.warning("no Event on quota `%s/%s`: %s", quota.namespace, quota.name, why)
            return
        refused.count -= count  # others may have come meanwhile
        refused.since = self._now() if refused.count else None

    def _event(self, quota: ElasticQuota, refused: _Refused) -> dict[str, Any]:
        until = self._now()
        since = refused.since or until
        count = f"{refused.count} request{'s' if refused.count > 1 else ''}"
        message = f"refused {count} since {since:%H:%M:%S}, the last one: {refused.last}"
        return {
            "apiVersion": "v1",
            "kind": "Event",
            "metadata": {
                "generateName": f"{quota.name[:_LONGEST_NAME].rstrip('.-')}.",
                "namespace": quota.namespace,
            },
            "involvedObject": {
                "apiVersion": f"{quota.group}/v1alpha1",
                "kind": "ElasticQuota",
                "namespace": quota.namespace,
                "name": quota.name,
                "uid": quota.uid,
            },
            "type": "Warning",
            "reason": "QuotaExceeded",
            "action": "Refused",
            "message": message[:_LONGEST_MESSAGE],
            "count": refused.count,
            "firstTimestamp": _wire_time(since),
            "lastTimestamp": _wire_time(until),
            "source": {"component": "stowplan", "host": self._identity},
            "reportingComponent": "stowplan",
            "reportingInstance": self._identity,
        }


def _named(names: Iterable[str], quotas: Sequence[ElasticQuota]) -> Sequence[ElasticQuota]:
    """Return the quotas of these names, all of them if none has any: then it is the pool."""
    wanted = set(names)
    return [quota for quota in quotas if quota.name in wanted] or quotas


def _wire_time(moment: datetime) -> str:
    return f"{moment.astimezone(UTC):%Y-%m-%dT%H:%M:%SZ}"
