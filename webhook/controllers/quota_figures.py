"""The controller of figures: annotations of ElasticQuotas by which people see what they share.

No verdict rests on them. A write makes a replica that reserves on the same quota at that moment try
again, so there are few: of what has changed, and of one quota every ten seconds at most.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final

import msgspec

from engine.model import api
from engine.model.elastic_quota import ElasticQuota, QuotaKey
from engine.model.quota_figures import SECONDS_PER_RELEASE_ANNOTATION, release_interval
from webhook.cluster.client.connection import ApiError, Connection
from webhook.quota import MonotonicClock

_MERGE_PATCH: Final = "application/merge-patch+json"
_ROUND_SECONDS: Final = 1.0
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
    """The task of the leader; restarted whenever this replica starts to lead.

    Args:
        connection: to the API server.
        quotas: all of them, as they are observed.
        figures: the annotations that each should have; a quota that is not among them none.
        clock: of pauses.
        may_write: whether this replica leads at this very moment.
    """

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
            await self._clock.sleep(_ROUND_SECONDS)

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
