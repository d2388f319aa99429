"""The condition of held pods: what it says, and when it is worth a write.

A condition is for a person who waits, not a log: a pod that is released within a second gets none,
one that waits gets another when its place in the queue changes visibly, at most once a minute. The
writes share a rate with nominations and releases, so they are few, those of the front first.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Mapping, Sequence
from datetime import UTC
from types import MappingProxyType
from typing import Final, NamedTuple

from engine.model.hold import QUEUED_CONDITION
from engine.model.queued_condition import QueuedReason, queued_condition_in
from engine.model.time import SECOND, Micros, date
from engine.report import place_text
from webhook.placement.held_pods import HeldPod

_BANDS: Final = (1, 2, 3, 5, 10, 20, 50, 100)
"""The last place of each band; a place beyond is in one more."""

_SHORTEST_WAIT: Final = 1 * SECOND
_SHORTEST_PAUSE: Final = 60 * SECOND  # between two writes for one pod
_PASS_EVERY: Final = 1 * SECOND
_MOST_PER_PASS: Final = 30  # a tenth of the writes that a controller makes in a second


class Wait(NamedTuple):
    """What a held pod waits for; the detail follows its place in the message."""

    reason: QueuedReason
    detail: str = ""


IN_ORDER: Final = Wait(QueuedReason.WAITING_IN_ORDER)
_NO_WAITS: Final[Mapping[str, Wait]] = MappingProxyType({})


class DueCondition(NamedTuple):
    """A condition to write on a held pod, by the names of its fields."""

    held: HeldPod
    condition: Mapping[str, str]


class _Written(NamedTuple):
    """The latest condition of a pod; its band is None where an earlier leader wrote it."""

    reason: str
    band: int | None
    at: Micros


class QueuedConditions:
    """Decides which conditions are due.

    What was written is kept in memory, for pods that are still held. A new leader takes a condition
    that it finds on a pod for one that was just written.
    """

    def __init__(self) -> None:
        self._written: dict[str, _Written] = {}  # by uid
        self._next_pass = Micros(0)

    def due(
        self,
        queue: Sequence[HeldPod],
        now: Micros,
        *,
        wait: Wait = IN_ORDER,
        other_waits: Mapping[str, Wait] = _NO_WAITS,
    ) -> list[DueCondition]:
        """Return the conditions to write now; they count as written.

        Args:
            queue: the pods that stay held, in order.
            now: the time of day.
            wait: what all of them wait for, but
            other_waits: of pods by `namespace/name`.
        """
        if now < self._next_pass:
            return []
        self._next_pass = Micros(now + _PASS_EVERY)
        if len(self._written) > len(queue):
            held = {each.pod.uid for each in queue}
            self._written = {uid: last for uid, last in self._written.items() if uid in held}
        due: list[DueCondition] = []
        for place, held_pod in enumerate(queue, 1):
            if len(due) == _MOST_PER_PASS:
                break
            condition = self._condition(
                held_pod, place, len(queue), other_waits.get(held_pod.key, wait), now
            )
            if condition is not None:
                due.append(DueCondition(held_pod, condition))
        return due

    def released(self, held: HeldPod, message: str, now: Micros) -> Mapping[str, str] | None:
        """Return the condition that ends a wait, None if the pod has none; it counts as written.

        Args:
            held: to be released now.
            message: what it is released with.
            now: the time of day.
        """
        written = self._written.pop(held.pod.uid, None)
        if written is None:
            found = queued_condition_in(held.raw)
            if found is None or not found.is_true:
                return None
        return {
            "type": QUEUED_CONDITION,
            "status": "False",
            "reason": QueuedReason.RELEASED,
            "message": message,
            "lastTransitionTime": _timestamp(now),
        }

    def _condition(
        self, held: HeldPod, place: int, total: int, wait: Wait, now: Micros
    ) -> Mapping[str, str] | None:
        """Return a condition that is due and so counts as written, else None."""
        if now - held.seen_at < _SHORTEST_WAIT:
            return None
        uid, band = held.pod.uid, bisect_left(_BANDS, place)
        last = self._written.get(uid)
        is_first = last is None
        if last is None:
            found = queued_condition_in(held.raw)
            if found is not None and found.is_true:
                self._written[uid] = _Written(found.reason, None, now)
                return None
        elif now - last.at < _SHORTEST_PAUSE or (last.reason, last.band) == (wait.reason, band):
            return None
        self._written[uid] = _Written(wait.reason, band, now)
        condition = {
            "type": QUEUED_CONDITION,
            "status": "True",
            "reason": wait.reason,
            "message": "; ".join(filter(None, (place_text(place, total), wait.detail))),
        }
        # Later writes leave the moment as it is: only the status makes a transition.
        return {**condition, "lastTransitionTime": _timestamp(now)} if is_first else condition


def _timestamp(now: Micros) -> str:
    return f"{date(now).astimezone(UTC):%Y-%m-%dT%H:%M:%SZ}"
