"""Codes that are sets of reasons: bit i is the i-th reason; those past the last bit share it."""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce

import numpy as np
from numpy.typing import NDArray

from engine.model.rule_outcomes import Codes, FilterResult
from engine.view import BoolColumn

_BITS = 63  # of a positive int64
_BYTE = 8


def rejected_with(rejections: Sequence[BoolColumn]) -> FilterResult:
    """Return the result of a filter that rejects nodes for these reasons, at least one.

    Args:
        rejections: where each reason applies, (n,).
    """
    rejects = reduce(np.logical_or, rejections)
    return FilterResult(rejects, lambda: reason_codes(rejections))


def reason_codes(rejections: Sequence[BoolColumn]) -> Codes:
    """Return the code of each row, shape (n,), in a byte each if that is enough.

    Args:
        rejections: where each reason applies, at least one.
    """
    if len(rejections) > _BITS:
        others = np.logical_or.reduce(rejections[_BITS - 1 :])
        rejections = [*rejections[: _BITS - 1], others]
    # Bytes first, and int64 last, takes a fifth of the time.
    bytes_ = [_byte(rejections[i : i + _BYTE]) for i in range(0, len(rejections), _BYTE)]
    if len(rejections) < _BYTE:
        return bytes_[0].view(np.int8)
    codes = bytes_.pop().astype(np.int64)
    while bytes_:
        codes = (codes << _BYTE) | bytes_.pop()
    return codes


def _byte(rejections: Sequence[BoolColumn]) -> NDArray[np.uint8]:
    """Return the set of up to eight reasons of each row."""
    byte = rejections[-1].astype(np.uint8)
    for rejected in rejections[-2::-1]:
        byte += byte
        byte |= rejected.view(np.uint8)
    return byte


def reason_texts(code: int, texts: Sequence[str], others: str) -> tuple[str, ...]:
    """Return the texts of the reasons in a code, in order.

    Args:
        code: from `reason_codes` of as many reasons as there are texts.
        texts: of each reason.
        others: the text of those that share a bit.
    """
    if len(texts) > _BITS:
        texts = [*texts[: _BITS - 1], others]
    return tuple(text for i, text in enumerate(texts) if code >> i & 1)
