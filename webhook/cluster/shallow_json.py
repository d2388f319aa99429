"""JSON that nests deeper than Python can follow.

Nothing that we read is nested deeply, but who may create a pod may write `managedFields` of 10,000
levels, as many as the API server reads. One such object must not keep all others from being read.
"""

from __future__ import annotations

from typing import Final

import msgspec
import numpy as np
from numpy.typing import NDArray

MOST_LEVELS: Final = 200
"""Levels that are kept; objects of the API have some 20."""

_QUOTE, _BACKSLASH = b'"\\'
_ZERO: Final = np.uint8(ord("0"))


def shallow(data: bytes | msgspec.Raw) -> bytes:
    """Return JSON with 0 in place of what is below `MOST_LEVELS`; what is malformed stays so.

    Takes some 30 ms for each MiB, whatever the text.
    """
    text = np.frombuffer(bytes(data), np.uint8)
    outside = np.cumsum(_quotes(text), dtype=np.int32) % 2 == 0  # of strings
    opens = outside & ((text == ord("[")) | (text == ord("{")))
    closes = outside & ((text == ord("]")) | (text == ord("}")))
    levels = np.cumsum(opens.astype(np.int8) - closes.astype(np.int8), dtype=np.int32)
    is_deep = levels > MOST_LEVELS
    starts = opens & (levels == MOST_LEVELS + 1)
    ends = closes & (levels == MOST_LEVELS)
    kept: NDArray[np.uint8] = np.where(starts, _ZERO, text)[starts | ~(is_deep | ends)]
    return kept.tobytes()


def _quotes(text: NDArray[np.uint8]) -> NDArray[np.bool_]:
    """Return where strings begin and end: at each quote after an even number of backslashes."""
    quotes: NDArray[np.bool_] = text == _QUOTE
    if not (text == _BACKSLASH).any():
        return quotes
    positions = np.arange(len(text), dtype=np.int32)
    others = np.maximum.accumulate(np.where(text == _BACKSLASH, np.int32(-1), positions))
    is_escaped = np.zeros_like(quotes)
    is_escaped[1:] = (positions - others)[:-1] % 2 == 1
    quotes &= ~is_escaped
    return quotes
