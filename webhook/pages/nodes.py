"""The page of nodes: how full each is, as a heat map, as a distribution and as a table."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any, Final

import numpy as np

from engine.model.quantity import CPU, MEMORY
from engine.report import Measure, NodeNames, NodeReport, NodesReport, Threshold
from webhook.pages.document import (
    Figure,
    Page,
    Query,
    chosen,
    linked,
    part_of,
    percent,
    render,
    text_of,
)
from webhook.pages.figures import (
    Bins,
    axis,
    end_of,
    grouped_bars,
    layout,
    plot_text,
    step_for,
    upright,
)

_WIDER_THAN_HIGH: Final = 3
_LEAST_COLUMNS: Final = 24
_WIDE, _NARROW = 44, 20  # pixels
_MOST_NAMED_ZONES: Final = 20
_EDGE: Final = "rgba(128,128,128,0.9)"


@dataclass(frozen=True, slots=True)
class _Step:
    """Nodes that look the same."""

    name: str
    until: float  # the percentage that they are below
    color: str
    symbol: str = "square"


_COLORS: Final = ("#fdf0b5", "#d9c86f", "#9a9477", "#575d6d", "#123570", "#00123b")
"""Cividis, dark for full: a scale that loses nothing in grey."""

_WHOLE: Final = 100
_NARROWEST: Final = 20  # percentage points of a step

_ABOVE: Final = _Step("above the threshold", math.inf, "#d55e00", "x")
_UNKNOWN: Final = _Step("unknown", math.inf, _EDGE, "circle-open")


def heat_map(
    names: Sequence[str],
    zones: Sequence[str],
    percent: Sequence[float | None],
    threshold: float | None,
    *,
    end: float = 100,
) -> Figure:
    """Return a square per node by its percentage; one above the threshold is a cross.

    Args:
        names: of the nodes.
        zones: of the same nodes, "" for none.
        percent: of the same nodes, None where it is unknown.
        threshold: in percent, None for none.
        end: of the scale where there is no threshold, in percent.
    """
    grid = _grid(zones)
    # Nodes above the threshold are crosses: finer steps tell the others apart.
    scale = _scale(end if threshold is None else max(_WHOLE, threshold))
    steps = [_step(value, threshold, scale) for value in percent]
    data = [
        _trace(step, [i for i, found in enumerate(steps) if found is step], grid, names, percent)
        for step in (*scale, _ABOVE, _UNKNOWN)
    ]
    hidden: dict[str, Any] = {
        "showgrid": False,
        "zeroline": False,
        "showticklabels": False,
        "ticks": "",
    }
    zone_axis = hidden | {
        "showticklabels": bool(grid.labels),
        "tickvals": [row for row, _ in grid.labels],
        "ticktext": [plot_text(zone) for _, zone in grid.labels],
    }
    return {
        "data": [trace for trace in data if trace["x"]],
        "layout": layout(
            height=300,
            showlegend=False,  # the page has one that wraps
            margin={"l": 110 if grid.labels else 10, "r": 10, "t": 10, "b": 10},
            meta={"columns": grid.columns, "rows": grid.rows, "widest": _widest(len(names))},
            xaxis=axis(**hidden, automargin=False),
            yaxis=axis(**zone_axis, automargin=False),
        ),
    }


def _widest(nodes: int) -> int:
    """Return the greatest width of a square in pixels: a few nodes may take more room."""
    return _WIDE if nodes <= _LEAST_COLUMNS else _NARROW


@dataclass(frozen=True, slots=True)
class _Grid:
    """Where nodes are drawn."""

    x: Sequence[int]
    y: Sequence[int]
    columns: int
    rows: int
    # the row in which each zone begins, and its name; none where zones are not split
    labels: Sequence[tuple[int, str]]


def _grid(zones: Sequence[str]) -> _Grid:
    """Return a place for each node; each zone begins a row, unless there are very many."""
    columns = max(_LEAST_COLUMNS, math.ceil(math.sqrt(len(zones) * _WIDER_THAN_HIGH)))
    is_split = 1 < len(set(zones)) <= _MOST_NAMED_ZONES
    order = sorted(range(len(zones)), key=lambda i: zones[i] if is_split else "")
    x, y, row, labels = [0] * len(zones), [0] * len(zones), 0, list[tuple[int, str]]()
    for zone, members in groupby(order, key=lambda i: zones[i] if is_split else ""):
        if is_split:
            labels.append((row, zone or "no zone"))
        at = -1
        for at, node in enumerate(members):
            x[node], y[node] = at % columns, row + at // columns
        row += at // columns + 1
    return _Grid(x, y, columns, max(row, 1), labels)


def _scale(end: float) -> Sequence[_Step]:
    """Return the steps from 0 to the end of a scale, and one for what is beyond."""
    width = step_for(end, len(_COLORS) - 1, least=_NARROWEST)
    last = (len(_COLORS) - 1) * width
    bounds = [(start, start + width) for start in range(0, last, width)]
    within = [
        _Step(f"{start} to {until} %" if start else f"below {until} %", until, color)
        for (start, until), color in zip(bounds, _COLORS, strict=False)
    ]
    return (*within, _Step(f"{last} % and more", math.inf, _COLORS[-1]))


def _step(value: float | None, threshold: float | None, scale: Sequence[_Step]) -> _Step:
    if value is None:
        return _UNKNOWN
    if threshold is not None and value > threshold:
        return _ABOVE
    return next(step for step in scale if value < step.until)


def _trace(
    step: _Step,
    nodes: Sequence[int],
    grid: _Grid,
    names: Sequence[str],
    percent: Sequence[float | None],
) -> dict[str, Any]:
    is_known = step is not _UNKNOWN
    return {
        "type": "scatter",
        "mode": "markers",
        "name": f"{step.name} ({len(nodes):,})",
        "x": [grid.x[node] for node in nodes],
        "y": [grid.y[node] for node in nodes],
        "text": [plot_text(names[node], most=80) for node in nodes],
        "customdata": [percent[node] for node in nodes] if is_known else [],
        "hovertemplate": f"%{{text}}{': %{customdata} %' if is_known else ''}<extra></extra>",
        "marker": {
            "symbol": step.symbol,
            "color": step.color,
            "line": {"color": _EDGE, "width": 1 if step is _UNKNOWN else 0.5},
        },
    }


_MEASURES: Final = tuple(measure.value for measure in Measure)
_SORTS: Final = ("name", "zone", "pods", *_MEASURES)
_ROWS: Final = 100
_MOST_SUGGESTED: Final = 1_000


@dataclass(frozen=True, slots=True)
class _Row:
    """A node in the table."""

    name: str
    zone: str
    pods: int
    is_cordoned: bool
    allocatable: int  # of the resource that is shown, base units
    amounts: Mapping[str, int | None]  # by measure, base units, None where one is unknown
    levels: Mapping[str, float | None]  # the same in percent of what the node offers
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
    """How the bars of a measure are drawn."""

    end: float  # where they are full, in percent
    threshold: int | None  # the lowest, in percent; None for none


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


@dataclass(frozen=True, slots=True)
class _NodeBar:
    """Where a bar is full, and its threshold; see the page of nodes."""

    end: float
    threshold: int | None


@dataclass(frozen=True, slots=True)
class _Cell:
    """A measure of a resource: base units, None where it is unknown."""

    amount: int | None
    level: float | None
    bar: _NodeBar


def node_page(report: NodeReport) -> Page:
    """Return the page of a node."""
    nodes, i = report.nodes, report.nodes.names.index(report.name)
    offered = {
        name: columns.allocatable[i]
        for name, columns in nodes.resources.items()
        if columns.allocatable[i]
    }
    return Page(
        name="node",
        title=f"Node {report.name}",
        body=render(
            "node.html",
            report=report,
            zone=nodes.zones[i],
            is_cordoned=nodes.unschedulable[i],
            age=nodes.report_age_seconds[i],
            measures=tuple(Measure),
            offered=offered,
            cells={
                name: {each: _cell(nodes, name, each, i) for each in Measure} for name in offered
            },
            shown=[
                name for name in offered if name in {CPU, MEMORY} or _is_asked_for(report, name)
            ],
        ),
    )


def _is_asked_for(report: NodeReport, resource: str) -> bool:
    return any(each.requests.get(resource) for each in report.pods)


def _cell(nodes: NodesReport, resource: str, measure: Measure, i: int) -> _Cell:
    columns = nodes.resources[resource]
    amounts = {
        Measure.REQUESTS: (columns.requests, columns.allocatable),
        Measure.LIMITS: (columns.limits, columns.allocatable),
        Measure.LOAD: (columns.usage, columns.raw_allocatable),
    }
    amount, offered = (column[i] for column in amounts[measure])
    thresholds = [
        each.percent
        for each in nodes.thresholds
        if (each.resource, each.measure) == (resource, measure)
    ]
    level = percent(amount, offered)
    bar = _NodeBar(end_of([level], thresholds), min(thresholds, default=None))
    return _Cell(amount, level, bar)
