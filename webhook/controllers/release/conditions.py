"""The condition of held pods: what it says, and when it is worth a write.

A condition is for a person who waits, not a log: a pod that is released within a second gets none.
One that waits neither for quota nor for its gang moves on by itself, as fast as its scheduler binds
pods, so it gets none for ten seconds: in a burst most are released by then, and each write is an
event that their scheduler reads. A pod that waits gets another when its place in the queue changes
visibly, or when the wait that was foretold is over, at most once a minute. The writes share a rate
with nominations and releases, so they are few, those of the front first.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC
from typing import Final, NamedTuple

from engine.model.hold import QUEUED_CONDITION, QueuedReason, queued_condition_in
from engine.model.time import SECOND, Micros, date
from engine.release import HeldPod, HeldPodRegistry, WrittenCondition
from engine.report import eta_text, place_text

_BANDS: Final = (1, 2, 3, 5, 10, 20, 50, 100)
"""The last place of each band; a place beyond is in one more."""

_SHORTEST_WAIT: Final = 1 * SECOND
_SHORTEST_WAIT_IN_ORDER: Final = 10 * SECOND
_SHORTEST_PAUSE: Final = 60 * SECOND  # between two writes for one pod
_PASS_EVERY: Final = 1 * SECOND
_MOST_PER_PASS: Final = 30  # a tenth of the writes that a controller makes in a second


class Place(NamedTuple):
    """A place in a part of the queue, from 1, such as among the pods of a quota."""

    position: int
    of: int
    within: str


class Wait(NamedTuple):
    """What a held pod waits for; the detail follows its place in the message."""

    reason: QueuedReason  # of the condition
    detail: str = ""  # for people
    place: Place | None = None  # to be shown instead of the place among all held pods
    eta: Micros | None = None  # how long it is going to wait, None if nobody knows


IN_ORDER: Final = Wait(QueuedReason.WAITING_IN_ORDER)


class DueCondition(NamedTuple):
    """A condition to write on a held pod, by the names of its fields."""

    held: HeldPod
    condition: Mapping[str, str]


class QueuedConditions:
    """Decides which conditions are due.

    A new leader takes a condition that it finds on a pod for one that was just written.
    """

    def __init__(self, pods: HeldPodRegistry) -> None:
        self._pods = pods
        self._next_pass = Micros(0)

    def is_due(self, now: Micros) -> bool:
        return now >= self._next_pass

    def due(
        self,
        queue: Sequence[HeldPod],
        now: Micros,
        wait_of: Callable[[HeldPod], Wait] = lambda _: IN_ORDER,
    ) -> list[DueCondition]:
        """Return the conditions to write now; they count as written."""
        if not self.is_due(now):
            return []
        self._next_pass = Micros(now + _PASS_EVERY)
        due: list[DueCondition] = []
        for place, held_pod in enumerate(queue, 1):
            if len(due) == _MOST_PER_PASS:
                break
            condition = self._condition(held_pod, place, len(queue), wait_of, now)
            if condition is not None:
                due.append(DueCondition(held_pod, condition))
        return due

    def released(self, held: HeldPod, message: str, now: Micros) -> Mapping[str, str] | None:
        """Return the condition that ends a wait, None if the pod has none; it counts as written."""
        record = self._pods.of(held)
        written, record.condition = record.condition, None
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
        self,
        held: HeldPod,
        place: int,
        total: int,
        wait_of: Callable[[HeldPod], Wait],
        now: Micros,
    ) -> Mapping[str, str] | None:
        """Return a condition that is due and so counts as written, else None."""
        shortest = _SHORTEST_WAIT if held.is_unbounded else _SHORTEST_WAIT_IN_ORDER
        if now - held.seen_at < shortest:
            return None
        record = self._pods.of(held)
        last = record.condition
        if last is None:
            found = queued_condition_in(held.raw)
            if found is not None and found.is_true:
                record.condition = WrittenCondition(reason=found.reason, band=None, at=now)
                return None
        elif now - last.at < _SHORTEST_PAUSE:
            return None
        wait = wait_of(held)
        band = bisect_left(_BANDS, place if wait.place is None else wait.place.position)
        if last is not None and not _is_news(last, wait, band, now):
            return None
        until = None if wait.eta is None else Micros(now + wait.eta)
        record.condition = WrittenCondition(reason=wait.reason, band=band, at=now, until=until)
        condition = {
            "type": QUEUED_CONDITION,
            "status": "True",
            "reason": wait.reason,
            "message": _message(wait, place, total),
        }
        # Later writes leave the moment as it is: only the status makes a transition.
        return {**condition, "lastTransitionTime": _timestamp(now)} if last is None else condition


def _is_news(last: WrittenCondition, wait: Wait, band: int, now: Micros) -> bool:
    """Return whether what was written of a wait is no longer so."""
    is_guess_over = now > last.until if last.until is not None else wait.eta is not None
    return is_guess_over or (last.reason, last.band) != (wait.reason, band)


def _message(wait: Wait, place: int, total: int) -> str:
    if wait.place is None:
        where = place_text(place, total)
    else:
        where = f"{place_text(wait.place.position, wait.place.of)} in {wait.place.within}"
    guess = "" if wait.eta is None else eta_text(wait.eta)
    return "; ".join(filter(None, (where, wait.detail, guess)))


def _timestamp(now: Micros) -> str:
    return f"{date(now).astimezone(UTC):%Y-%m-%dT%H:%M:%SZ}"
