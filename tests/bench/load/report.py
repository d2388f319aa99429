"""The figures of a run as tables for people, and as JSON for whoever compares runs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from rich.console import Console
from rich.table import Table

from tests.bench.load.measuring import LEAD_IN_SECONDS, Figures

_MICROS = 1e6


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """Everything that a run of the load bench showed.

    Attributes:
        machine: processor, system and versions.
        date: when it began, ISO 8601.
        sizes: of the cluster, and the rate of its events.
        ready: seconds from the start of the process until it was ready, and of processor time.
        resident_mib: of the server, by moment.
        figures: of the phases, by name.
        ratios: of what was measured to the floor of the same run.
        stages: where the processor time of a review goes, microseconds.
    """

    machine: str
    date: str
    sizes: Mapping[str, float]
    ready: Mapping[str, float]
    resident_mib: Mapping[str, float]
    figures: Sequence[Figures]
    ratios: Mapping[str, float]
    stages: Mapping[str, float]


def show(run: Run, console: Console) -> None:
    """Print a run."""
    console.print(f"\n{run.machine}")
    sizes = ", ".join(f"{value:,.0f} {name}" for name, value in run.sizes.items())
    took, spent = run.ready["seconds"], run.ready["processor seconds"]
    console.print(f"{sizes}; ready {took:.1f} s after its start, {spent:.1f} s of a processor")
    resident = ", ".join(f"{value:.0f} {moment}" for moment, value in run.resident_mib.items())
    console.print(f"MiB resident: {resident}\n")
    console.print(_latencies(run.figures))
    console.print(_handler(run.figures))
    console.print(_processors(run.figures))
    console.print(_pairs("Processor time of an answer at saturation, by stage", "us", run.stages))
    console.print(_pairs("Ratios to the floor of this run", "", run.ratios))


def _latencies(figures: Sequence[Figures]) -> Table:
    lead_in = f"those at a fixed rate after a lead-in of {LEAD_IN_SECONDS:.0f} s"
    table = Table(title=f"Client: ms from the moment a review was due to its answer; {lead_in}")
    table.add_column("phase")
    shares = ("p50", "p90", "p99", "p99.9")
    counts = ("connected", "timed out", "failed")
    for name in ("answers/s", "advised", *shares, "own lag p99", *counts):
        table.add_column(name, justify="right")
    for one in figures:
        if not one.answered and not one.timed_out:
            continue
        table.add_row(
            one.name,
            f"{one.rate:,.0f}",
            f"{one.share_advised:.0%}" if one.answered else "",
            *(f"{ms:.2f}" for ms in one.client.values()),
            f"{one.lag_p99:.2f}",
            str(one.connected),
            str(one.timed_out),
            ", ".join(f"{count} {what}" for what, count in one.failed.items()) or "0",
        )
    return table


def _handler(figures: Sequence[Figures]) -> Table:
    table = Table(title="Server: ms in the handler, by its histogram; what reviews came to")
    table.add_column("phase")
    for name in ("mean", "p50", "p90", "p99", "p99.9", "shed"):
        table.add_column(name, justify="right")
    table.add_column("outcomes")
    for one in figures:
        if one.handler is None or not one.handler.outcomes:
            continue
        outcomes = one.handler.outcomes
        table.add_row(
            one.name,
            f"{one.handler.mean:.2f}",
            *(f"{ms:.2f}" for ms in one.handler.quantiles.values()),
            str(outcomes.get("shed", 0)),
            ", ".join(f"{count} {outcome}" for outcome, count in outcomes.items()),
        )
    return table


def _processors(figures: Sequence[Figures]) -> Table:
    table = Table(title="Processors: percent of one; microseconds of the server's for each answer")
    names = list(dict.fromkeys(name for one in figures for name in one.cpu))
    table.add_column("phase")
    for name in (*names, "server waited", "us/answer"):
        table.add_column(name, justify="right")
    for one in figures:
        percents = [one.cpu.get(name, 0.0) for name in names]
        table.add_row(
            one.name,
            *(f"{seconds / one.seconds:.0%}" for seconds in (*percents, one.waited)),
            f"{one.cpu_per_review * _MICROS:,.0f}" if one.answered else "",
        )
    return table


def _pairs(title: str, unit: str, values: Mapping[str, float]) -> Table:
    table = Table(title=title, show_header=False)
    table.add_column("what")
    table.add_column("value", justify="right")
    for name, value in values.items():
        table.add_row(name, f"{value:,.0f} {unit}" if unit else f"{value:.2f}")
    return table
