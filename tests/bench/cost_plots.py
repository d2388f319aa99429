"""The plots of what decisions cost: the same bytes for the same figures."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, LogLocator

from tests.bench.cost_page import (
    MOST_MIB,
    MOST_P50_US,
    MOST_P99_US,
    MOST_SECONDS,
    Costs,
    Curve,
    least,
)
from tests.bench.cost_point import Cost

_COLORS: Final = ("tab:blue", "tab:orange")
_INCHES: Final = (10, 3.8)


@dataclass(frozen=True, slots=True)
class _Panel:
    """One figure of a plot.

    Attributes:
        title: what is shown, with its unit.
        series: each line's name, style and value.
        targets: where dotted lines are drawn, by which of the lines they are for.
        is_log: whether the values are on a logarithmic axis; else it begins at 0.
    """

    title: str
    series: Sequence[tuple[str, str, Callable[[Cost], float]]]
    targets: Mapping[str, float]
    is_log: bool = True


_PANELS: Final = (
    _Panel(
        "decision, ms of CPU",
        (
            ("still, p50", "-o", lambda cost: cost.still_p50 / 1e3),
            ("with events, p50", "-s", lambda cost: cost.events_p50 / 1e3),
            ("with events, p99", "--^", lambda cost: cost.events_p99 / 1e3),
        ),
        {"p50": MOST_P50_US / 1e3, "p99": MOST_P99_US / 1e3},
    ),
    _Panel("memory, MiB", (("", "-o", lambda cost: cost.resident),), {"": MOST_MIB}, is_log=False),
    _Panel("list to ready, s of CPU", (("", "-o", lambda cost: cost.ready),), {"": MOST_SECONDS}),
)


def plot(curve: Curve, costs: Costs, path: Path) -> None:
    """Write the plot of a curve as SVG."""
    with mpl.rc_context():
        mpl.rc("svg", hashsalt="stowplan")  # ids of elements are drawn from it
        mpl.rc("svg", fonttype="none")  # text stays text: its outlines are large
        mpl.rc("font", size=8)
        figure = Figure(figsize=_INCHES, layout="constrained")
        for panel, axes in zip(_PANELS, figure.subplots(1, len(_PANELS)), strict=True):
            _draw(panel, axes, curve, costs)
            _rule(panel, axes, curve)
        figure.suptitle(f"By {curve.axis}: {curve.fixed}", fontsize=10)
        figure.savefig(path, format="svg", metadata={"Date": None, "Creator": None})


def _draw(panel: _Panel, axes: Axes, curve: Curve, costs: Costs) -> None:
    for color, (line, points) in zip(_COLORS, curve.lines.items(), strict=False):
        for name, style, value in panel.series:
            axes.plot(
                [curve.at(point) for point in points],
                [value(least(costs[point])) for point in points],
                style,
                color=color,
                label=", ".join(filter(None, (line, name))),
                markersize=4,
            )
    for name, target in panel.targets.items():
        axes.axhline(target, color="black", linestyle=":", linewidth=1)
        # At the right end of the line, on it.
        place, told = axes.get_yaxis_transform(), f"target {name}".strip()
        axes.text(1, target, told, transform=place, ha="right", va="bottom", fontsize=7)
    if any(axes.get_legend_handles_labels()[1]):
        axes.legend(
            loc="upper center", bbox_to_anchor=(0.5, -0.18), ncols=len(curve.lines), frameon=False
        )


def _rule(panel: _Panel, axes: Axes, curve: Curve) -> None:
    """Set up the axes of a panel."""
    axes.set_xscale("log")
    axes.set_xticks(sorted({curve.at(point) for point in curve.points}))
    if panel.is_log:
        axes.set_yscale("log")
        axes.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
    else:
        axes.set_ylim(bottom=0)
    axes.minorticks_off()
    axes.grid(alpha=0.3)
    axes.spines[["top", "right"]].set_visible(False)
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: _short(value)))
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    axes.set_title(panel.title, fontsize=9)
    axes.set_xlabel(curve.axis)


def _short(count: float) -> str:
    """Return a count with `k` for thousands."""
    return f"{count / 1000:g}k" if count >= 1000 else f"{count:g}"
