"""Age of data: domains that are too old to judge by, and nodes whose usage report is."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from engine.model.domain import Domain
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


FRESH: Final = Freshness()
"""Nothing is stale."""


class StalenessWindow(NamedTuple):
    """The reports that are not newer than any of some moments.

    Attributes:
        since: the first of these moments.
        until: the moment after the last of them.
        rows: their rows, those without a report or a time included, in any order.
        timed: the same without those, ascending, as bytes.
    """

    since: float
    until: float
    rows: NDArray[np.intp]
    timed: bytes


class StaleReports:
    """The times of the last reports of some rows, in order, so that no review looks at each.

    Args:
        times: microseconds since the epoch, 0 where there is no report or no time, (n,).
    """

    def __init__(self, times: IntColumn) -> None:
        self._rows = times.argsort()
        self._times = times.take(self._rows)
        self._latest = self._overdue(0)

    def overdue(self, moment: int) -> StalenessWindow:
        """Return the reports whose time is at most `moment`; the same object until that changes.

        Those without a time are among them, unless the moment lies before the epoch.
        """
        if not self._latest.since <= moment < self._latest.until:
            self._latest = self._overdue(moment)  # rarely: nodes report in time
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
