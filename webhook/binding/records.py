"""What was decided at bindings, until the pods are seen bound and somebody counts them."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final

import msgspec

from engine.outcome import PolicyLanding
from webhook.cluster.client.connection import Connection
from webhook.cluster.object_event import ObjectEvent, pod_reference
from webhook.cluster.timing import MonotonicClock

_MOST: Final = 4_096  # of some 500 bytes; a binding is seen within a moment


class BindingRecord(msgspec.Struct, frozen=True, kw_only=True):
    """A binding that was decided.

    Attributes:
        uid: of the pod.
        node: the node that it goes to.
        landings: where it lands, as each policy sees it.
    """

    uid: str
    node: str
    landings: Sequence[PolicyLanding]


class BindingRecords:
    """The latest records, each until it is taken; the oldest ones are forgotten."""

    def __init__(self) -> None:
        self._records: dict[str, BindingRecord] = {}  # by `namespace/name`, oldest first

    def __len__(self) -> int:
        return len(self._records)

    def put(self, key: str, record: BindingRecord) -> None:
        """Keep the record of a binding that is on its way; it replaces that of an earlier try."""
        self._records.pop(key, None)
        self._records[key] = record
        if len(self._records) > _MOST:
            del self._records[next(iter(self._records))]

    def take(self, key: str, uid: str, node: str) -> BindingRecord | None:
        """Return the record of a pod that is bound, once.

        None where it was not decided at its binding, or is bound to another node than was answered.

        Args:
            key: `namespace/name`.
            uid: of the pod.
            node: that it is bound to.
        """
        record = self._records.pop(key, None)
        if record is None or (record.uid, record.node) != (uid, node):
            return None
        return record


# Events on pods that were bound to another node than the scheduler says, for `kubectl describe`.
#
# The scheduler's own Event names its node, and nothing else on the pod that people look at says why
# the pod is elsewhere.


_PAUSE_SECONDS: Final = 1.0
"""Between two Events: one costs API server, etcd and us as much as a quarter of a pod."""

_MOST_WAITING: Final = 64


@dataclass(frozen=True, slots=True, kw_only=True)
class Rebound:
    """A pod that is bound to another node than the scheduler chose."""

    namespace: str
    name: str
    uid: str
    scheduler_node: str  # the scheduler's
    node: str  # ours
    reason: str  # why, in a line


class ReboundEvents:
    """Writes one Event for each pod, as long as there are not too many.

    Args:
        connection: to the API server.
        identity: of this process, written in each Event.
        now: the time of day, written in Events.
        clock: of the pauses between Events.
    """

    def __init__(
        self,
        connection: Connection,
        *,
        identity: str,
        now: Callable[[], datetime] = lambda: datetime.now(UTC),
        clock: MonotonicClock | None = None,
    ) -> None:
        self._connection = connection
        self._identity = identity
        self._now = now
        self._clock = clock or MonotonicClock()
        self._waiting: deque[tuple[Rebound, datetime]] = deque()
        self._recorded = asyncio.Event()

    def record(self, rebound: Rebound) -> None:
        """Have an Event written soon; where many wait, none is: the pod's annotations say it."""
        if len(self._waiting) < _MOST_WAITING:
            self._waiting.append((rebound, self._now()))
            self._recorded.set()

    async def run(self) -> None:
        """Write Events until cancelled."""
        while True:
            await self._recorded.wait()
            self._recorded.clear()
            while self._waiting:
                await self._write(*self._waiting.popleft())
                await self._clock.sleep(_PAUSE_SECONDS)

    async def _write(self, rebound: Rebound, at: datetime) -> None:
        event = ObjectEvent(
            about=pod_reference(rebound.namespace, rebound.name, rebound.uid),
            type="Normal",
            reason="Rebound",
            action="Binding",
            message=f"Bound to {rebound.node} instead of {rebound.scheduler_node}, the scheduler's"
            f" choice: {rebound.reason}",
            since=at,
            until=at,
        )
        await event.write(self._connection, self._identity)
