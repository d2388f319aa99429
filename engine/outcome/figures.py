"""Figures of policies by namespace, and how a landing adds to them."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Mapping
from typing import Final, NamedTuple

from engine.outcome.landing import LandingJudgement, PolicyLanding
from engine.report import RANK_BOUNDS, OutcomeFigures

MOST_SERIES: Final = 200
"""Policies in a mode times namespaces; tenants may create namespaces. The rest counts for ""."""

_REST: Final = ""

_AMOUNTS: Final = tuple([name for name in OutcomeFigures.__struct_fields__ if name != "ranks"])


class Series(NamedTuple):
    """The pods that are counted together."""

    policy: str
    mode: str
    namespace: str


class RuleSeries(NamedTuple):
    """The pods that landed on a node which a filter rejects."""

    policy: str
    mode: str
    rule: str


class OutcomeCounts:
    """Figures that only grow."""

    def __init__(self) -> None:
        self.figures: dict[Series, OutcomeFigures] = {}
        self.rules: dict[RuleSeries, int] = {}

    def add(self, namespace: str, landings: Iterable[PolicyLanding]) -> None:
        """Count one pod of a namespace, as each policy sees where it landed."""
        for landing in landings:
            figures = self._figures(Series(landing.policy, landing.mode, namespace))
            figures.pods += 1
            figures.landed += landing.landed
            judgement = landing.judgement
            if judgement is None:
                continue
            _count(figures, judgement)
            for rule in judgement.rules:
                key = RuleSeries(landing.policy, landing.mode, rule)
                self.rules[key] = self.rules.get(key, 0) + 1

    def merge(
        self, figures: Mapping[Series, OutcomeFigures], rules: Mapping[RuleSeries, int]
    ) -> None:
        """Add the figures of others."""
        for series, more in figures.items():
            _merge(self._figures(series), more)
        for key, pods in rules.items():
            self.rules[key] = self.rules.get(key, 0) + pods

    def _figures(self, series: Series) -> OutcomeFigures:
        known = self.figures.get(series)
        if known is None:
            if len(self.figures) >= MOST_SERIES:
                series = series._replace(namespace=_REST)
            known = self.figures.setdefault(series, OutcomeFigures())
        return known


def total_of(figures: Iterable[OutcomeFigures]) -> OutcomeFigures:
    """Return the sum of figures."""
    total = OutcomeFigures()
    for more in figures:
        _merge(total, more)
    return total


def _count(figures: OutcomeFigures, judgement: LandingJudgement) -> None:
    figures.decided += 1
    figures.denied += judgement.is_denied
    figures.moved += judgement.moved
    if judgement.rank:
        figures.rank_total += judgement.rank
        band = bisect_left(RANK_BOUNDS, judgement.rank)
        figures.ranks = tuple(count + (at == band) for at, count in enumerate(figures.ranks))
    else:
        figures.rejected += 1
    if judgement.hot is not None:
        figures.measured += 1
        figures.hot += judgement.hot[0]
        figures.stock_hot += judgement.hot[1]
    if judgement.points is not None:
        figures.scored += 1
        figures.points += judgement.points
        figures.best += judgement.best
    if judgement.chosen is not None and judgement.stock is not None:
        figures.compared += 1
        figures.compared_points += judgement.chosen
        figures.stock_points += judgement.stock


def _merge(figures: OutcomeFigures, more: OutcomeFigures) -> None:
    for name in _AMOUNTS:
        setattr(figures, name, getattr(figures, name) + getattr(more, name))
    figures.ranks = tuple(a + b for a, b in zip(figures.ranks, more.ranks, strict=True))
