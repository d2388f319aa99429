"""When nodes last reported their usage: whose report is too old, without a look at each of them."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import NDArray

from engine.model.domain import Domain
from engine.view.axis import IntColumn

if TYPE_CHECKING:
    from engine.view.cluster_view import ClusterView


class StalenessWindow(NamedTuple):
    """The reports that are not newer than some moments.

    Attributes:
        since: the first of these moments.
        until: the moment after the last of them.
        rows: whose report it is, those that have none or no time among them, in any order.
        timed: the same without those, ascending, as bytes.
    """

    since: float
    until: float
    rows: NDArray[np.intp]
    timed: bytes


class StaleReports:
    """The times of the last reports of some rows, in order.

    Args:
        times: microseconds since the epoch, 0 where there is no report or no time, (n,).
    """

    def __init__(self, times: IntColumn) -> None:
        self._rows = times.argsort()
        self._times = times.take(self._rows)
        self._latest = self._overdue(0)

    def overdue(self, moment: int) -> StalenessWindow:
        """Return the reports whose time is at most `moment`; the same ones until that changes.

        Those without a time are among them, unless the moment lies before the epoch.
        """
        if not self._latest.since <= moment < self._latest.until:
            self._latest = self._overdue(moment)  # for most moments it is: nodes report in time
        return self._latest

    def _overdue(self, moment: int) -> StalenessWindow:
        end = int(self._times.searchsorted(moment, "right"))
        rows = self._rows[:end]
        timed = np.sort(rows[self._times.searchsorted(0, "right") :])
        since = float(self._times[end - 1]) if end else -math.inf
        until = float(self._times[end]) if end < len(self._times) else math.inf
        return StalenessWindow(since, until, rows, timed.tobytes())


def stale_reports(view: ClusterView) -> StaleReports:
    """Return the times of a view's reports, remembered until one changes or a row comes."""
    domains = (Domain.NODES, Domain.METRICS)
    return view.node_aggregate("report times", domains, lambda rows: StaleReports(rows.metric_time))
