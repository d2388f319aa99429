"""A simulation on a terminal: one column for each arm, then what was rejected, and why."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from engine.model.count_text import counted
from engine.report import (
    ArmPlacement,
    ArmReport,
    ArrivalSource,
    Measure,
    PodFate,
    PodOutcome,
    SimulationReport,
    Spread,
)
from webhook.cli.tables import plain_table

_MOST_PODS = 20
_MOST_REASONS = 5
_SOURCES = {
    ArrivalSource.RECORDING: ("recorded pod", "recorded pods in order of creation"),
    ArrivalSource.MANIFESTS: ("pod of manifests", "pods of manifests"),
    ArrivalSource.GENERATED: ("pod of a generated day", "pods of a generated day"),
    ArrivalSource.CHANGES: ("pod that waits, moves or is new", "pods that wait, move or are new"),
}
_FATES = {
    PodFate.NOWHERE: "no node fits",
    PodFate.REFUSED: "refused",
}


def show_simulation(console: Console, report: SimulationReport) -> None:
    """Print a simulation."""
    console.print(_headline(report), soft_wrap=True)
    show_figures(console, report)
    for arm in report.arms:
        _show_rejections(console, arm)
    _show_reasons(console, report.arms)
    for arm in report.arms:
        _show_outcomes(console, arm)
    console.print("\n[bold]How to read this[/]")
    for note in report.notes:
        console.print(f"- {note}", markup=False, soft_wrap=True)


def show_figures(console: Console, report: SimulationReport) -> None:
    """Print the figures, an arm in each column."""
    console.print(_figures(report))
    console.print(
        "[dim]percent of allocatable over the nodes: standard deviation, and the fullest node[/]"
    )


def write_page(file: Path, report: SimulationReport) -> None:
    """Write a simulation with plots to a file."""
    # It brings a library for plots, which takes longer to import than most simulations.
    from webhook.pages import report_page  # noqa: PLC0415

    file.write_text(report_page(report), encoding="utf-8")


def _headline(report: SimulationReport) -> str:
    cluster, arrivals = report.cluster, report.arrivals
    changes = "".join(f"{escape(change)}; " for change in report.changes)
    return (
        f"{changes}[bold]{counted(arrivals.pods, *_SOURCES[arrivals.source])}[/] on"
        f" [bold]{counted(len(cluster.nodes), 'node')}[/], recorded {cluster.recorded_at}"
    )


def _figures(report: SimulationReport) -> Table:
    table = plain_table("")
    for arm in report.arms:
        is_named = arm.name == arm.placement
        kind = "" if is_named else f" [dim]({arm.placement})[/]"
        table.add_column(f"{escape(arm.name)}{kind}", overflow="fold", justify="right")
    for label, values in _rows(report):
        table.add_row(label, *values)
    return table


def _rows(report: SimulationReport) -> Iterator[tuple[str, list[str]]]:
    arms, base = report.arms, report.arms[0].name
    yield "landed", [f"{arm.landed:,}" for arm in arms]
    yield "no node fits", [f"{arm.unplaced:,}" for arm in arms]
    if any(arm.refused for arm in arms):
        yield "refused", [f"{arm.refused:,}" for arm in arms]
    if len(arms) > 1:
        yield f"other node than {escape(base)}", ["", *(f"{arm.moves:,}" for arm in arms[1:])]
    if any(arm.bindings for arm in arms):
        yield (
            "bindings moved, kept, denied",
            [
                f"{it.moved:,}, {it.kept:,}, {it.denied:,}" if (it := arm.bindings) else ""
                for arm in arms
            ],
        )
    yield "nodes used", [f"{arm.nodes_used:,}" for arm in arms]
    if any(arm.crowd.pods for arm in arms):
        yield "most replicas of one owner on one node", [f"{arm.crowd.pods:,}" for arm in arms]
    limits = ", ".join(f"{name} > {limit:g} %" for name, limit in report.cluster.thresholds.items())
    yield f"hot nodes ({limits})", [f"{arm.hot_nodes:,}" for arm in arms]
    for resource in report.cluster.resources:
        for measure in Measure:
            spreads = [_spread(arm, measure, resource) for arm in arms]
            yield f"{resource} {measure}", [f"{it.spread:g}, {it.max:g}" for it in spreads]


def _spread(arm: ArmReport, measure: Measure, resource: str) -> Spread:
    return next(
        spread
        for spread in arm.spreads
        if spread.measure is measure and spread.resource == resource
    )


def _show_rejections(console: Console, arm: ArmReport) -> None:
    if not arm.rejections:
        return
    console.print(f"\n[bold]Rejected by the rules of {escape(arm.name)}[/]")
    table = plain_table("policy", "rule", "pods", "nodes per pod", "example")
    for rule in arm.rejections:
        mean = f"{rule.nodes / rule.pods:.1f}"
        table.add_row(
            escape(rule.policy), escape(rule.rule), f"{rule.pods:,}", mean, escape(rule.example)
        )
    console.print(table)


def _show_reasons(console: Console, arms: Sequence[ArmReport]) -> None:
    """Print why pods have no node, but what an outcome says of each."""
    shown = [
        arm
        for arm in arms
        if arm.reasons and not arm.outcomes and arm.placement is not ArmPlacement.RECORDED
    ]
    if not shown:
        return
    console.print("\n[bold]Without a node[/]")
    table = plain_table("arm", "pods", "why", "example")
    for arm in shown:
        for number, reason in enumerate(arm.reasons[:_MOST_REASONS]):
            name = "" if number else escape(arm.name)
            pods, example = f"{reason.pods:,}", escape(str(reason.example))
            table.add_row(name, pods, escape(reason.reason), example)
    console.print(table)


def _show_outcomes(console: Console, arm: ArmReport) -> None:
    """Print what becomes of each pod of a what-if, those without a node first."""
    if not arm.outcomes:
        return
    counts = Counter(outcome.fate for outcome in arm.outcomes)
    summary = ", ".join(f"{count:,} {fate}" for fate, count in counts.items())
    console.print(f"\n[bold]{escape(arm.name)}[/]: {summary}")
    table = plain_table("pod", "from", "to", "")
    alike = _alike(sorted(arm.outcomes, key=lambda outcome: outcome.fate is PodFate.PLACED))
    for outcome, pods in alike[:_MOST_PODS]:
        to = escape(outcome.node) if outcome.node else f"[bold red]{_FATES[outcome.fate]}[/]"
        evicted = ", ".join(str(victim.pod) for victim in outcome.victims)
        what = f"evicts {evicted}" if evicted else outcome.message
        name = f"{outcome.pod} and {pods - 1:,} more" if pods > 1 else str(outcome.pod)
        table.add_row(escape(name), escape(outcome.moved_from), to, escape(what))
    more = sum(pods for _, pods in alike[_MOST_PODS:])
    if more:
        table.add_row(f"... and {more:,} more", style="dim")
    console.print(table)


def _alike(outcomes: Sequence[PodOutcome]) -> list[tuple[PodOutcome, int]]:
    """Return outcomes, with the number of pods that have no node for the same reason."""
    counts = Counter[tuple[PodFate, str, str]]()
    first: dict[tuple[PodFate, str, str], PodOutcome] = {}
    for outcome in outcomes:
        what = outcome.node and str(outcome.pod)  # one that has a node is alone
        key = outcome.fate, outcome.message, what
        counts[key] += 1
        first.setdefault(key, outcome)
    return [(outcome, counts[key]) for key, outcome in first.items()]
