"""Spans of time in which the same usage reports of a view are expired."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from engine.model.time import Micros
from engine.policy.activation import USAGE_LIFETIME
from engine.view import ClusterView, stale_reports


@dataclass(frozen=True, slots=True)
class UsageSpan:
    """A span of time in which the same reports of a view are expired.

    Attributes:
        silent: the rows whose last report, if any, is expired.
        key: those of the rows that have a report, as a part of cache keys. INVARIANT: between two
            views, a row that is in neither or in both, and whose report did not change, has the
            same usage in both.
        columns: the columns computed for the view in this span.
    """

    silent: NDArray[np.intp]
    key: bytes
    columns: dict[Hashable, Any] = field(default_factory=dict)


def usage_span(view: ClusterView, now: Micros) -> UsageSpan:
    """Return the span around a moment; a view remembers the latest."""
    latest: tuple[Micros, UsageSpan] | None = view.scratch.get(UsageSpan)  # type: ignore[assignment]
    if latest is not None and latest[0] == now:
        return latest[1]
    silent = stale_reports(view).overdue(now - USAGE_LIFETIME)
    if latest is not None and latest[1].key == silent.timed:
        span = latest[1]
    else:
        span = UsageSpan(silent.rows, silent.timed)
    view.scratch[UsageSpan] = now, span
    return span
