"""Figures of where pods ended up and what that cost, and how they are shown."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean

STOCK, IDEAL = "stock", "ideal"
"""The arms that others are compared with."""

_COSTS = ("scheduler_ms", "api_server_ms", "webhook_ms")


@dataclass(frozen=True, slots=True, kw_only=True)
class Figures:
    """What became of the pods of one load.

    Attributes:
        nodes: how many there are.
        seed: of the loads and pods.
        arm: who placed the pods.
        load: how they came.
        spread: standard deviation of the nodes' loads.
        over: nodes above the threshold.
        on_hot: pods on hot nodes.
        unbound: pods that were not bound in time.
        nominated: pods that had a nomination.
        landed: those of them that were bound there.
        p50: milliseconds from creation to binding.
        p99: the same.
        scheduler_ms: CPU time of the scheduler for each pod.
        api_server_ms: the same of the API server.
        webhook_ms: the same of stowplan.
        scheduler_kb: kilobytes that the scheduler allocates for each pod.
    """

    nodes: int
    seed: int
    arm: str
    load: str
    spread: float
    over: int
    on_hot: int
    unbound: int = 0
    nominated: int = 0
    landed: int = 0
    p50: float = 0.0
    p99: float = 0.0
    scheduler_ms: float = 0.0
    api_server_ms: float = 0.0
    webhook_ms: float = 0.0
    scheduler_kb: float = 0.0


def show(one: Figures) -> None:
    """Print the figures of one load."""
    print(
        f"  seed {one.seed} {one.load:6} {one.arm:6}: spread {one.spread:.4f}, {one.over} nodes"
        f" over, {one.on_hot} pods on hot nodes; landed {one.landed} of {one.nominated}, unbound"
        f" {one.unbound}; p50 {one.p50:.0f} p99 {one.p99:.0f} ms;"
        f" CPU ms a pod: scheduler {one.scheduler_ms:.1f}, API server {one.api_server_ms:.1f},"
        f" webhook {one.webhook_ms:.1f}; scheduler {one.scheduler_kb:.0f} kB",
        flush=True,
    )


def table_of(figures: Sequence[Figures]) -> str:
    """Return a table with a row for each arm and load, over all seeds."""
    columns = [
        "load",
        "arm",
        "gap closed",
        "nodes over",
        "on hot nodes",
        "landed where nominated",
        "p50 / p99 ms",
        "scheduler / API server / stowplan ms a pod",
        "scheduler kB a pod",
    ]
    lines = [f"| {' | '.join(columns)} |", "|---" * len(columns) + "|"]
    loads, arms = (dict.fromkeys(getattr(one, name) for one in figures) for name in ("load", "arm"))
    for load in loads:
        for arm in arms:
            rows = [one for one in figures if (one.load, one.arm) == (load, arm)]
            lines.append(_row(rows, figures))
    return "\n".join(lines)


def _row(rows: Sequence[Figures], figures: Sequence[Figures]) -> str:
    def mean(name: str) -> float:
        return fmean(getattr(one, name) for one in rows)

    gaps = " / ".join(_gap(one, figures) for one in rows)
    over, hot = (" / ".join(str(getattr(one, name)) for one in rows) for name in ("over", "on_hot"))
    nominated = sum(one.nominated for one in rows)
    landed = f"{sum(one.landed for one in rows)} of {nominated}" if nominated else ""
    latency = f"{mean('p50'):.0f} / {mean('p99'):.0f}" if mean("p99") else ""
    costs = " / ".join(f"{mean(name):.1f}" for name in _COSTS) if mean(_COSTS[0]) else ""
    allocated = f"{mean('scheduler_kb'):.0f}" if mean("scheduler_kb") else ""
    cells = (rows[0].load, rows[0].arm, gaps, over, hot, landed, latency, costs, allocated)
    return f"| {' | '.join(cells)} |"


def _gap(one: Figures, figures: Sequence[Figures]) -> str:
    """Return which share of the way from the stock scheduler to the ideal an arm went."""
    spreads = {
        other.arm: other.spread
        for other in figures
        if (other.seed, other.load) == (one.seed, one.load)
    }
    way = spreads.get(STOCK, 0.0) - spreads[IDEAL]
    return f"{(spreads[STOCK] - one.spread) / way:.3f}" if way > 0 else ""
