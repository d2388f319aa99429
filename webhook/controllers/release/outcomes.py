"""Where nominated pods land, for each scheduler: does it still follow nominations?

The field is documented as one that others only read, and profiles may change what a scheduler does
with it. So it is measured, and a scheduler that does not follow gets preferred terms instead.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from enum import Enum
from typing import Final

from engine.model.pod import Pod
from webhook.controllers.release.pacing import Landing

StillFits = Callable[[Pod, str], bool]
"""Whether a pod would still fit on a node that it was not bound to."""

_JUDGED: Final = 50  # nominations
_PROBED: Final = 10  # nominations after a time without any
_LEAST_HIT_RATE: Final = 0.9
_FIRST_WAIT_SECONDS, _LONGEST_WAIT_SECONDS = 300.0, 3600.0


class Outcome(Enum):
    """Where a released pod landed, against its nomination.

    Attributes:
        NOMINATED: on its nominated node.
        ELSEWHERE: on another, although it would have fitted.
        NO_ROOM: on another, as something else took the room; no fault of the scheduler.
        CLAIMS: on another, and it has volumes or devices: where these can be the scheduler knows.
        NOT_NOMINATED: it was released without a nomination.
        LOST: on none, in the time that a released pod has.
    """

    NOMINATED = "nominated"
    ELSEWHERE = "elsewhere"
    NO_ROOM = "no-room"
    CLAIMS = "claims"
    NOT_NOMINATED = "not-nominated"
    LOST = "lost"


_JUDGED_OUTCOMES: Final = frozenset({Outcome.NOMINATED, Outcome.ELSEWHERE})


@dataclass(slots=True)
class _Scheduler:
    """What is known of one scheduler; moments by the clock of `Outcomes`.

    Attributes:
        hits: of the last nominations, as they were judged; new ones after a time without any.
        is_suspended: whether nominations were given up, and none has been judged since.
    """

    hits: deque[bool] = field(default_factory=lambda: deque(maxlen=_JUDGED))
    judged_at: int = _JUDGED
    preferring_until: float = float("-inf")
    wait_seconds: float = _FIRST_WAIT_SECONDS
    is_suspended: bool = False

    @property
    def hit_rate(self) -> float:
        return sum(self.hits) / len(self.hits)


class Outcomes:
    """The hit rate of nominations, and what follows from it.

    Of the last 50 nominations of a scheduler less than 90 % landed where they were to, although
    they would have fitted: it gets preferred terms for 5 minutes. Then nominations are tried again,
    and 10 suffice to give them up, each time for twice as long, up to an hour.

    Args:
        clock: seconds that only go forward.
        show: called with each outcome.
    """

    def __init__(
        self,
        clock: Callable[[], float] = time.monotonic,
        show: Callable[[Outcome], None] = lambda _outcome: None,
    ) -> None:
        self._clock = clock
        self._show = show
        self._schedulers: dict[str, _Scheduler] = {}

    def nominates(self, scheduler_name: str) -> bool:
        """Whether pods of a scheduler are nominated; if not, they get preferred terms."""
        scheduler = self._schedulers.get(scheduler_name)
        return scheduler is None or self._clock() >= scheduler.preferring_until

    def hit_rates(self) -> Iterator[tuple[str, float]]:
        """Yield the name of each scheduler, and the part of its nominations that was followed."""
        for name, scheduler in self._schedulers.items():
            if scheduler.hits:
                yield name, scheduler.hit_rate

    def count_lost(self) -> None:
        """Count a pod that was not bound in time; that tells nothing about nominations."""
        self._show(Outcome.LOST)

    def count(self, landing: Landing, still_fits: StillFits) -> Outcome:
        """Count a binding; return where the pod landed.

        Args:
            landing: the pod, as it was released and as it was bound.
            still_fits: looked at only where the pod landed elsewhere.
        """
        outcome = self._outcome(landing, still_fits)
        if outcome in _JUDGED_OUTCOMES:
            self._judge(landing.release.scheduler_name, is_hit=outcome is Outcome.NOMINATED)
        self._show(outcome)
        return outcome

    def _outcome(self, landing: Landing, still_fits: StillFits) -> Outcome:
        release, pod = landing.release, landing.pod
        if not release.node_name:
            return Outcome.NOT_NOMINATED
        if pod.node_name == release.node_name:
            return Outcome.NOMINATED
        if not still_fits(pod, release.node_name):
            return Outcome.NO_ROOM
        return Outcome.CLAIMS if pod.has_claims else Outcome.ELSEWHERE

    def _judge(self, name: str, *, is_hit: bool) -> None:
        scheduler = self._schedulers.setdefault(name, _Scheduler())
        if self._clock() < scheduler.preferring_until:
            return  # nominated before that was decided
        if scheduler.is_suspended:
            scheduler.is_suspended = False
            scheduler.hits.clear()
        scheduler.hits.append(is_hit)
        if len(scheduler.hits) < scheduler.judged_at:
            return
        if scheduler.hit_rate >= _LEAST_HIT_RATE:
            scheduler.judged_at, scheduler.wait_seconds = _JUDGED, _FIRST_WAIT_SECONDS
            return
        scheduler.preferring_until = self._clock() + scheduler.wait_seconds
        scheduler.wait_seconds = min(2 * scheduler.wait_seconds, _LONGEST_WAIT_SECONDS)
        scheduler.judged_at = _PROBED
        scheduler.is_suspended = True
