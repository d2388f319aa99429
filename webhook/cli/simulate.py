"""`stowplan simulate`: what policies would have done to a recorded cluster, and what-ifs."""

from __future__ import annotations

import gc
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import msgspec
from cyclopts import Parameter
from cyclopts.types import NonNegativeInt
from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

from engine.builtin_admission import BuiltinAdmission
from engine.errors import StowplanError, counted
from engine.model.policy_resource import PlacementAt
from engine.policy import PolicySet
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
from engine.simulation import (
    AddNodes,
    Arm,
    Arrivals,
    Change,
    DrainNode,
    RecordedCluster,
    ScaleDeployment,
    Simulation,
    daemon_nodes,
    generated_arrivals,
    manifest_arrivals,
    recorded_arrivals,
    simulate,
    what_if,
)
from webhook.cli import console
from webhook.cli.cluster_loading import ClusterPaths, load_cluster, tell_missing
from webhook.cli.console import plain_table, require_place_for
from webhook.cli.exit_codes import Exit
from webhook.cli.pods import PodCollector, read_pods
from webhook.cli.policy_loading import load_policy_set

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


_PLACEMENTS = {str(each): each for each in (ArmPlacement.ADVICE, ArmPlacement.BINDING)}
_FORM = f"[NAME=]PATH[,{'|,'.join(_PLACEMENTS)}]"
_NAMESPACE = "default"
_MOST_DIGITS = 5  # of a number of nodes or pods


def simulate_command(
    *,
    cluster: ClusterPaths,
    arm: list[str] | None = None,
    arrivals: str = "",
    add_nodes: list[str] | None = None,
    drain: list[str] | None = None,
    scale: list[str] | None = None,
    autoscale: Annotated[bool, Parameter(negative="")] = False,
    seed: NonNegativeInt = 1,
    html: Path | None = None,
    json: Annotated[bool, Parameter(name="--json", negative="")] = False,
) -> int:
    """Simulate arrivals on a recorded cluster."""
    if html is not None:
        require_place_for(html)
    if autoscale and arrivals != ArrivalSource.GENERATED:
        raise StowplanError("--autoscale: it needs `--arrivals generated`, a day of pods")
    notes = console.errors()
    arms = [_arm(text) for text in arm or ()]
    changes = _changes(add_nodes or (), drain or (), scale or ())
    collector = PodCollector()
    recording = load_cluster(cluster, notes, observers=[collector])
    tell_missing(recording, notes)
    pods = list(collector.pods.values())
    recorded = RecordedCluster.of(recording.state.view(), pods, recording.recorded_at)
    arriving = _arrivals(arrivals, recorded, seed, is_changed=bool(changes))
    simulation = Simulation(
        scenario=what_if(recorded, changes, arriving), arms=arms, seed=seed, autoscale=autoscale
    )
    gc.freeze()  # the recording stays: the collector of garbage need not look at it again
    with _progress(notes, simulation.steps) as advance:
        report = simulate(simulation, progress=advance)
    output = console.output()
    if json:
        output.print_json(msgspec.json.encode(report).decode())
    else:
        show_simulation(output, report)
    if html is not None:
        write_page(html, report)
        notes.print(f"report: {html.resolve().as_uri()}", markup=False, soft_wrap=True)
    return Exit.OK


def _arm(text: str) -> Arm:
    """Return the arm that `[NAME=]PATH[,advice|,binding]` stands for."""
    source, comma, ending = text.rpartition(",")
    if not comma or ending not in _PLACEMENTS:
        source, ending = text, ""
    name, equals, path = source.partition("=")
    if not equals:
        name, path = Path(source).stem, source
    if not (name and path):
        raise StowplanError(f"--arm: expected `{_FORM}`, not `{text}`")
    if comma and not ending and text.rpartition(",")[2].isalpha():
        known = ", ".join(f"`{each}`" for each in _PLACEMENTS)
        raise StowplanError(f"--arm: `{text.rpartition(',')[2]}` is none of {known}")
    policies = load_policy_set([Path(path)])
    placement = _PLACEMENTS.get(ending) or _placement_of(policies)
    return Arm(name=name, placement=placement, policies=policies)


def _placement_of(policies: PolicySet) -> ArmPlacement:
    at_binding = any(policy.placement.at is PlacementAt.BINDING for policy in policies)
    return ArmPlacement.BINDING if at_binding else ArmPlacement.ADVICE


def _changes(add_nodes: Sequence[str], drain: Sequence[str], scale: Sequence[str]) -> list[Change]:
    """Return the changes of a what-if: nodes come before others go, then Deployments grow."""
    changes: list[Change] = []
    for text in add_nodes:
        count, _, like = text.partition("=")
        changes.append(AddNodes(_count("--add-nodes", count, text, "`N` or `N=NODE`"), like))
    changes += map(DrainNode, drain)
    for text in scale:
        deployment, _, replicas = text.rpartition("=")
        namespace, slash, name = deployment.partition("/")
        form = "`NAMESPACE/DEPLOYMENT=N`"
        if not (namespace and slash and name):
            raise StowplanError(f"--scale: expected {form}, not `{text}`")
        changes.append(ScaleDeployment(namespace, name, _count("--scale", replicas, text, form)))
    return changes


def _count(flag: str, digits: str, text: str, form: str) -> int:
    if not (digits.isascii() and digits.isdigit()):
        raise StowplanError(f"{flag}: expected {form}, not `{text}`")
    if len(digits) > _MOST_DIGITS:
        raise StowplanError(f"{flag}: at most {'9' * _MOST_DIGITS}, not `{text}`")
    return int(digits)


def _arrivals(
    text: str, cluster: RecordedCluster, seed: int, *, is_changed: bool
) -> Arrivals | None:
    """Return the arrivals that `--arrivals` names; None for those that changes concern."""
    if not text and is_changed:
        return None
    if text in {"", ArrivalSource.RECORDING}:
        return recorded_arrivals(cluster.pods)
    if text == ArrivalSource.GENERATED:
        return generated_arrivals(cluster.pods, seed)
    priorities = {each.pod.priority_class_name: each.pod.priority for each in cluster.pods}
    pods = read_pods(
        Path(text),
        namespace=_NAMESPACE,
        admission=BuiltinAdmission(cluster.extras, priorities),
        nodes_for=lambda pod: daemon_nodes(pod, cluster.empty_state().view(), cluster.now),
    )
    return manifest_arrivals(pods)


@contextmanager
def _progress(notes: Console, total: int) -> Iterator[Callable[[int], None]]:
    columns = (
        TextColumn("simulating"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("pods"),
        TimeElapsedColumn(),
    )
    with Progress(*columns, console=notes, transient=True, disable=not notes.is_terminal) as bar:
        task = bar.add_task("", total=total)
        yield lambda pods: bar.advance(task, pods)
