"""Gangs that are released, until as many members are bound as must run together."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import UTC, datetime
from typing import NamedTuple

from engine.gang import Gang, GangKey, GangMember, MemberState
from engine.model.time import SECOND, Micros, micros
from engine.view import ClusterView
from webhook.controllers.gang.gang_unit import group_of
from webhook.controllers.gang.held_gangs import described_gang
from webhook.placement.gang_members import GangMembers


class Start(NamedTuple):
    """How far a released gang has come.

    Attributes:
        bound: members that are, and those that have finished.
        moment: of its release, as its members say.
        is_over: whether it has started, or nothing is left of it.
        is_late: whether its time is over.
    """

    bound: int
    moment: str
    is_over: bool
    is_late: bool


def start_of(gang: Gang, members: Sequence[GangMember], now: Micros) -> Start:
    """Return how far a released gang has come.

    Args:
        gang: the gang.
        members: of it.
        now: the time of day.
    """
    bound = gang.succeeded + sum(member.state is MemberState.BOUND for member in members)
    moment = max((member.released_with for member in members), default="")
    return Start(
        bound=bound,
        moment=moment,
        is_over=bound >= gang.min_member or not moment,
        is_late=now >= _instant(moment) + gang.schedule_timeout_seconds * SECOND,
    )


class StartingGangs:
    """The gangs that are released, and of which too few members are bound so far.

    Args:
        members: of all gangs.
        now: the time of day.
    """

    def __init__(self, members: GangMembers, now: Callable[[], Micros]) -> None:
        self._members = members
        self._now = now
        self._keys: set[GangKey] | None = None  # None where all are to be looked at

    def begin(self) -> None:
        """Begin with those that an earlier leader has released."""
        self._keys = None

    def add(self, gangs: Iterable[Gang]) -> None:
        """Note gangs that are released now."""
        self._keys = (self._keys or set()) | {gang.key for gang in gangs}

    def ended(
        self, view: ClusterView, *, is_busy: Callable[[GangKey], bool]
    ) -> Iterator[tuple[Gang, Start]]:
        """Yield each gang that has started, is gone or late, and how far it came; once.

        Args:
            view: the cluster.
            is_busy: whether something is being done for a gang, so that it is looked at later.
        """
        members = self._members
        if self._keys is None:
            self._keys = {key for key in members if is_starting(members.of(key))}
        for key in list(self._keys):
            gang = described_gang(key, members, view)
            if gang is None:
                self._keys.discard(key)
            elif not is_busy(group_of(gang)[0]):
                start = start_of(gang, members.of(key), self._now())
                if start.is_over or start.is_late:
                    self._keys.discard(key)
                    yield gang, start


def is_starting(members: Sequence[GangMember]) -> bool:
    """Return whether some members were released together and are not bound."""
    return any(each.state is MemberState.RELEASED and each.released_with for each in members)


def partial_start(members: Sequence[GangMember], moment: str) -> list[GangMember]:
    """Return the members that were released at a moment and are to be created again.

    None where others run: a gang that has run before is never ended for a few of its members.

    Args:
        members: of a gang.
        moment: of its last release.
    """
    ran_before = any(
        each.state is MemberState.BOUND and each.released_with != moment for each in members
    )
    if ran_before:
        return []
    return [each for each in members if each.released_with == moment]


def _instant(moment: str) -> int:
    """Return the moment that a member names; the past where it names none."""
    try:
        return micros(datetime.fromisoformat(moment).astimezone(UTC))
    except (ValueError, OverflowError):
        return 0
