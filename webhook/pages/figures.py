"""Plots as plotly.js reads them, for readers who do not see colours.

A fact is never in a colour alone: lightness rises with the value, and symbols, patterns or labels
say the same. What a plot shows is also in a table of its page.
"""

from __future__ import annotations

import html
import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain, count, groupby
from typing import Any, Final

from webhook.pages import ui

_ROUND: Final = (10, 20, 25, 50)
_WHOLE: Final = 100


def step_for(most: float, steps: int, *, least: int) -> int:
    """Return a round width, in percentage points, of which so many steps reach at least `most`."""
    widths = chain(_ROUND, (_WHOLE * n for n in count(1)))
    return next(width for width in widths if width >= least and width * steps >= most)


def end_of(levels: Iterable[float | None], thresholds: Iterable[float]) -> float:
    """Return where a scale ends: at 100 %, or beyond it at what is shown and its thresholds."""
    known = (level for level in levels if level is not None)
    return max(chain(known, thresholds, (float(_WHOLE),)))


COLORS: Final = ("#0072b2", "#e69f00", "#009e73", "#cc79a7", "#56b4e9", "#d55e00")
"""Okabe and Ito's colours, which people of every colour vision tell apart."""

PATTERNS: Final = ("", "/", "x", ".", "\\", "+")
DASHES: Final = ("solid", "dash", "dot", "dashdot", "longdash", "longdashdot")

_GRID: Final = "rgba(128,128,128,0.3)"
_EDGE: Final = "rgba(128,128,128,0.7)"
_CLEAR: Final = "rgba(0,0,0,0)"
_ROW_HEIGHT: Final = 26
_LEAST_HEIGHT: Final = 110
_MOST_LABEL: Final = 40
_FEW: Final = 5
_BIN: Final = 10  # percentage points, at least
_MOST_BINS: Final = 12


def plot_text(text: str, most: int = _MOST_LABEL) -> str:
    """Return a text of a cluster for a plot: plotly.js reads some HTML, and long ones are cut."""
    return html.escape(text if len(text) <= most else f"{text[: most - 1]}…", quote=False)


def layout(*, height: int, **more: Any) -> dict[str, Any]:  # noqa: ANN401 (any part of a layout)
    """Return a layout that suits light and dark pages."""
    return {
        "height": height,
        "margin": {"l": 60, "r": 20, "t": 20, "b": 45},
        "paper_bgcolor": _CLEAR,
        "plot_bgcolor": _CLEAR,
        "hovermode": "closest",
        "showlegend": False,  # the page has one that wraps
        "font": {"family": "system-ui, sans-serif", "size": 13},
        **more,
    }


def axis(title: str = "", **more: Any) -> dict[str, Any]:  # noqa: ANN401 (any part of an axis)
    """Return an axis."""
    return {
        "title": {"text": title},
        "gridcolor": _GRID,
        "zerolinecolor": _EDGE,
        "fixedrange": True,
        "automargin": True,
        **more,
    }


def color(number: int) -> str:
    """Return the colour of the n-th of several things."""
    return COLORS[number % len(COLORS)]


def filled(number: int) -> dict[str, Any]:
    """Return the filling of the bars of the n-th of several things: a colour and a pattern."""
    return {
        "color": color(number),
        "line": {"color": _EDGE, "width": 1},
        "pattern": {
            "shape": PATTERNS[number % len(PATTERNS)],
            "fillmode": "overlay",
            "fgcolor": "#fff",
            "size": 6,
        },
    }


def grouped_bars(
    labels: Sequence[str], series: Mapping[str, Sequence[float]], *, x: str, y: str
) -> ui.Figure:
    """Return bars side by side for each label, one for each of several things."""
    data = [
        {
            "type": "bar",
            "name": plot_text(name),
            "x": labels,
            "y": values,
            "marker": filled(number),
            "hovertemplate": "from %{x}: %{y}<extra>%{fullData.name}</extra>",
        }
        for number, (name, values) in enumerate(series.items())
    ]
    drawn = layout(
        height=220,
        barmode="group",
        bargap=0.15,
        xaxis=axis(x, type="category", tickangle=0, tickfont={"size": 11}),
        yaxis=_count_axis(y, series.values()),
    )
    return {"data": data, "layout": drawn}


@dataclass(frozen=True, slots=True)
class Bars:
    """One thing that is shown of each row, as bars from left to right."""

    name: str
    values: Sequence[float]
    texts: Sequence[str] = ()


def stacked_rows(rows: Sequence[str], bars: Sequence[Bars], *, x: str, **more: Any) -> ui.Figure:  # noqa: ANN401 (parts of a layout)
    """Return a row of stacked bars for each label, the first row on top."""
    labels = [plot_text(row) for row in rows]
    data = [
        {
            "type": "bar",
            "orientation": "h",
            "name": plot_text(each.name),
            "y": labels,
            "x": each.values,
            "text": [plot_text(text) for text in each.texts],
            "textposition": "none",
            "marker": filled(number),
            "hovertemplate": "%{y}: %{x}"
            + (" (%{text})" if each.texts else "")
            + "<extra>%{fullData.name}</extra>",
        }
        for number, each in enumerate(bars)
    ]
    drawn = layout(
        height=max(_LEAST_HEIGHT, _ROW_HEIGHT * len(rows) + 65),
        barmode="stack",
        bargap=0.25,
        xaxis=axis(x, rangemode="tozero"),
        yaxis=axis(autorange="reversed", type="category", dtick=1),
        **more,
    )
    return {"data": data, "layout": drawn}


def lines(
    series: Mapping[str, tuple[Sequence[float], Sequence[float]]], *, x: str, y: str
) -> ui.Figure:
    """Return steps over time, each thing with its own colour and dashes."""
    data = [
        {
            "type": "scatter",
            "mode": "lines",
            "name": plot_text(name),
            "x": times,
            "y": values,
            "line": {
                "shape": "hv",
                "color": color(number),
                "dash": DASHES[number % len(DASHES)],
                "width": 2,
            },
        }
        for number, (name, (times, values)) in enumerate(series.items())
    ]
    counts = _count_axis(y, (values for _, values in series.values()))
    return {"data": data, "layout": layout(height=220, xaxis=axis(x), yaxis=counts)}


def _count_axis(title: str, series: Iterable[Sequence[float]]) -> dict[str, Any]:
    """Return an axis of whole numbers from 0, without fractions between few of them."""
    most = max((value for values in series for value in values), default=0)
    steps = {"dtick": 1, "range": [0, _FEW]} if most < _FEW else {}
    return axis(title, rangemode="tozero", **steps)


def upright(at: float, text: str) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return a line across a plot at a value of its x axis, and its label."""
    line = {"color": COLORS[5], "dash": "dash", "width": 2}
    shape = {"type": "line", "x0": at, "x1": at, "yref": "paper", "y0": 0, "y1": 1, "line": line}
    label = {
        "x": at,
        "yref": "paper",
        "y": 1,
        "yanchor": "bottom",
        "showarrow": False,
        "text": text,
    }
    return shape, label


@dataclass(frozen=True, slots=True)
class Bins:
    """Equal bins of percentages from 0, of which the last has all from its begin on."""

    width: int  # of each, percentage points
    count: int  # how many

    @classmethod
    def up_to(cls, end: float) -> Bins:
        """Return bins of a scale."""
        width = step_for(end, _MOST_BINS, least=_BIN)
        return cls(width, int(end // width) + 1)

    @property
    def labels(self) -> Sequence[str]:
        """Where each begins."""
        last = (self.count - 1) * self.width
        return [*map(str, range(0, last, self.width)), f"{last}+"]

    def counts(self, values: Iterable[float]) -> Sequence[int]:
        """Return how many values lie in each bin."""
        counts = [0] * self.count
        for value in values:
            counts[min(int(value // self.width), self.count - 1)] += 1
        return counts


def marks_in_rows(name: str, values: Mapping[str, float]) -> Mapping[str, Any]:
    """Return a trace with an upright mark in some rows of `stacked_rows`, at a value each."""
    return {
        "type": "scatter",
        "mode": "markers",
        "name": name,
        "x": list(values.values()),
        "y": [plot_text(row) for row in values],
        "marker": {"symbol": "line-ns", "size": 16, "line": {"width": 3, "color": COLORS[5]}},
        "hovertemplate": "%{y}: %{x}<extra>%{fullData.name}</extra>",
    }


_WIDER_THAN_HIGH: Final = 3
_LEAST_COLUMNS: Final = 24
_MOST_NAMED_ZONES: Final = 20
_NODE_EDGE: Final = "rgba(128,128,128,0.9)"


@dataclass(frozen=True, slots=True)
class _Step:
    """Nodes that look the same."""

    name: str
    until: float  # the percentage that they are below
    color: str
    symbol: str = "square"


_CIVIDIS: Final = ("#fdf0b5", "#d9c86f", "#9a9477", "#575d6d", "#123570", "#00123b")
"""Cividis, dark for full: a scale that loses nothing in grey."""

_NARROWEST: Final = 20  # percentage points of a step

_ABOVE: Final = _Step("above the threshold", math.inf, "#d55e00", "x")
_UNKNOWN: Final = _Step("unknown", math.inf, _NODE_EDGE, "circle-open")


def heat_map(
    names: Sequence[str],
    zones: Sequence[str],
    percent: Sequence[float | None],
    threshold: float | None,
    *,
    end: float = 100,
) -> ui.Figure:
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
            margin={"l": 110 if grid.labels else 0, "r": 0, "t": 4, "b": 4},
            meta={"columns": grid.columns, "rows": grid.rows},
            xaxis=axis(**hidden, automargin=False),
            yaxis=axis(**zone_axis, automargin=False),
        ),
    }


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
    is_split = 1 < len(set(zones)) <= _MOST_NAMED_ZONES
    longest = max(Counter(zones).values(), default=1) if is_split else len(zones)
    most = max(_LEAST_COLUMNS, math.ceil(math.sqrt(len(zones) * _WIDER_THAN_HIGH)))
    columns = min(most, max(longest, 1))
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
    width = step_for(end, len(_CIVIDIS) - 1, least=_NARROWEST)
    last = (len(_CIVIDIS) - 1) * width
    bounds = [(start, start + width) for start in range(0, last, width)]
    within = [
        _Step(f"{start} to {until} %" if start else f"below {until} %", until, color)
        for (start, until), color in zip(bounds, _CIVIDIS, strict=False)
    ]
    return (*within, _Step(f"{last} % and more", math.inf, _CIVIDIS[-1]))


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
            "line": {"color": _NODE_EDGE, "width": 1 if step is _UNKNOWN else 0.5},
        },
    }
