"""Age of data: domains that are too old to judge by, and nodes whose usage report is."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from engine.model.kinds import Domain
from engine.view.axis import IntColumn
from engine.view.cluster_view import ClusterView

DOMAIN_NAMES: Final[Mapping[Domain, str]] = {
    Domain.NODES: "nodes",
    Domain.PODS: "pods",
    Domain.METRICS: "usage",
    Domain.TOPOLOGY: "topology",
}
"""The name of a domain in messages and reports."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Freshness:
    """Time since the last contact with each source of a cluster, and the domains stale by that.

    The caller decides how old is too old; a rule that reads a stale domain abstains. Without
    arguments nothing is stale, as in a recorded cluster.

    Attributes:
        ages: whole seconds since the last contact with each source, by its name.
        stale: the domains that are too old, each with a text for people: `usage is 95 s old`.
    """

    ages: Mapping[str, int] = field(default_factory=dict)
    stale: Mapping[Domain, str] = field(default_factory=dict)

    def stale_among(self, domains: Iterable[Domain]) -> Mapping[str, str]:
        """Return the stale ones of `domains`: their texts by `DOMAIN_NAMES`."""
        return {
            DOMAIN_NAMES[domain]: self.stale[domain] for domain in domains if domain in self.stale
        }


_WINDOWS: Final = 4  # of rules that allow reports of different ages

FRESH: Final = Freshness()
"""Nothing is stale."""


class StalenessWindow(NamedTuple):
    """The reports that are not newer than any of some moments.

    Attributes:
        since: the first of these moments.
        until: the moment after the last of them.
        rows: their rows, those without a report or a time included, ascending.
        timed: the same without those, ascending, as bytes.
    """

    since: float
    until: float
    rows: NDArray[np.intp]
    timed: bytes


class StaleReports:
    """The times of the last reports of some rows; most reviews do not look at each.

    Args:
        times: microseconds since the epoch, 0 where there is no report or no time, (n,).
    """

    def __init__(self, times: IntColumn) -> None:
        self._times = times.copy()
        self._windows: tuple[StalenessWindow, ...] = ()

    def overdue(self, moment: int) -> StalenessWindow:
        """Return the reports whose time is at most `moment`; the same object until that changes.

        Those without a time are among them, unless the moment lies before the epoch.
        """
        for window in self._windows:
            if window.since <= moment < window.until:
                return window
        window = self._overdue(moment)  # rarely: nodes report in time
        self._windows = (window, *self._windows[: _WINDOWS - 1])
        return window

    def _overdue(self, moment: int) -> StalenessWindow:
        times, is_overdue = self._times, self._times <= moment
        rows = is_overdue.nonzero()[0]
        found, later = times[rows], times[~is_overdue]
        return StalenessWindow(
            since=float(found.max()) if found.size else -math.inf,
            until=float(later.min()) if later.size else math.inf,
            rows=rows,
            timed=rows[found > 0].tobytes(),
        )


def stale_reports(view: ClusterView) -> StaleReports:
    """Return the times of a view's reports, remembered until one changes or a row comes."""
    domains = (Domain.NODES, Domain.METRICS)
    return view.node_aggregate("report times", domains, lambda rows: StaleReports(rows.metric_time))
