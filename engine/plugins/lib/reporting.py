"""What plugins report: reasons as codes per node, and inputs that several plugins share."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import reduce

import numpy as np

from engine.model.rule_outcomes import Codes, FilterResult, RuleInput, RuleInputs, Unit, unit_of
from engine.model.time import SECOND, Micros
from engine.view import BoolColumn, ClusterView, Sum

_BITS = 63  # of a positive int64


def rejected_with(rejections: Sequence[BoolColumn]) -> FilterResult:
    """Return the result of a filter that rejects nodes for these reasons, at least one.

    Args:
        rejections: where each reason applies, (n,).
    """
    rejects = reduce(np.logical_or, rejections)
    return FilterResult(rejects, lambda: reason_codes(rejections))


def reason_codes(rejections: Sequence[BoolColumn]) -> Codes:
    """Return the code of each row, shape (n,): a bit for each reason."""
    if len(rejections) > _BITS:
        others = np.logical_or.reduce(rejections[_BITS - 1 :])
        rejections = [*rejections[: _BITS - 1], others]
    codes = np.zeros(len(rejections[0]), np.int64)
    for bit, rejected in enumerate(rejections):
        codes |= rejected.astype(np.int64) << bit
    return codes


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
