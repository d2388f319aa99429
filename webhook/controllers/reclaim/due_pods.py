"""Held pods that have waited for so long that others may be evicted for them."""

from __future__ import annotations

from collections.abc import Callable, Container, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

from engine.model.time import SECOND, Micros, micros
from webhook.controllers.reclaim.plan_source import PlanSource
from webhook.placement.held_pods import HeldPod

_PLAN_AGAIN: Final = Micros(10 * SECOND)
"""Between two plans for one pod."""

_REPORT_AGAIN: Final = 600 * SECOND
"""Between two Events about what mode On would do for one pod."""

_FORGOTTEN_AFTER: Final = 15 * SECOND
"""For which a pod may wait for something else, as while it is decided, and go on waiting.

A gang without room is placed anew each 10 s, and waits for that in between."""

_AT_ONCE: Final = Micros(0)


class DuePod(NamedTuple):
    """A pod that plans may be made for.

    Attributes:
        sources: of plans, in their order; at least one.
        is_due_everywhere: whether these are all that it waits in.
    """

    held: HeldPod
    sources: Sequence[PlanSource]
    is_due_everywhere: bool = True


@dataclass(slots=True)
class _Waiting:
    """What is known of a pod that others may be evicted for.

    Attributes:
        since: when it began to wait for room.
        seen_at: when it was last seen waiting.
        plan_at: before which no plan is made for it.
        report_at: before which it gets no Event about a plan.
    """

    since: Micros
    seen_at: Micros
    plan_at: Micros = _AT_ONCE
    report_at: Micros = _AT_ONCE


class DuePods:
    """Remembers since when pods wait.

    Args:
        sources: of plans.
        now: the time of day.
    """

    def __init__(self, sources: Sequence[PlanSource], now: Callable[[], Micros]) -> None:
        self._sources = sources
        self._now = now
        self._waiting: dict[str, _Waiting] = {}  # by uid
        self._is_first = True

    def begin(self) -> None:
        """Begin anew: whoever waits when a leader begins has waited before."""
        self._waiting.clear()
        self._is_first = True

    def retain(self, uids: Container[str]) -> None:
        """Forget all pods but those with these uids."""
        self._waiting = {uid: each for uid, each in self._waiting.items() if uid in uids}

    def due(self, busy: Container[str]) -> list[DuePod]:
        """Return the pods that have waited for long enough, in the order of sources and queues.

        Args:
            busy: the uids of those that no plan is made for now.
        """
        now, found = self._now(), False
        due: dict[str, tuple[HeldPod, list[PlanSource]]] = {}
        later = set[str]()
        for source in self._sources:
            for blocked in source.blocked():
                found = True
                held = blocked.held
                waiting = self._seen(held, now)
                if now - waiting.since < source.after:
                    later.add(held.pod.uid)
                    continue
                is_due = now >= waiting.plan_at
                if is_due and held.raw and held.pod.uid not in busy:
                    due.setdefault(held.pod.uid, (held, []))[1].append(source)
        self._is_first = self._is_first and not found
        return [
            DuePod(held, sources, is_due_everywhere=uid not in later)
            for uid, (held, sources) in due.items()
        ]

    def planned(self, held: HeldPod, again: Micros = _PLAN_AGAIN) -> None:
        """Note that a plan for a due pod is made now, and after how long the next may be."""
        self._waiting[held.pod.uid].plan_at = Micros(self._now() + again)

    def may_report(self, held: HeldPod) -> bool:
        """Return whether a due pod gets an Event about a plan now; it counts as written."""
        now, waiting = self._now(), self._waiting[held.pod.uid]
        if now < waiting.report_at:
            return False
        waiting.report_at = Micros(now + _REPORT_AGAIN)
        return True

    def _seen(self, held: HeldPod, now: Micros) -> _Waiting:
        pod = held.pod
        waiting = self._waiting.get(pod.uid)
        if waiting is None or now - waiting.seen_at > _FORGOTTEN_AFTER:
            created = now if pod.created is None else min(micros(pod.created), now)
            since = created if self._is_first else now
            waiting = self._waiting[pod.uid] = _Waiting(since, now)
        waiting.seen_at = now
        return waiting
