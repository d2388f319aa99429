"""How a reclaim ends."""

from __future__ import annotations

from enum import Enum


class Outcome(Enum):
    """The ends of a reclaim, as metrics name them.

    Attributes:
        BOUND: its pod runs.
        REVOKED: its victims are gone; nobody waits for their room.
        LOST: its pod was not released, or not bound, in time.
        NO_ROOM: the victims are gone, and somebody else took their room.
        STILL_ENDING: the victims take longer than ten minutes to end; nobody else is evicted
            meanwhile, since they are leaving.
        BLOCKED: a PodDisruptionBudget stands against an eviction.
        REFUSED: somebody's admission, or a right that we lack, stands against a write.
        UNREACHABLE: the API server was out of reach before anything was evicted.
        NEEDLESS: nothing had to be evicted after all.
        CHANGED: the cluster has changed, and no plan is left.
        ABANDONED: its pod is gone, or was released by somebody else.
        REPORTED: the quota's mode is DryRun: the plan was told, and nothing done.
    """

    BOUND = "bound"
    REVOKED = "revoked"
    LOST = "lost"
    NO_ROOM = "no-room"
    STILL_ENDING = "still-ending"
    BLOCKED = "blocked"
    REFUSED = "refused"
    UNREACHABLE = "unreachable"
    NEEDLESS = "needless"
    CHANGED = "changed"
    ABANDONED = "abandoned"
    REPORTED = "reported"
