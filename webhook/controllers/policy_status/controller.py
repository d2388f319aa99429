"""The controller of the status of policies: writes what has changed, seldom and not too much."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Final

import msgspec

from engine.model.api import PlacementPolicy
from engine.model.policy_resource import POLICY_GROUP, POLICY_VERSION, PolicyResource
from webhook.cluster.client.connection import ApiError, Connection
from webhook.controllers.policy_status.status import (
    PolicyFacts,
    PolicyStatus,
    read_status,
    status_of,
)
from webhook.placement.policy_resources import ResourceStanding
from webhook.quota import MonotonicClock

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
    """What was done about one policy; moments by the clock of the controller.

    Attributes:
        written: the status that was written last, None before the first time.
        version: that the write made.
        written_at: when it was.
        failed_at: when a write failed last.
    """

    written: PolicyStatus | None = None
    version: int = 0
    written_at: float = float("-inf")
    failed_at: float = float("-inf")


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
