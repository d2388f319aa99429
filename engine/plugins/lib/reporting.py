"""What plugins report: reasons as codes per node, and inputs that several plugins share."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import reduce

import numpy as np
from numpy.typing import NDArray

from engine.model.rule_outcomes import Codes, FilterResult, RuleInput, RuleInputs, Unit, unit_of
from engine.model.time import SECOND, Micros
from engine.view import BoolColumn, ClusterView, Sum

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
    """Return the code of each row, shape (n,), in a byte each if that is enough."""
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
    """Return the texts of the reasons in a code, in order."""
    if len(texts) > _BITS:
        texts = [*texts[: _BITS - 1], others]
    return tuple(text for i, text in enumerate(texts) if code >> i & 1)


def requests_with_pod(
    view: ClusterView, sums: Sum, row: int, requests: Mapping[str, int]
) -> RuleInputs:
    """Return the requests on a node with those of the pod, of what it offers: `cpu requests`."""
    return tuple(
        RuleInput(
            f"{name} requests",
            int(view.amount(view.sums[sums], name)[row]) + amount,
            unit_of(name),
            capacity=int(view.amount(view.allocatable, name)[row]),
        )
        for name, amount in requests.items()
    )


def report_age(view: ClusterView, row: int, now: Micros) -> RuleInput:
    """Return the age of the usage report of a node."""
    if view.usages[row] is None:
        return RuleInput("report", text="none")
    reported_at = int(view.metric_time[row])
    if not reported_at:
        return RuleInput("report", text="without a time")
    return RuleInput("report", (now - reported_at) // SECOND, Unit.SECONDS)
