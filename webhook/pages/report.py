"""The report of a simulation: one HTML file with all that it needs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Final

from engine.model.count_text import counted
from engine.report import ArmReport, Measure, SimulationReport, Spread
from webhook.pages.document import self_contained
from webhook.pages.figures import Bars, bin_labels, grouped_bars, histogram, lines, stacked_rows
from webhook.pages.heat_map import heat_map
from webhook.pages.page import Figure, Page
from webhook.pages.templates import render

_BIN: Final = 10  # percentage points
_BINS: Final = 13  # up to 120 % and more
_RULES: Final = 20
_OUTCOMES: Final = 500
_HOUR: Final = 3_600


@dataclass(frozen=True, slots=True)
class _Plots:
    """Plots that stand under one heading.

    Attributes:
        captions: by the id of the plot.
        wide: whether each takes the whole width.
    """

    title: str
    captions: Mapping[str, str]
    wide: bool = False


def report_page(report: SimulationReport) -> str:
    """Return a whole HTML document on a simulation; it loads nothing."""
    figures: dict[str, Figure] = {}
    sections = [
        _heat_maps(report, figures),
        _distributions(report, figures),
        _rejections(report, figures),
        _over_time(report, figures),
    ]
    body = render(
        "report.html",
        report=report,
        sections=[section for section in sections if section.captions],
        keys=_spread_keys(report),
        measured=_most_telling(report),
        nodes=_by_node(report),
        spreads={
            arm.name: {(s.measure, s.resource): s for s in arm.spreads} for arm in report.arms
        },
        most_outcomes=_OUTCOMES,
    )
    title = "What if" if report.changes else "Simulation"
    return self_contained(Page(name="", title=title, body=body, figures=figures))


def _spread_keys(report: SimulationReport) -> Sequence[tuple[Measure, str]]:
    """Return measure and resource of every spread, in the order in which arms list them."""
    spreads: Iterator[Spread] = chain.from_iterable(arm.spreads for arm in report.arms)
    return tuple(dict.fromkeys((spread.measure, spread.resource) for spread in spreads))


def _levels(arm: ArmReport, measure: Measure, resource: str) -> Sequence[float]:
    return next(
        (
            levels.percent
            for levels in arm.levels
            if (levels.measure, levels.resource) == (measure, resource)
        ),
        (),
    )


def _keys_of_levels(report: SimulationReport) -> Sequence[tuple[Measure, str]]:
    levels = chain.from_iterable(arm.levels for arm in report.arms)
    return tuple(dict.fromkeys((each.measure, each.resource) for each in levels))


def _threshold(report: SimulationReport, measure: Measure, resource: str) -> float | None:
    return report.cluster.thresholds.get(resource) if measure is Measure.LOAD else None


def _heat_maps(report: SimulationReport, figures: dict[str, Figure]) -> _Plots:
    """Add the nodes of each arm by what matters most."""
    captions: dict[str, str] = {}
    measured = _most_telling(report)
    if measured is None:
        return _Plots("Nodes", captions)
    measure, resource = measured
    for number, arm in enumerate(report.arms):
        percent = _levels(arm, measure, resource)
        if not percent:
            continue
        name = f"heat-map-{number}"
        figures[name] = heat_map(
            report.cluster.nodes,
            report.cluster.zones,
            percent,
            _threshold(report, measure, resource),
        )
        captions[name] = f"{arm.name}: {resource} {measure} of each node, the fuller the darker"
    return _Plots("Nodes", captions, wide=True)


def _most_telling(report: SimulationReport) -> tuple[Measure, str] | None:
    """Return what nodes are shown by: load if it is known, else what comes first."""
    keys = _keys_of_levels(report)
    return next((key for key in keys if key[0] is Measure.LOAD), keys[0] if keys else None)


def _by_node(report: SimulationReport) -> Sequence[tuple[object, ...]]:
    """Return a row for each node, as the heat maps have it: name, zone, a percentage per arm."""
    measured = _most_telling(report)
    if measured is None:
        return ()
    unknown = (None,) * len(report.cluster.nodes)
    columns = [_levels(arm, *measured) or unknown for arm in report.arms]
    return tuple(zip(report.cluster.nodes, report.cluster.zones, *columns, strict=True))


def _distributions(report: SimulationReport, figures: dict[str, Figure]) -> _Plots:
    captions: dict[str, str] = {}
    for number, (measure, resource) in enumerate(_keys_of_levels(report)):
        counts = {
            arm.name: histogram(percent, width=_BIN, bins=_BINS)
            for arm in report.arms
            if (percent := _levels(arm, measure, resource))
        }
        name = f"distribution-{number}"
        figures[name] = grouped_bars(
            bin_labels(_BIN, _BINS),
            counts,
            x=f"{resource} {measure}, % of allocatable, from",
            y="nodes",
        )
        captions[name] = f"Number of nodes by {resource} {measure}, arm by arm"
    return _Plots("Distributions", captions)


def _rejections(report: SimulationReport, figures: dict[str, Figure]) -> _Plots:
    captions: dict[str, str] = {}
    for number, arm in enumerate(report.arms):
        found = arm.rejections[:_RULES]
        if not found:
            continue
        name = f"rejections-{number}"
        rules = [f"{each.policy}: {each.rule}" for each in found]
        nodes = Bars(
            "nodes", [each.nodes for each in found], [counted(each.pods, "pod") for each in found]
        )
        figures[name] = stacked_rows(rules, [nodes], x="rejected nodes, added up over pods")
        captions[name] = f"{arm.name}: nodes that each rule was the first to reject"
    return _Plots("What each rule rejected", captions, wide=True)


def _over_time(report: SimulationReport, figures: dict[str, Figure]) -> _Plots:
    captions: dict[str, str] = {}
    sampled = [arm for arm in report.arms if arm.samples]
    for key, title in (("hot_nodes", "Hot nodes"), ("waiting", "Pods without a node")):
        if sampled:
            name = f"time-{key}"
            figures[name] = lines(
                {
                    arm.name: (
                        [sample.seconds / _HOUR for sample in arm.samples],
                        [getattr(sample, key) for sample in arm.samples],
                    )
                    for arm in sampled
                },
                x="hours",
                y=title.lower(),
            )
            captions[name] = f"{title} over time, arm by arm"
    return _Plots("Over time", captions)
