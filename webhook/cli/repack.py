"""`stowplan simulate --repack`: which running pods would have to move, and what fits then."""

from __future__ import annotations

import msgspec
from rich.console import Console
from rich.markup import escape
from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn
from rich.table import Table

from engine.errors import StowplanError, counted
from engine.report import NodeNames, RepackAim, RepackGoal, RepackReport, RepackStep
from engine.simulation import RecordedCluster, can_solve, repack
from webhook.cli import console
from webhook.cli.cluster_loading import ClusterPaths, load_cluster, tell_missing
from webhook.cli.console import plain_table
from webhook.cli.exit_codes import Exit
from webhook.cli.pods import PodCollector

_MOST_STEPS = 100
_MOST_PODS = 10
_AIMS = {
    RepackAim.KEPT: "running pods of priority {} that keep a node",
    RepackAim.PLACED: "waiting pods of priority {} that get a node",
    RepackAim.FREE: "free nodes",
    RepackAim.LEAVING: "running pods that leave their node",
}


def repack_cluster(
    cluster: ClusterPaths, *, seconds: float, free_nodes: int, seed: int, json: bool
) -> int:
    """Plan moves on a recorded cluster, and print them."""
    if not can_solve():
        raise StowplanError("`--repack` needs OR-Tools\nhint: pip install 'stowplan[solver]'")
    notes, output, collector = console.errors(), console.output(), PodCollector()
    recording = load_cluster(cluster, notes, observers=[collector])
    tell_missing(recording, notes)
    pods = list(collector.pods.values())
    recorded = RecordedCluster.of(recording.state.view(), pods, recording.recorded_at)
    columns = (
        SpinnerColumn(),
        TextColumn(f"packing, at most {seconds:g} s"),
        TimeElapsedColumn(),
    )
    with Progress(*columns, console=notes, transient=True, disable=not notes.is_terminal) as bar:
        bar.add_task("", total=None)
        report = repack(recorded, seconds=seconds, free_nodes=free_nodes, seed=seed)
    if json:
        output.print_json(msgspec.json.encode(report).decode())
    else:
        show_repack(output, report)
    return Exit.OK


def show_repack(console: Console, report: RepackReport) -> None:
    """Print a plan."""
    names = NodeNames.of(report.nodes)
    console.print(
        f"[bold]{counted(report.waiting, 'waiting pod')}[/] on"
        f" [bold]{counted(len(report.nodes), 'node')}[/], recorded {report.recorded_at}",
        soft_wrap=True,
    )
    for answer in report.answers:
        console.print(f"[bold]{escape(answer)}[/]", soft_wrap=True)
    if names.note:
        console.print(f"[dim]{names.note}[/]")
    if report.steps:
        console.print("\n[bold]Steps in order[/]")
        console.print(_steps(report, names))
    if report.free_nodes:
        console.print(f"\n[bold]Free[/]: {_few([names.short(it) for it in report.free_nodes])}")
    if report.unplaced:
        console.print(f"\n[bold]Still waiting[/]: {_few([str(it) for it in report.unplaced])}")
    console.print()
    console.print(_goals(report))
    if report.staying:
        console.print("\n[bold]Running pods that are not moved[/]")
        table = plain_table("pods", "why")
        for why, pods in report.staying.items():
            table.add_row(f"{pods:,}", why)
        console.print(table)
    console.print("\n[bold]How to read this[/]")
    for note in report.notes:
        console.print(f"- {note}", markup=False, soft_wrap=True)


def _steps(report: RepackReport, names: NodeNames) -> Table:
    table = plain_table("", "pod", "priority", "from", "to")
    for number, step in enumerate(report.steps[:_MOST_STEPS], 1):
        source = escape(names.short(step.source)) if step.source else "[dim]waits[/]"
        target = escape(names.short(step.target)) if step.target else _pause(step, report)
        table.add_row(str(number), escape(str(step.pod)), f"{step.priority:,}", source, target)
    more = len(report.steps) - _MOST_STEPS
    if more > 0:
        table.add_row("", f"{more:,} more", style="dim")
    return table


def _pause(step: RepackStep, report: RepackReport) -> str:
    """Return why a pod that leaves goes nowhere at once."""
    comes_back = any(each.pod == step.pod and each.target for each in report.steps)
    return "[dim]a later step[/]" if comes_back else "[bold red]waits[/]"


def _goals(report: RepackReport) -> Table:
    table = plain_table("goals in order", "found", "bound")
    for goal in report.goals:
        table.add_row(_AIMS[goal.aim].format(goal.priority), f"{goal.found:,}", _bound(goal))
    return table


def _bound(goal: RepackGoal) -> str:
    if goal.bound is None:
        return "not known"
    if goal.bound == goal.found:
        return "best"
    return f"{'>=' if goal.aim is RepackAim.LEAVING else '<='} {goal.bound:,}"


def _few(texts: list[str]) -> str:
    more = len(texts) - _MOST_PODS
    return escape(", ".join(texts[:_MOST_PODS]) + (f" and {more:,} more" if more > 0 else ""))
