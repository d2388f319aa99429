"""The page of nodes: how full each is, as a heat map, as a distribution and as a table."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from engine.report import Measure, NodeNames, NodesReport, Threshold
from webhook.pages.amounts import percent
from webhook.pages.figures import Bins, grouped_bars, upright
from webhook.pages.heat_map import heat_map
from webhook.pages.page import Figure, Page
from webhook.pages.query import Query, chosen, part_of, text_of
from webhook.pages.scale import end_of
from webhook.pages.templates import linked, render

_MEASURES: Final = tuple(measure.value for measure in Measure)
_SORTS: Final = ("name", "zone", "pods", *_MEASURES)
_ROWS: Final = 100
_MOST_SUGGESTED: Final = 1_000


@dataclass(frozen=True, slots=True)
class _Row:
    """A node in the table.

    Attributes:
        allocatable: of the resource that is shown, base units.
        amounts: by measure, base units, None where one is unknown.
        levels: the same in percent of what the node offers.
    """

    name: str
    zone: str
    pods: int
    is_cordoned: bool
    allocatable: int
    amounts: Mapping[str, int | None]
    levels: Mapping[str, float | None]
    report_age: int | None


def nodes_page(report: NodesReport, query: Query) -> Page:
    """Return the page of nodes.

    Args:
        report: the nodes.
        query: `resource`, `measure`, `find` (part of a name or zone), `sort`, `part`.
    """
    resource = chosen(query, "resource", tuple(report.resources))
    measure = chosen(query, "measure", _MEASURES)
    find, sort = text_of(query, "find"), chosen(query, "sort", (measure, *_SORTS))
    levels = _levels(report, resource, measure)
    known = [level for level in levels if level is not None]
    thresholds = _thresholds(report.thresholds, resource, measure)
    lowest = min((threshold.percent for threshold in thresholds), default=None)
    end = end_of(known, (threshold.percent for threshold in thresholds))
    names = NodeNames.of(report.names)
    found = [
        i
        for i, (name, zone) in enumerate(zip(report.names, report.zones, strict=True))
        if find in name or find in zone
    ]
    part = part_of(sorted(found, key=_order(report, resource, sort)), query, _ROWS)
    choice = {"resource": resource, "measure": measure, "find": find, "sort": sort}
    heat = heat_map(report.names, report.zones, levels, lowest, end=end)
    return Page(
        name="nodes",
        title="Nodes",
        body=render(
            "nodes.html",
            report=report,
            resource=resource,
            resources=tuple(report.resources),
            measure=measure,
            measures=_MEASURES,
            find=find,
            suggested=_suggested(report),
            sort=sort,
            thresholds=thresholds,
            facts=_facts(levels, known, lowest),
            crowd=report.crowd if report.crowd and report.crowd.pods > 1 else None,
            names=names,
            heat=heat,
            bars={each: _bar(report, resource, each) for each in _MEASURES},
            unknown=len(levels) - len(known),
            part=part,
            rows=[_row(report, resource, i) for i in part.items],
            link=linked(choice),
        ),
        figures={
            "heat-map": heat,
            "distribution": _distribution(known, measure, thresholds, end),
        },
    )


def _suggested(report: NodesReport) -> Sequence[str]:
    """Return zones and, as long as they are few, nodes."""
    zones = sorted({zone for zone in report.zones if zone})
    return (*zones, *(report.names if len(report.names) <= _MOST_SUGGESTED else ()))


def _amounts(report: NodesReport, resource: str, measure: str) -> Sequence[int | None]:
    columns = report.resources[resource]
    match measure:
        case Measure.REQUESTS:
            return columns.requests
        case Measure.LIMITS:
            return columns.limits
    return columns.usage


def _levels(report: NodesReport, resource: str, measure: str) -> list[float | None]:
    """Return a measure of each node in percent of what it offers."""
    offered = _offered(report, resource, measure)
    return [*map(percent, _amounts(report, resource, measure), offered)]


def _offered(report: NodesReport, resource: str, measure: str) -> Sequence[int]:
    """Return the allocatable amounts, for usage those before amplification."""
    columns = report.resources[resource]
    return columns.raw_allocatable if measure == Measure.LOAD else columns.allocatable


def _row(report: NodesReport, resource: str, i: int) -> _Row:
    allocatable = report.resources[resource].allocatable[i]
    amounts = {measure: _amounts(report, resource, measure)[i] for measure in _MEASURES}
    return _Row(
        name=report.names[i],
        zone=report.zones[i],
        pods=report.pods[i],
        is_cordoned=report.unschedulable[i],
        allocatable=allocatable,
        amounts=amounts,
        levels={
            measure: percent(value, _offered(report, resource, measure)[i])
            for measure, value in amounts.items()
        },
        report_age=report.report_age_seconds[i],
    )


def _thresholds(
    thresholds: Sequence[Threshold], resource: str, measure: str
) -> tuple[Threshold, ...]:
    return tuple(
        each for each in thresholds if (each.resource, each.measure) == (resource, measure)
    )


def _facts(
    levels: Sequence[float | None], known: Sequence[float], threshold: float | None
) -> list[tuple[str, str]]:
    """Return what is to be read first, as names and values."""
    facts = []
    if threshold is not None:
        above = sum(level > threshold for level in known)
        facts.append((f"Above {threshold} %", f"{above:,} of {len(known):,} nodes"))
    else:
        facts.append(("Nodes", f"{len(levels):,}"))
    if known:
        facts += [
            ("Fullest", f"{max(known):.1f} %"),
            ("Mean", f"{np.mean(known):.1f} %"),
            ("Spread (std. dev.)", f"{np.std(known):.1f} points"),
        ]
    if len(known) < len(levels):
        facts.append(("Unknown", f"{len(levels) - len(known):,}"))
    return facts


@dataclass(frozen=True, slots=True)
class _Bar:
    """How the bars of a measure are drawn.

    Attributes:
        end: where they are full, in percent.
        threshold: the lowest, in percent; None for none.
    """

    end: float
    threshold: int | None


def _bar(report: NodesReport, resource: str, measure: str) -> _Bar:
    thresholds = [each.percent for each in _thresholds(report.thresholds, resource, measure)]
    levels = _levels(report, resource, measure)
    return _Bar(end_of(levels, thresholds), min(thresholds, default=None))


def _order(
    report: NodesReport, resource: str, sort: str
) -> Callable[[int], tuple[float | str, str]]:
    """Return the order of nodes: texts rising, numbers falling, what is unknown last."""
    names = report.names
    match sort:
        case "name":
            return lambda i: (names[i], "")
        case "zone":
            return lambda i: (report.zones[i], names[i])
        case "pods":
            return lambda i: (-report.pods[i], names[i])
    levels = _levels(report, resource, sort)
    falling = [1.0 if level is None else -level for level in levels]
    return lambda i: (falling[i], names[i])


def _distribution(
    known: Sequence[float], measure: str, thresholds: Sequence[Threshold], end: float
) -> Figure:
    bins = Bins.up_to(end)
    figure = grouped_bars(
        bins.labels,
        {measure: bins.counts(known)},
        x=f"{measure}, % of allocatable, from",
        y="nodes",
    )
    # On an axis of names positions are counted: the middle of the first bin is 0.
    marks = [upright(each.percent / bins.width - 0.5, f"{each.percent} %") for each in thresholds]
    shown = {
        **figure["layout"],
        "showlegend": False,
        "shapes": [shape for shape, _ in marks],
        "annotations": [label for _, label in marks],
    }
    return {"data": figure["data"], "layout": shown}
