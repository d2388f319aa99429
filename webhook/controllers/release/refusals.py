"""Held pods whose writes are refused by somebody's admission: when to try again, and why not.

A release is an UPDATE that other admission sees: a policy, a webhook or a missing right can stand
against it, for one pod or for all. Such a pod stays held, shows the reason, and must not keep
others waiting.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Container, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Final

from engine.model.pod import Pod
from webhook.cluster.client.connection import ApiError, Connection
from webhook.cluster.object_event import ObjectEvent, pod_reference
from webhook.cluster.timing import Backoff

_FIRST_WAIT_SECONDS, _LONGEST_WAIT_SECONDS = 1.0, 30.0
_LASTING_AFTER: Final = 3
_EVENT_INTERVAL_SECONDS: Final = 600.0
_EVENT_RETRY_SECONDS: Final = 60.0
_MOST_EVENTS: Final = 20  # in a call


@dataclass(slots=True)
class _Refusal:
    """What is known of a pod whose writes are refused.

    Attributes:
        pod: as it was when it was refused last.
        message: of who refused it last.
        count: of refusals, one after the other.
        since: the first of them.
        until: the last of them.
        retry_at: by the clock of `Refusals`.
        event_at: when the next Event is due, by the same clock.
    """

    pod: Pod
    message: str
    since: datetime
    until: datetime
    count: int = 0
    retry_at: float = 0.0
    event_at: float = 0.0
    backoff: Backoff = field(
        default_factory=lambda: Backoff(_FIRST_WAIT_SECONDS, _LONGEST_WAIT_SECONDS)
    )

    @property
    def is_lasting(self) -> bool:
        """Whether it will hardly end by itself."""
        return self.count >= _LASTING_AFTER


class Refusals:
    """The held pods whose writes were refused.

    Args:
        connection: to the API server, for Events.
        identity: of this process, written in each Event.
        clock: seconds that only go forward.
        now: the time of day, written in Events.
    """

    def __init__(
        self,
        connection: Connection,
        *,
        identity: str,
        clock: Callable[[], float] = time.monotonic,
        now: Callable[[], datetime] = lambda: datetime.now(UTC),
    ) -> None:
        self._connection = connection
        self._identity = identity
        self._clock = clock
        self._now = now
        self._by_uid: dict[str, _Refusal] = {}

    def __len__(self) -> int:
        """Return the number of pods whose last write was refused."""
        return len(self._by_uid)

    @property
    def by_namespace(self) -> Mapping[str, int]:
        """How many of these pods each namespace has."""
        return Counter(refusal.pod.namespace for refusal in self._by_uid.values())

    def refused(self, pod: Pod, error: ApiError) -> bool:
        """Note that a write of a pod was refused.

        Returns:
            whether what is reserved for the pod is to be given back: this will not end by itself.
        """
        now = self._now()
        refusal = self._by_uid.setdefault(pod.uid, _Refusal(pod, error.message, now, now))
        refusal.pod, refusal.message, refusal.until = pod, error.message, now
        refusal.count += 1
        refusal.retry_at = self._clock() + refusal.backoff.next(error.retry_after_seconds)
        return refusal.is_lasting

    def is_due(self, pod: Pod) -> bool:
        """Whether a pod may be written now: it was not refused, or its back-off is over."""
        refusal = self._by_uid.get(pod.uid)
        return refusal is None or self._clock() >= refusal.retry_at

    def message(self, pod: Pod) -> str:
        """Return why the last write of a pod was refused; "" where it was not."""
        refusal = self._by_uid.get(pod.uid)
        return "" if refusal is None else refusal.message

    def forget(self, pod: Pod) -> None:
        """Forget a pod: a write of it was accepted."""
        self._by_uid.pop(pod.uid, None)

    def retain(self, uids: Container[str]) -> None:
        """Forget all pods but those with these uids, the held ones."""
        for uid in [uid for uid in self._by_uid if uid not in uids]:
            del self._by_uid[uid]

    async def write_events(self) -> None:
        """Write the Events that are due: on pods that were refused three times, some at a call."""
        now = self._clock()
        due = [
            refusal
            for refusal in self._by_uid.values()
            if refusal.is_lasting and now >= refusal.event_at
        ]
        for refusal in due[:_MOST_EVENTS]:
            written = await _event_of(refusal).write(self._connection, self._identity)
            wait = _EVENT_INTERVAL_SECONDS if written else _EVENT_RETRY_SECONDS
            refusal.event_at = self._clock() + wait


def _event_of(refusal: _Refusal) -> ObjectEvent:
    pod = refusal.pod
    return ObjectEvent(
        about=pod_reference(pod.namespace, pod.name, pod.uid),
        reason="ReleaseRefused",
        action="Release",
        message=f"the pod stays held, its release is refused: {refusal.message}",
        count=refusal.count,
        since=refusal.since,
        until=refusal.until,
    )
