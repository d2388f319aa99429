"""What gangs wait for, and how their release ends."""

from __future__ import annotations

from enum import StrEnum


class GangState(StrEnum):
    """What a gang with held members waits for; the value is for metrics.

    Attributes:
        GATHERING: for members, or for gates of others on them.
        WAITING: for its turn, for quota or for room.
        RELEASING: for nominations and releases that are under way.
        BACKING_OFF: for the time after a failure.
    """

    GATHERING = "gathering"
    WAITING = "waiting"
    RELEASING = "releasing"
    BACKING_OFF = "backing-off"


class GangOutcome(StrEnum):
    """How the release of a gang ends; the value is for metrics.

    Attributes:
        RELEASED: all members are released; whether they are bound is seen later.
        STARTED: as many members as must run together are bound.
        CHANGED: a member, its node or the room there was gone before any was released.
        OVER_QUOTA: quota refused a member before any was released.
        REFUSED: somebody's admission did.
        UNREACHABLE: the API server did not answer in time, and none was released.
        FAILED: some were released, and too few of them are bound in time.
    """

    RELEASED = "released"
    STARTED = "started"
    CHANGED = "changed"
    OVER_QUOTA = "over-quota"
    REFUSED = "refused"
    UNREACHABLE = "unreachable"
    FAILED = "failed"
