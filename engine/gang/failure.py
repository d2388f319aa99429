"""When a gang is given up because a member of it fits nowhere.

Source: scheduler-plugins, pkg/coscheduling/coscheduling.go, PostFilter.
"""

from __future__ import annotations

from typing import Final

from engine.model.gang import Gang

TOLERATED_PERCENT: Final = 10
"""Of the members that must run: so many may be missing while the others wait for them."""


def keeps_waiting(gang: Gang, assigned: int, *, tolerated_percent: int = TOLERATED_PERCENT) -> bool:
    """Return whether members wait on although the scheduler finds no node for one of them.

    Args:
        gang: whose members were released together.
        assigned: members that are bound.
        tolerated_percent: of the members that must run, may be missing.
    """
    missing = gang.min_member - assigned
    return missing <= 0 or missing * 100 <= tolerated_percent * gang.min_member
