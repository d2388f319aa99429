"""Codes that are sets: bit i is the i-th complaint, so that one number tells all that is wrong.

The complaints past the last bit share it.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce

import numpy as np
from numpy.typing import NDArray

from engine.model.decision import Codes, FilterResult
from engine.view import BoolColumn

_BITS = 63  # of a positive int64
_BYTE = 8


def rejected_with(complaints: Sequence[BoolColumn]) -> FilterResult:
    """Return what a filter says that makes these complaints, at least one, of nodes.

    Args:
        complaints: where each of them is made, (n,).
    """
    rejects = reduce(np.logical_or, complaints)
    return FilterResult(rejects, lambda: reason_codes(complaints))


def reason_codes(complaints: Sequence[BoolColumn]) -> Codes:
    """Return the code of each row, shape (n,), in a byte each if that will do.

    Args:
        complaints: where each of them is made, at least one.
    """
    if len(complaints) > _BITS:
        others = np.logical_or.reduce(complaints[_BITS - 1 :])
        complaints = [*complaints[: _BITS - 1], others]
    # By the byte, and only then as wide as a code: that takes a fifth of the time.
    bytes_ = [_byte(complaints[i : i + _BYTE]) for i in range(0, len(complaints), _BYTE)]
    if len(complaints) < _BYTE:
        return bytes_[0].view(np.int8)
    codes = bytes_.pop().astype(np.int64)
    while bytes_:
        codes = (codes << _BYTE) | bytes_.pop()
    return codes


def _byte(complaints: Sequence[BoolColumn]) -> NDArray[np.uint8]:
    """Return the set of up to eight complaints on each row."""
    byte = complaints[-1].astype(np.uint8)
    for made in complaints[-2::-1]:
        byte += byte
        byte |= made.view(np.uint8)
    return byte


def complaint_texts(code: int, texts: Sequence[str], others: str) -> tuple[str, ...]:
    """Return the texts of the complaints in a code, in order.

    Args:
        code: one that `complaint_codes` gave for as many complaints as there are texts.
        texts: of each complaint.
        others: the text of those that share a bit.
    """
    if len(texts) > _BITS:
        texts = [*texts[: _BITS - 1], others]
    return tuple(text for i, text in enumerate(texts) if code >> i & 1)
