"""Events of evictions, on those who get room and on those who lose it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from typing import Final, Literal, Protocol

from engine.reclaim import Victim
from webhook.cluster.client.connection import Connection
from webhook.cluster.object_event import ObjectEvent, ObjectReference, pod_reference
from webhook.controllers.reclaim.plan_source import EventReasons

_MOST_NAMED: Final = 5


class Evicting(Protocol):
    """A plan, as far as it is told."""

    @property
    def victims(self) -> Sequence[Victim]:
        """Who is evicted."""

    @property
    def message(self) -> str:
        """Why, in one line."""


class EvictionEvents:
    """Writes Events; one that cannot be written is left out.

    Args:
        connection: to the API server.
        identity: of this process, written in each Event.
        now: the time of day.
    """

    def __init__(
        self,
        connection: Connection,
        *,
        identity: str,
        now: Callable[[], datetime] = lambda: datetime.now(UTC),
    ) -> None:
        self._connection = connection
        self._identity = identity
        self._now = now

    async def would_evict(
        self, about: ObjectReference, plan: Evicting, reasons: EventReasons
    ) -> None:
        """Say what mode On would do for a pod or a quota."""
        message = f"would evict {victims_text(plan.victims)} (DryRun): {plan.message}"
        await self._write(about, "Normal", reasons.would_evict, message)

    async def evicting(self, about: ObjectReference, plan: Evicting, reasons: EventReasons) -> None:
        """Say on a pod or a quota who is evicted for it."""
        message = f"evicts {victims_text(plan.victims)}: {plan.message}"
        await self._write(about, "Normal", reasons.evicting, message)

    async def evicted(self, victim: Victim, message: str, reasons: EventReasons) -> None:
        """Say on a pod that was evicted for whom, and why."""
        namespace, _, name = victim.key.partition("/")
        reference = pod_reference(namespace, name, victim.uid)
        await self._write(reference, "Warning", reasons.evicted, message)

    async def _write(
        self,
        about: ObjectReference,
        kind: Literal["Normal", "Warning"],
        reason: str,
        message: str,
    ) -> None:
        now = self._now()
        event = ObjectEvent(
            about=about,
            type=kind,
            reason=reason,
            action="Evict",
            message=message,
            since=now,
            until=now,
        )
        await event.write(self._connection, self._identity)


def victims_text(victims: Sequence[Victim]) -> str:
    """Return the names of some victims; of many the first and how many more there are."""
    names = [f"`{victim.key}`" for victim in victims]
    more = len(names) - _MOST_NAMED
    return ", ".join(names[:_MOST_NAMED]) + (f" and {more} more" if more > 0 else "")
