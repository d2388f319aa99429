"""The report of a simulation: one HTML file with all that it needs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import chain, islice
from typing import Final

from engine.errors import counted
from engine.report import (
    ArmReport,
    Measure,
    NodeNames,
    PodFate,
    PodOutcome,
    SimulationReport,
    Spread,
    Victim,
    answers,
    arms_of_policies,
    spread_of,
)
from webhook.pages.document import Figure, Page, render, self_contained
from webhook.pages.figures import Bars, Bins, end_of, grouped_bars, lines, stacked_rows
from webhook.pages.nodes import heat_map

_RULES: Final = 20
_FATES: Final = 200  # groups of pods
_NODES: Final = 5  # of a group
_HOUR: Final = 3_600


@dataclass(frozen=True, slots=True)
class _Plots:
    """Plots that stand under one heading."""

    title: str
    captions: Mapping[str, str]  # by the id of the plot
    wide: bool = False  # whether each takes the whole width


def report_page(report: SimulationReport) -> str:
    """Return a whole HTML document on a simulation; it loads nothing."""
    figures: dict[str, Figure] = {}
    names = NodeNames.of(report.cluster.nodes)
    sections = [_heat_maps(report, figures), _over_time(report, figures)]
    folded = [_distributions(report, figures), _rejections(report, figures)]
    body = render(
        "report.html",
        report=report,
        names=names,
        figures=figures,
        answers=answers(report),
        tiles=_tiles(report),
        compared=arms_of_policies(report),
        fates=_fates(report),
        sections=[section for section in sections if section.captions],
        folded=[section for section in folded if section.captions],
        keys=_spread_keys(report),
        measured=_most_telling(report),
        nodes=_by_node(report),
        spreads={
            arm.name: {(s.measure, s.resource): s for s in arm.spreads} for arm in report.arms
        },
    )
    title = "What if" if report.changes else "Simulation"
    return self_contained(Page(name="", title=title, body=body, figures=figures))


@dataclass(frozen=True, slots=True)
class _Tile:
    """A figure of the first arm, and of those that are compared with it."""

    title: str
    before: str  # of the first arm, "" where nothing is compared
    after: Sequence[str]  # of the others; of the first one where there is none


def _tiles(report: SimulationReport) -> Sequence[_Tile]:
    """Return what matters most."""
    if not report.arms:
        return ()
    first, arms = report.arms[0], arms_of_policies(report)
    shown: list[tuple[str, Callable[[ArmReport], str]]] = [
        ("Hot nodes", lambda arm: f"{arm.hot_nodes:,}"),
        *(
            (f"Fullest node, {resource} {measure}", partial(_fullest, measure, resource))
            for measure, resource in ((Measure.LOAD, "cpu"), (Measure.LIMITS, "cpu"))
            if spread_of(first, measure, resource) is not None
        ),
        ("Pods without a node", lambda arm: f"{arm.unplaced + arm.refused:,}"),
        ("Most replicas of one owner on one node", lambda arm: f"{arm.crowd.pods:,}"),
    ]
    tiles = [
        _Tile(title, value(first) if arms else "", [value(arm) for arm in arms or (first,)])
        for title, value in shown
    ]
    if arms:
        tiles.append(_Tile("Pods elsewhere", "", [f"{arm.moves:,}" for arm in arms]))
    return tiles


def _fullest(measure: Measure, resource: str, arm: ArmReport) -> str:
    spread = spread_of(arm, measure, resource)
    return "unknown" if spread is None else f"{spread.max:.0f} %"


@dataclass(frozen=True, slots=True)
class _Fate:
    """Pods of a what-if that are alike: of one owner, with one fate for one reason."""

    arms: str  # the names of those in which it is so
    pods: int
    of: str  # their owner, or the one pod
    fate: PodFate
    origins: str
    to: str  # nodes with their numbers of pods, most pods first
    message: str
    victims: tuple[Victim, ...]  # whom others are evicted for


def _fates(report: SimulationReport) -> Sequence[_Fate]:
    """Return what becomes of the pods that were asked about: those that waited anyway come last."""
    groups: dict[tuple[bool, str, int, PodFate, str], list[PodOutcome]] = {}
    for number, arm in enumerate(report.arms):
        for each in arm.outcomes:
            of = each.owner or str(each.pod)
            groups.setdefault((each.waited, of, number, each.fate, each.message), []).append(each)
    alike: dict[_Fate, list[str]] = {}
    place = {of: number for number, (_, of, *_) in reversed([*enumerate(groups)])}
    ordered = sorted(groups.items(), key=lambda group: (group[0][0], place[group[0][1]]))
    for (waited, of, number, fate, message), pods in ordered:
        told = _Fate(
            arms="",
            pods=len(pods),
            of=of,
            fate=fate,
            origins="pending" if waited else _places(each.moved_from for each in pods) or "new",
            to=_places(each.node for each in pods),
            message=message,
            victims=tuple(victim for each in pods for victim in each.victims),
        )
        alike.setdefault(told, []).append(report.arms[number].name)
    return [replace(told, arms=", ".join(arms)) for told, arms in islice(alike.items(), _FATES)]


def _places(nodes: Iterable[str]) -> str:
    counts = Counter(node for node in nodes if node)
    texts = [f"{node} ({n:,})" if n > 1 else node for node, n in counts.most_common(_NODES)]
    more = len(counts) - _NODES
    return ", ".join(texts) + (f" and {more:,} more" if more > 0 else "")


def _spread_keys(report: SimulationReport) -> Sequence[tuple[Measure, str]]:
    """Return measure and resource of every spread, in the order in which arms list them."""
    spreads: Iterator[Spread] = chain.from_iterable(arm.spreads for arm in report.arms)
    return tuple(dict.fromkeys((spread.measure, spread.resource) for spread in spreads))


def _levels(arm: ArmReport, measure: Measure, resource: str) -> Sequence[float]:
    return next(
        (
            levels.percent
            for levels in arm.levels
            if (levels.measure, levels.resource) == (measure, resource)
        ),
        (),
    )


def _keys_of_levels(report: SimulationReport) -> Sequence[tuple[Measure, str]]:
    levels = chain.from_iterable(arm.levels for arm in report.arms)
    return tuple(dict.fromkeys((each.measure, each.resource) for each in levels))


def _threshold(report: SimulationReport, measure: Measure, resource: str) -> float | None:
    return report.cluster.thresholds.get(resource) if measure is Measure.LOAD else None


def _end(report: SimulationReport, measure: Measure, resource: str) -> float:
    """Return where the scale of a measure ends, the same for all arms."""
    levels = chain.from_iterable(_levels(arm, measure, resource) for arm in report.arms)
    threshold = _threshold(report, measure, resource)
    return end_of(levels, () if threshold is None else (threshold,))


def _heat_maps(report: SimulationReport, figures: dict[str, Figure]) -> _Plots:
    """Add the nodes of each arm by what matters most."""
    captions: dict[str, str] = {}
    measured = _most_telling(report)
    if measured is None:
        return _Plots("Nodes", captions)
    measure, resource = measured
    for number, arm in enumerate(report.arms):
        percent = _levels(arm, measure, resource)
        if not percent:
            continue
        name = f"heat-map-{number}"
        figures[name] = heat_map(
            report.cluster.nodes,
            report.cluster.zones,
            percent,
            _threshold(report, measure, resource),
            end=_end(report, measure, resource),
        )
        captions[name] = f"{arm.name}: {resource} {measure} of each node, the fuller the darker"
    return _Plots("Nodes", captions)


def _most_telling(report: SimulationReport) -> tuple[Measure, str] | None:
    """Return what nodes are shown by: load if it is known, else what comes first."""
    keys = _keys_of_levels(report)
    return next((key for key in keys if key[0] is Measure.LOAD), keys[0] if keys else None)


def _by_node(report: SimulationReport) -> Sequence[tuple[object, ...]]:
    """Return a row for each node, as the heat maps have it: name, zone, a percentage per arm."""
    measured = _most_telling(report)
    if measured is None:
        return ()
    unknown = (None,) * len(report.cluster.nodes)
    columns = [_levels(arm, *measured) or unknown for arm in report.arms]
    return tuple(zip(report.cluster.nodes, report.cluster.zones, *columns, strict=True))


def _distributions(report: SimulationReport, figures: dict[str, Figure]) -> _Plots:
    captions: dict[str, str] = {}
    for number, (measure, resource) in enumerate(_keys_of_levels(report)):
        bins = Bins.up_to(_end(report, measure, resource))
        counts = {
            arm.name: bins.counts(percent)
            for arm in report.arms
            if (percent := _levels(arm, measure, resource))
        }
        name = f"distribution-{number}"
        figures[name] = grouped_bars(
            bins.labels,
            counts,
            x=f"{resource} {measure}, % of allocatable, from",
            y="nodes",
        )
        captions[name] = f"Number of nodes by {resource} {measure}, arm by arm"
    return _Plots("Distributions", captions)


def _rejections(report: SimulationReport, figures: dict[str, Figure]) -> _Plots:
    captions: dict[str, str] = {}
    for number, arm in enumerate(report.arms):
        found = arm.rejections[:_RULES]
        if not found:
            continue
        name = f"rejections-{number}"
        rules = [f"{each.policy}: {each.rule}" for each in found]
        nodes = Bars(
            "nodes", [each.nodes for each in found], [counted(each.pods, "pod") for each in found]
        )
        figures[name] = stacked_rows(rules, [nodes], x="rejected nodes, added up over pods")
        captions[name] = f"{arm.name}: nodes that each rule was the first to reject"
    return _Plots("What each rule rejected", captions, wide=True)


def _over_time(report: SimulationReport, figures: dict[str, Figure]) -> _Plots:
    captions: dict[str, str] = {}
    sampled = [arm for arm in report.arms if arm.samples]
    for key, title in (("hot_nodes", "Hot nodes"), ("waiting", "Pods without a node")):
        if sampled:
            name = f"time-{key}"
            figures[name] = lines(
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
            captions[name] = f"{title} over time, arm by arm"
    return _Plots("Over time", captions)
