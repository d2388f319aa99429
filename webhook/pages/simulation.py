"""A simulation: the answer, what becomes of pods, and the figures of all arms side by side."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import chain
from typing import Final, TypeAlias

from engine.errors import counted
from engine.report import (
    ArmPlacement,
    ArmReport,
    ArrivalSource,
    Measure,
    NodeLevels,
    NodeNames,
    PodFate,
    PodOutcome,
    SimulationReport,
    Spread,
    answers,
    arms_of_policies,
    recorded_hot_nodes,
    remarks,
    spread_of,
)
from webhook.pages import ui
from webhook.pages.document import page_of, self_contained
from webhook.pages.figures import Bars, Bins, end_of, grouped_bars, heat_map, lines, stacked_rows

_MOST_FATES: Final = 20  # rows
_MOST_REASONS: Final = 10
_MOST_RULES: Final = 20  # that are drawn
_MOST_PLACES: Final = 3
_HOUR: Final = 3_600
_SOURCES: Final = {
    ArrivalSource.RECORDING: ("recorded pod", "recorded pods in order of creation"),
    ArrivalSource.MANIFESTS: ("pod of manifests", "pods of manifests"),
    ArrivalSource.GENERATED: ("pod of a generated day", "pods of a generated day"),
    ArrivalSource.CHANGES: ("pod to place", "pods to place"),
}
_FATES: Final = {PodFate.NOWHERE: "no node fits", PodFate.REFUSED: "refused"}


def report_page(report: SimulationReport) -> str:
    """Return a whole HTML document on a simulation; it loads nothing."""
    title = "What if" if report.changes else "Simulation"
    return self_contained(page_of("", title, [*simulation_blocks(report)]))


def simulation_blocks(report: SimulationReport) -> Iterator[ui.Block]:
    """Yield a simulation."""
    names = NodeNames.of(report.cluster.nodes)
    for answer in (*_fates_in_short(report), *answers(report)):
        yield ui.Paragraph(ui.strong(names.in_text(answer)), "answer")
    yield ui.Facts([*_tiles(report)])
    for remark in remarks(report):
        yield ui.Paragraph(names.in_text(remark))
    yield ui.Paragraph(_headline(report))
    if names.note:
        yield ui.Paragraph(names.note, "quiet")
    yield _outcomes(report, names)
    yield ui.Beside([*_heat_maps(report)])
    yield ui.Beside([*_over_time(report)])
    yield figures_table(report)
    rejected = chain.from_iterable(
        _rejected(place, arm, names) for place, arm in enumerate(report.arms)
    )
    yield ui.Fold("What each rule rejected", [*rejected], in_terminal=True)
    yield ui.Fold("Pods without a node", [_reasons(report.arms, names)], in_terminal=True)
    crowds = [
        f"{arm.name}: {arm.crowd.pods:,}, as {arm.crowd.example} on {names.short(arm.crowd.node)}"
        for arm in report.arms
        if arm.crowd.example
    ]
    yield ui.Fold("Most replicas of one owner on one node", [ui.Listing(crowds)])
    yield ui.Fold("All levels: mean, median, 90th percentile", [_levels_table(report)])
    yield ui.Fold("Distributions", [ui.Beside([*_distributions(report)])])
    yield ui.Fold("Node by node", [_by_node(report, names)])
    yield ui.Fold("How to read this", [ui.Listing(report.notes)], in_terminal=True)


def _fates_in_short(report: SimulationReport) -> Iterator[str]:
    arms_of: dict[str, list[str]] = {}
    for arm in report.arms:
        if arm.outcomes and len(arm.outcomes) == report.arrivals.pods:  # each is told of
            got: dict[str, list[bool]] = {"new": [], "moved": [], "pending": []}
            for each in arm.outcomes:
                kind = "pending" if each.waited else "moved" if each.moved_from else "new"
                got[kind].append(bool(each.node))
            found = [f"{sum(all_):,} of {len(all_):,} {kind}" for kind, all_ in got.items() if all_]
            arms_of.setdefault(" and ".join(found), []).append(arm.name)
    changes = ", ".join(report.changes)
    changed = f"{changes[:1].upper()}{changes[1:]}"
    get = "pod gets" if report.arrivals.pods == 1 else "pods get"
    done = (f"{text} {get} a node with {' and '.join(arms)}" for text, arms in arms_of.items())
    if changes:
        yield f"{changed}: {'; '.join(done)}." if arms_of else f"{changed}."
    elif arms_of_policies(report):
        yield from (f"{each}." for each in done)


def _headline(report: SimulationReport) -> ui.Inline:
    cluster, arrivals = report.cluster, report.arrivals
    kinds = ""
    if arrivals.source is ArrivalSource.CHANGES:
        new = arrivals.pods - arrivals.moved - arrivals.waiting
        kinds = f" ({arrivals.moved:,} moved, {new:,} new, {arrivals.waiting:,} pending)"
    return (
        ui.strong(counted(arrivals.pods, *_SOURCES[arrivals.source])),
        f"{kinds} on ",
        ui.strong(counted(len(cluster.nodes), "node")),
        f", recorded {cluster.recorded_at}",
    )


def _tiles(report: SimulationReport) -> Iterator[tuple[str, ui.Inline]]:
    """Yield what matters most: of the first arm, and of those that are compared with it."""
    if not report.arms:
        return
    first, arms = report.arms[0], arms_of_policies(report)
    recorded = recorded_hot_nodes(report)
    as_recorded = "" if recorded is None else f" ({recorded:,} as recorded)"
    shown: list[tuple[str, Callable[[ArmReport], str], str]] = [
        (f"Hot nodes{as_recorded}", lambda arm: f"{arm.hot_nodes:,}", ""),
        *(
            (f"Fullest node, {resource} {measure}", partial(_fullest, measure, resource), " %")
            for measure, resource in ((Measure.LOAD, "cpu"), (Measure.LIMITS, "cpu"))
            if spread_of(first, measure, resource) is not None
        ),
        ("Pods without a node", lambda arm: f"{arm.unplaced + arm.refused:,}", ""),
        ("Most replicas on one node", lambda arm: f"{arm.crowd.pods:,}", ""),
    ]
    for title, value, unit in shown:
        before = value(first)
        after = [(_change(before, value(arm), unit), _named(arm, arms)) for arm in arms]
        yield title, ui.joined(after, "\n") if arms else f"{before}{unit}"
    if arms:
        moves = ((f"{arm.moves:,}", _named(arm, arms)) for arm in arms)
        yield "Pods elsewhere", ui.joined(moves, "\n")


def _change(before: str, after: str, unit: str) -> ui.Inline:
    return f"{after}{unit}" if before == after else (before, " ", ui.ARROW, f" {after}{unit}")


def _named(arm: ArmReport, arms: Sequence[ArmReport]) -> ui.Inline:
    return ui.quiet(f" {arm.name}") if len(arms) > 1 else ""


def _fullest(measure: Measure, resource: str, arm: ArmReport) -> str:
    spread = spread_of(arm, measure, resource)
    return "unknown" if spread is None else f"{spread.max:.0f}"


@dataclass(frozen=True, slots=True)
class _Fate:
    """Pods of a what-if that are alike: of one owner, with one fate for one reason."""

    waited: bool
    of: str  # their owner, or the one pod
    fate: PodFate
    pods: int
    origins: str
    to: str  # nodes with their numbers of pods, most pods first
    why: str


def _outcomes(report: SimulationReport, names: NodeNames) -> ui.Table:
    """Return what becomes of the pods of a what-if: what a change is about before what waits."""
    arms_of: dict[_Fate, list[str]] = {}
    for arm in report.arms:
        for fate in _fates(arm.outcomes, names):
            arms_of.setdefault(fate, []).append(arm.name)
    place = {fate.of: number for number, fate in reversed([*enumerate(arms_of)])}
    return ui.Table(
        title=ui.strong("What becomes of the pods"),
        columns=(*_PODS, *ui.columns("from", "to"), _WHY),
        rows=[
            (
                f"{fate.pods:,}",
                fate.of,
                _arms(arms_of[fate], report.arms),
                ui.quiet("pending") if fate.waited else fate.origins,
                ui.bad(_FATES[fate.fate]) if fate.fate in _FATES else fate.to,
                fate.why,
            )
            for fate in sorted(arms_of, key=lambda fate: (fate.waited, place[fate.of]))
        ],
        most=_MOST_FATES,
    )


def _fates(outcomes: Sequence[PodOutcome], names: NodeNames) -> Iterator[_Fate]:
    """Yield what becomes of the pods of one arm: those that get no node first."""
    groups: dict[tuple[bool, str, PodFate, str], list[PodOutcome]] = {}
    for each in sorted(outcomes, key=lambda each: each.fate is PodFate.PLACED):
        of = each.owner or str(each.pod)
        groups.setdefault((each.waited, of, each.fate, each.message), []).append(each)
    for (waited, of, fate, message), pods in groups.items():
        evicted: dict[str, list[str]] = {}
        for victim in chain.from_iterable(each.victims for each in pods):
            what = f"{victim.pod} from {names.short(victim.node)}"
            evicted.setdefault(victim.reason, []).append(what)
        victims = (f"evicts {', '.join(all_)}: {reason}" for reason, all_ in evicted.items())
        yield _Fate(
            waited=waited,
            of=of,
            fate=fate,
            pods=len(pods),
            origins=_places(names.short(each.moved_from) for each in pods),
            to=_places(names.short(each.node) for each in pods),
            why="\n".join(filter(None, (names.in_text(message), *victims))),
        )


def _places(nodes: Iterable[str]) -> str:
    """Return nodes, most pods first, such as `node1 (3), node2`."""
    counts = Counter(node for node in nodes if node)
    found = [f"{node} ({n:,})" if n > 1 else node for node, n in counts.most_common(_MOST_PLACES)]
    more = len(counts) - _MOST_PLACES
    return ", ".join(found) + (f" and {more:,} more" if more > 0 else "")


def figures_table(report: SimulationReport) -> ui.Table:
    """Return the figures, an arm in each column."""
    titles = []
    for arm in report.arms:
        kind = "" if arm.name == arm.placement else f" ({arm.placement})"
        titles.append(ui.Column((arm.name, ui.quiet(kind)), ui.Kind.FIGURE))
    note = (
        "percent of allocatable over the nodes: standard deviation, and the fullest node; >="
        " is the least that any placement could have, where that is not 0"
    )
    if any(arm.bindings for arm in report.arms):
        note += (
            "; bindings moved are those that policies gave another node than the scheduler took;"
            " after each, the scheduler itself may take other nodes for later pods, which count as"
            f" other node than {report.arms[0].name} too"
        )
    return ui.Table(
        title=ui.strong("Figures of each arm"),
        columns=(ui.Column(""), *titles),
        rows=[*_figures(report)],
        note=note,
    )


def _figures(report: SimulationReport) -> Iterator[ui.Row]:
    arms = report.arms
    yield "landed", *(f"{arm.landed:,}" for arm in arms)
    yield "no node fits", *(f"{arm.unplaced:,}" for arm in arms)
    if any(arm.refused for arm in arms):
        yield "refused", *(f"{arm.refused:,}" for arm in arms)
    if len(arms) > 1:
        yield f"other node than {arms[0].name}", "", *(f"{arm.moves:,}" for arm in arms[1:])
    bindings = [arm.bindings for arm in arms]
    if any(bindings):
        told = (f"{it.moved:,}, {it.kept:,}, {it.denied:,}" if it else "" for it in bindings)
        yield "bindings moved, kept, denied", *told
    yield "nodes used", *(_with_least(arm.nodes_used, arm.least_nodes_used) for arm in arms)
    times = [arm.node_time for arm in arms if arm.node_time is not None]
    if times:
        yield "node hours", *(f"{it.node_hours:,.1f}" for it in times)
        yield "core hours of nodes", *(f"{it.core_hours:,.1f}" for it in times)
        yield "pods evicted as nodes went", *(f"{it.evictions:,}" for it in times)
        yield "hours that pods waited", *(f"{it.waiting_hours:,.1f}" for it in times)
        yield "longest wait", *(f"{it.longest_wait:,} s" for it in times)
    if any(arm.crowd.pods for arm in arms):
        yield "most replicas of one owner on one node", *(f"{arm.crowd.pods:,}" for arm in arms)
    limits = ", ".join(f"{name} > {limit:g} %" for name, limit in report.cluster.thresholds.items())
    yield (
        f"hot nodes ({limits})",
        *(_with_least(arm.hot_nodes, arm.least_hot_nodes) for arm in arms),
    )
    for measure, resource in _keys(each for arm in arms for each in arm.spreads):
        spreads = (spread_of(arm, measure, resource) for arm in arms)
        yield f"{resource} {measure}, %", *map(_spread, spreads)


def _with_least(nodes: int, least: int | None) -> str:
    return f"{nodes:,} (>= {least:,})" if least else f"{nodes:,}"


def _spread(spread: Spread | None) -> str:
    if spread is None:
        return "unknown"
    least = f" (>= {ui.points(spread.least)})" if spread.least else ""
    return f"{ui.points(spread.spread)}{least}, {ui.points(spread.max)}"


def _levels_table(report: SimulationReport) -> ui.Table:
    """Return all figures of the levels of nodes; what differs from the first arm, with a sign."""
    rows: list[ui.Row] = []
    for measure, resource in _keys(each for arm in report.arms for each in arm.spreads):
        first = spread_of(report.arms[0], measure, resource)
        found = [(arm, spread_of(arm, measure, resource)) for arm in report.arms]
        for place, (arm, it) in enumerate((arm, it) for arm, it in found if it is not None):
            base = None if arm is report.arms[0] else first
            rows.append(
                (
                    None if place else f"{resource} {measure}",
                    arm.name,
                    ui.points(it.mean),
                    _compared(it.spread, None if base is None else base.spread),
                    ui.points(it.least),
                    ui.points(it.p50),
                    ui.points(it.p90),
                    _compared(it.max, None if base is None else base.max),
                )
            )
    figures = ("Mean", "Spread", "Least spread", "Median", "90th percentile", "Maximum")
    return ui.Table(
        title="Levels of nodes in percent of what they offer; with a sign: against the first arm",
        columns=(ui.name_column("Level"), ui.name_column("Arm"), *map(ui.number, figures)),
        rows=rows,
    )


def _compared(value: float, first: float | None) -> ui.Inline:
    before = "" if first is None else f"{ui.points(value - first, signed=True)} "
    return (ui.quiet(before), ui.points(value))


def _rejected(place: int, arm: ArmReport, names: NodeNames) -> Iterator[ui.Block]:
    if found := arm.rejections[:_MOST_RULES]:
        rules = [f"{each.policy}: {each.rule}" for each in found]
        pods = [counted(each.pods, "pod") for each in found]
        bars = Bars("nodes", [each.nodes for each in found], pods)
        figure = stacked_rows(rules, [bars], x="rejected nodes, added up over pods")
        caption = f"{arm.name}: nodes that each rule was the first to reject"
        yield ui.Plot(f"rejections-{place}", caption, figure)
    yield ui.Table(
        title=ui.strong(f"With {arm.name}"),
        columns=(
            ui.Column("policy"),
            ui.name_column("rule"),
            ui.number("pods"),
            ui.number("nodes per pod"),
            ui.Column("example", ui.Kind.PROSE),
        ),
        rows=[
            (
                rule.policy,
                rule.rule,
                f"{rule.pods:,}",
                f"{rule.nodes / rule.pods:.1f}",
                names.in_text(rule.example),
            )
            for rule in arm.rejections
        ],
    )


def _reasons(arms: Sequence[ArmReport], names: NodeNames) -> ui.Table:
    """Return why pods have no node, but what an outcome says of each."""
    arms_of: dict[tuple[str, str, int], list[str]] = {}
    for arm in arms:
        if not arm.outcomes and arm.placement is not ArmPlacement.RECORDED:
            for each in arm.reasons:
                cause = each.owner or str(each.example), each.reason, each.pods
                arms_of.setdefault(cause, []).append(arm.name)
    placed = [arm for arm in arms if arm.placement is not ArmPlacement.RECORDED]
    return ui.Table(
        columns=(*_PODS, _WHY),
        rows=[
            (f"{pods:,}", of, _arms(in_arms, placed), names.in_text(why))
            for (of, why, pods), in_arms in arms_of.items()
        ],
        most=_MOST_REASONS,
    )


def _arms(names: Sequence[str], arms: Sequence[ArmReport]) -> str:
    return "all" if len(names) == len(arms) > 1 else ", ".join(names)


_PODS: Final = (ui.number("pods"), ui.name_column("of"), ui.Column("arm"))
_WHY: Final = ui.Column("why", ui.Kind.PROSE)
_Key: TypeAlias = tuple[Measure, str]


def _keys(measured: Iterable[Spread | NodeLevels]) -> Sequence[_Key]:
    """Return measure and resource of each, in the order in which arms list them."""
    return tuple(dict.fromkeys((each.measure, each.resource) for each in measured))


def _level_keys(report: SimulationReport) -> Sequence[_Key]:
    return _keys(each for arm in report.arms for each in arm.levels)


def _levels(arm: ArmReport, measure: Measure, resource: str) -> Sequence[float]:
    found = (each for each in arm.levels if (each.measure, each.resource) == (measure, resource))
    return next((each.percent for each in found), ())


def _threshold(report: SimulationReport, measure: Measure, resource: str) -> float | None:
    return report.cluster.thresholds.get(resource) if measure is Measure.LOAD else None


def _end(report: SimulationReport, measure: Measure, resource: str) -> float:
    """Return where the scale of a measure ends, the same for all arms."""
    levels = chain.from_iterable(_levels(arm, measure, resource) for arm in report.arms)
    threshold = _threshold(report, measure, resource)
    return end_of(levels, () if threshold is None else (threshold,))


def _most_telling(report: SimulationReport) -> _Key | None:
    """Return what nodes are shown by: load if it is known, else what comes first."""
    keys = _level_keys(report)
    return next((key for key in keys if key[0] is Measure.LOAD), keys[0] if keys else None)


def _heat_maps(report: SimulationReport) -> Iterator[ui.Plot]:
    """Yield the nodes of each arm by what matters most."""
    measured, cluster = _most_telling(report), report.cluster
    for place, arm in enumerate(report.arms if measured else ()):
        measure, resource = measured or (Measure.LOAD, "")
        if levels := _levels(arm, measure, resource):
            threshold, end = _threshold(report, measure, resource), _end(report, measure, resource)
            figure = heat_map(cluster.nodes, cluster.zones, levels, threshold, end=end)
            caption = f"{arm.name}: {resource} {measure} of each node"
            yield ui.Plot(f"heat-map-{place}", caption, figure)


def _by_node(report: SimulationReport, names: NodeNames) -> ui.Table:
    """Return a row for each node, as the heat maps have it: name, zone, a percentage per arm."""
    measured, cluster = _most_telling(report), report.cluster
    measure, resource = measured or (Measure.LOAD, "")
    unknown = (None,) * len(cluster.nodes)
    levels = [_levels(arm, measure, resource) or unknown for arm in report.arms]
    rows: list[ui.Row] = [
        (ui.Span(names.short(node), title=node), zone, *map(ui.points, of_arms))
        for node, zone, *of_arms in zip(cluster.nodes, cluster.zones, *levels, strict=True)
    ]
    return ui.Table(
        title=f"{resource} {measure} of each node in percent, arm by arm",
        columns=(
            ui.name_column("Node"),
            ui.Column("Zone"),
            *(ui.number(arm.name) for arm in report.arms),
        ),
        rows=rows if measured else (),
    )


def _distributions(report: SimulationReport) -> Iterator[ui.Plot]:
    for place, (measure, resource) in enumerate(_level_keys(report)):
        bins = Bins.up_to(_end(report, measure, resource))
        counts = {
            arm.name: bins.counts(levels)
            for arm in report.arms
            if (levels := _levels(arm, measure, resource))
        }
        x = f"{resource} {measure}, % of allocatable, from"
        figure = grouped_bars(bins.labels, counts, x=x, y="nodes")
        caption = f"Number of nodes by {resource} {measure}, arm by arm"
        yield ui.Plot(f"distribution-{place}", caption, figure)


def _over_time(report: SimulationReport) -> Iterator[ui.Plot]:
    sampled = [arm for arm in report.arms if arm.samples]
    for key, title in (("hot_nodes", "Hot nodes"), ("waiting", "Pods without a node")):
        if sampled:
            figure = lines(
                {
                    arm.name: (
                        [sample.seconds / _HOUR for sample in arm.samples],
                        [getattr(sample, key) for sample in arm.samples],
                    )
                    for arm in sampled
                },
                x="hours",
                y=title.lower(),
            )
            yield ui.Plot(f"time-{key}", f"{title} over time, arm by arm", figure)
