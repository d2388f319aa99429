"""Heights along a line through given points."""

from __future__ import annotations

from collections.abc import Sequence


def broken_line(points: Sequence[tuple[int, int]], at: int) -> int:
    """Return the height at `at` of the straight lines between points, truncated toward zero.

    Before the first point and after the last it is level.

    Args:
        points: (place, height), by increasing place; at least one.
        at: a place.
    """
    before, height = points[0]
    for place, next_height in points:
        if at <= place:
            if place == before:
                return next_height
            risen, run = (next_height - height) * (at - before), place - before
            return height + (risen // run if risen >= 0 else -(-risen // run))
        before, height = place, next_height
    return height
