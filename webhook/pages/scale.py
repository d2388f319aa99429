"""Scales of percentages: steps wide enough for what is shown, whether that ends at 60 or at 600."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import chain, count
from typing import Final

_ROUND: Final = (10, 20, 25, 50)
_WHOLE: Final = 100


def step_for(most: float, steps: int, *, least: int) -> int:
    """Return a round width, in percentage points, of which so many steps reach at least `most`.

    Args:
        most: what the scale has to hold.
        steps: how many there are.
        least: the narrowest width.
    """
    widths = chain(_ROUND, (_WHOLE * n for n in count(1)))
    return next(width for width in widths if width >= least and width * steps >= most)


def end_of(levels: Iterable[float | None], thresholds: Iterable[float]) -> float:
    """Return where a scale ends: at 100 %, or beyond it at what is shown and its thresholds."""
    known = (level for level in levels if level is not None)
    return max(chain(known, thresholds, (float(_WHOLE),)))
