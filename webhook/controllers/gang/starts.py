"""Gangs that are released, until as many members are bound as must run together."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import NamedTuple

from engine.gang import Gang, GangMember, MemberState
from engine.model.time import SECOND, Micros, micros


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
