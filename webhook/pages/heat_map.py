"""The heat map of nodes: a square for each, zone by zone, in steps of lightness and in symbols."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any, Final

from webhook.pages.figures import axis, layout, plot_text
from webhook.pages.page import Figure
from webhook.pages.scale import step_for

_WIDER_THAN_HIGH: Final = 3
_LEAST_COLUMNS: Final = 24
_WIDE, _NARROW = 44, 20  # pixels
_MOST_NAMED_ZONES: Final = 20
_EDGE: Final = "rgba(128,128,128,0.9)"


@dataclass(frozen=True, slots=True)
class _Step:
    """Nodes that look the same.

    Attributes:
        until: the percentage that they are below.
    """

    name: str
    until: float
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
    """Where nodes are drawn.

    Attributes:
        labels: the row in which each zone begins, and its name; none where zones are not split.
    """

    x: Sequence[int]
    y: Sequence[int]
    columns: int
    rows: int
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
