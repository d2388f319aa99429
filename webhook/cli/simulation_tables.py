"""A simulation on a terminal: one column for each arm, then what was rejected, and why."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
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
    NodeNames,
    PodFate,
    PodOutcome,
    SimulationReport,
    Spread,
    answers,
)
from webhook.cli.tables import plain_table

_MOST_GROUPS = 20
_MOST_REASONS = 10
_MOST_PLACES = 3
_SOURCES = {
    ArrivalSource.RECORDING: ("recorded pod", "recorded pods in order of creation"),
    ArrivalSource.MANIFESTS: ("pod of manifests", "pods of manifests"),
    ArrivalSource.GENERATED: ("pod of a generated day", "pods of a generated day"),
    ArrivalSource.CHANGES: ("pod to place", "pods to place"),
}
_FATES = {
    PodFate.NOWHERE: "no node fits",
    PodFate.REFUSED: "refused",
}
_SUMMED = {PodFate.NOWHERE: "without a node"}


def show_simulation(console: Console, report: SimulationReport) -> None:
    """Print a simulation."""
    names = NodeNames.of(report.cluster.nodes)
    console.print(_headline(report, names), soft_wrap=True)
    for answer in answers(report):
        console.print(f"[bold]{escape(answer)}[/]", soft_wrap=True)
    if names.note:
        console.print(f"[dim]{names.note}[/]")
    _show_outcomes(console, report.arms, names)
    console.print()
    show_figures(console, report)
    for arm in report.arms:
        _show_rejections(console, arm, names)
    _show_reasons(console, report.arms, names)
    console.print("\n[bold]How to read this[/]")
    for note in report.notes:
        console.print(f"- {note}", markup=False, soft_wrap=True)


def show_figures(console: Console, report: SimulationReport) -> None:
    """Print the figures, an arm in each column."""
    console.print(_figures(report))
    console.print(
        "[dim]percent of allocatable over the nodes: standard deviation (and the least that any"
        " placement could have, where that is not 0), and the fullest node[/]"
    )


def write_page(file: Path, report: SimulationReport) -> None:
    """Write a simulation with plots to a file."""
    # It brings a library for plots, which takes longer to import than most simulations.
    from webhook.pages import report_page  # noqa: PLC0415

    file.write_text(report_page(report), encoding="utf-8")


def _headline(report: SimulationReport, names: NodeNames) -> str:
    cluster, arrivals = report.cluster, report.arrivals
    changes = "".join(f"{escape(names.in_text(change))}; " for change in report.changes)
    what = f"[bold]{counted(arrivals.pods, *_SOURCES[arrivals.source])}[/]"
    if arrivals.source is ArrivalSource.CHANGES:
        new = arrivals.pods - arrivals.moved - arrivals.waiting
        what += f" ({arrivals.moved:,} moved, {new:,} new, {arrivals.waiting:,} pending)"
    return (
        f"{changes}{what} on [bold]{counted(len(cluster.nodes), 'node')}[/], recorded"
        f" {cluster.recorded_at}"
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
    times = [arm.node_time for arm in arms if arm.node_time is not None]
    if times:
        yield "node hours", [f"{it.node_hours:,.1f}" for it in times]
        yield "core hours of nodes", [f"{it.core_hours:,.1f}" for it in times]
        yield "pods evicted as nodes went", [f"{it.evictions:,}" for it in times]
        yield "hours that pods waited", [f"{it.waiting_hours:,.1f}" for it in times]
        yield "longest wait", [f"{it.longest_wait:,} s" for it in times]
    if any(arm.crowd.pods for arm in arms):
        yield "most replicas of one owner on one node", [f"{arm.crowd.pods:,}" for arm in arms]
    limits = ", ".join(f"{name} > {limit:g} %" for name, limit in report.cluster.thresholds.items())
    yield f"hot nodes ({limits})", [f"{arm.hot_nodes:,}" for arm in arms]
    for resource in report.cluster.resources:
        for measure in Measure:
            spreads = [_spread(arm, measure, resource) for arm in arms]
            yield f"{resource} {measure}", [_levels(each) for each in spreads]


def _levels(spread: Spread) -> str:
    least = f" (>= {spread.least:g})" if spread.least else ""
    return f"{spread.spread:g}{least}, {spread.max:g}"


def _spread(arm: ArmReport, measure: Measure, resource: str) -> Spread:
    return next(
        spread
        for spread in arm.spreads
        if spread.measure is measure and spread.resource == resource
    )


def _show_rejections(console: Console, arm: ArmReport, names: NodeNames) -> None:
    if not arm.rejections:
        return
    console.print(f"\n[bold]Rejected by the rules of {escape(arm.name)}[/]")
    table = plain_table("policy", "rule", "pods", "nodes per pod", "example")
    for rule in arm.rejections:
        mean = f"{rule.nodes / rule.pods:.1f}"
        example = escape(names.in_text(rule.example))
        table.add_row(escape(rule.policy), escape(rule.rule), f"{rule.pods:,}", mean, example)
    console.print(table)


def _show_reasons(console: Console, arms: Sequence[ArmReport], names: NodeNames) -> None:
    """Print why pods have no node, but what an outcome says of each."""
    listed = [
        (reason, arm.name)
        for arm in arms
        if not arm.outcomes and arm.placement is not ArmPlacement.RECORDED
        for reason in arm.reasons
    ]
    if not listed:
        return
    console.print("\n[bold]Without a node[/]")
    table = plain_table("pods", "of", "arm", "why")
    by_cause: dict[tuple[str, str, int], list[str]] = {}
    for reason, arm in listed:
        of = reason.owner or str(reason.example)
        by_cause.setdefault((of, reason.reason, reason.pods), []).append(arm)
    for (of, why, pods), in_arms in list(by_cause.items())[:_MOST_REASONS]:
        arm = ", ".join(in_arms)
        table.add_row(f"{pods:,}", *map(escape, (of, arm, names.in_text(why))))
    more = sum(pods for _, _, pods in list(by_cause)[_MOST_REASONS:])
    if more:
        table.add_row(f"{more:,}", "others", style="dim")
    console.print(table)


@dataclass(frozen=True, slots=True)
class _Alike:
    """Pods of a what-if of one owner, with the same fate for the same reason."""

    waited: bool
    of: str
    fate: PodFate
    message: str


def _show_outcomes(console: Console, arms: Sequence[ArmReport], names: NodeNames) -> None:
    """Print what becomes of the pods of a what-if: what a change is about before what waits."""
    grouped = [(arm, _alike(arm.outcomes)) for arm in arms if arm.outcomes]
    everywhere = [
        key
        for key, pods in (grouped[0][1].items() if len(grouped) > 1 else ())
        if _FATES.get(key.fate)
        and all(len(groups.get(key, ())) == len(pods) for _, groups in grouped)
    ]
    for arm, groups in grouped:
        counts = Counter(outcome.fate for outcome in arm.outcomes)
        summary = ", ".join(
            f"{count:,} {_SUMMED.get(fate, fate)}" for fate, count in counts.items()
        )
        console.print(f"\n[bold]{escape(arm.name)}[/]: {summary}")
        _show_groups(
            console, {key: pods for key, pods in groups.items() if key not in everywhere}, names
        )
    if everywhere:
        console.print("\n[bold]The same in every arm[/]")
        _show_groups(console, {key: grouped[0][1][key] for key in everywhere}, names)


def _alike(outcomes: Sequence[PodOutcome]) -> Mapping[_Alike, list[PodOutcome]]:
    """Return pods by what they have in common: those that a change is about first."""
    groups: dict[_Alike, list[PodOutcome]] = {}
    for each in sorted(outcomes, key=lambda each: (each.waited, each.fate is PodFate.PLACED)):
        of = each.owner or str(each.pod)
        groups.setdefault(_Alike(each.waited, of, each.fate, each.message), []).append(each)
    return groups


def _show_groups(
    console: Console, groups: Mapping[_Alike, list[PodOutcome]], names: NodeNames
) -> None:
    if not groups:
        return
    table = plain_table("pods", "of", "from", "to", "")
    for key, pods in list(groups.items())[:_MOST_GROUPS]:
        origins = _places((each.moved_from for each in pods), names)
        to = _places((each.node for each in pods), names)
        if key.fate in _FATES:
            to = f"[bold red]{_FATES[key.fate]}[/]"
        evicted = [str(victim.pod) for each in pods for victim in each.victims]
        why = f"evicts {_few(evicted)}" if evicted else names.in_text(key.message)
        if key.waited:
            origins = "[dim]pending[/]"
        table.add_row(f"{len(pods):,}", escape(key.of), origins, to, escape(why))
    more = sum(map(len, list(groups.values())[_MOST_GROUPS:]))
    if more:
        table.add_row(f"{more:,}", "others", style="dim")
    console.print(table)


def _places(nodes: Iterable[str], names: NodeNames) -> str:
    """Return nodes, most pods first, such as `node1 (3), node2`."""
    counts = Counter(names.short(node) for node in nodes if node)
    return escape(
        _few([f"{node} ({count:,})" if count > 1 else node for node, count in counts.most_common()])
    )


def _few(texts: Sequence[str]) -> str:
    more = len(texts) - _MOST_PLACES
    return ", ".join(texts[:_MOST_PLACES]) + (f" and {more:,} more" if more > 0 else "")
