"""The page of nodes: how full each is, as a heat map, as a distribution and as a table."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final
from urllib.parse import quote

import numpy as np

from engine.errors import counted
from engine.model.quantity import CPU, MEMORY
from engine.report import Measure, NodeNames, NodeReport, NodesReport, Threshold
from webhook.pages import ui
from webhook.pages.document import Page, Query, chosen, link, page_of, part_of, text_of
from webhook.pages.figures import (
    Bins,
    end_of,
    grouped_bars,
    heat_map,
    upright,
)

_MEASURES: Final = tuple(measure.value for measure in Measure)
_SORTS: Final = ("name", "zone", "pods", *_MEASURES)
_PODS: Final = "pods"  # a resource that is only counted
_ROWS: Final = 100
_RECORD_USAGE: Final = "kubectl get nodes.metrics.k8s.io -o json > usage.json"
_RECORD_NODES: Final = "kubectl get nodes,pods,namespaces -A -o json"


def nodes_page(report: NodesReport, query: Query) -> Page:
    """Return the page of nodes.

    Args:
        report: the nodes.
        query: `resource`, `measure` (load by default, where it is known), `find` (part of a name or
            zone), `sort`, `part`.
    """
    resource = chosen(query, "resource", tuple(report.resources))
    usage = report.resources[resource].usage
    usual = Measure.REQUESTS if all(used is None for used in usage) else Measure.LOAD
    measure = chosen(query, "measure", (usual.value, *_MEASURES))
    find, sort = text_of(query, "find"), chosen(query, "sort", (measure, *_SORTS))
    choice = {"resource": resource, "measure": measure, "find": find, "sort": sort}
    levels = _levels(report, resource, measure)
    known = [level for level in levels if level is not None]
    thresholds = _thresholds(report.thresholds, resource, measure)
    lowest = min((threshold.percent for threshold in thresholds), default=None)
    end = end_of(known, (threshold.percent for threshold in thresholds))
    fields = (
        ui.Field("resource", resource, "Resource", options=tuple(report.resources)),
        ui.Field("measure", measure, "Measure", options=_MEASURES),
        ui.Field("find", find, "Find", "part of a name or zone", suggested=_suggested(report)),
        ui.Field("sort", sort),
    )
    blocks: list[ui.Block] = [
        ui.Paragraph(f"{source}: rules that read it have no effect.", "problem")
        for source in report.stale
    ]
    blocks += (ui.Form(fields), ui.Facts(_facts(report, levels, known, lowest)))
    if measure == Measure.LOAD and report.names and not known:
        text = "no usage of any node is known: rules that read it, as LoadAware, abstain."
        blocks += (
            ui.Paragraph(f"{text} A recording has it with", "problem"),
            ui.Paragraph(_RECORD_USAGE, "command"),
        )
    caption = (
        f"{resource} {measure} of each node in percent of allocatable, zone by zone, in order of"
        " names"
    )
    distribution = _distribution(known, measure, thresholds, end)
    blocks += (
        ui.Plot("heat-map", caption, heat_map(report.names, report.zones, levels, lowest, end=end)),
        ui.Plot("distribution", f"Number of nodes by {resource} {measure}", distribution),
        ui.Listing(
            [
                (f"{each.percent} %: filter {each.rule} of policy ", ui.policy_link(each.policy))
                for each in thresholds
            ]
        ),
        ui.Paragraph("All nodes", "heading"),
        *_table(report, query, choice),
    )
    return page_of("nodes", "Nodes", blocks)


def _table(report: NodesReport, query: Query, choice: Mapping[str, str]) -> Iterator[ui.Block]:
    """Yield the nodes that a reader looks for, a row each."""
    resource, find, sort = choice["resource"], choice["find"], choice["sort"]
    measures = sorted(_MEASURES, key=lambda each: each != choice["measure"])
    names = NodeNames.of(report.names)
    found = [
        i
        for i, (name, zone) in enumerate(zip(report.names, report.zones, strict=True))
        if find in name or find in zone
    ]
    part = part_of(sorted(found, key=_order(report, resource, sort)), query, _ROWS)

    def column(key: str, title: str, kind: ui.Kind = ui.Kind.NUMBER) -> ui.Column:
        way = "descending" if kind is ui.Kind.NUMBER else "ascending"
        title_link = ui.Span(title, href=link(choice, sort=key))
        return ui.Column(title_link, kind, way if sort == key else "")

    with_find = f" with {find}" if find else ""
    nothing: ui.Inline = (
        f"no node or zone has {find} in its name: ",
        ui.Span("show all", href=link(choice, find="")),
    )
    if not find:
        nothing = f"no node is known: `{_RECORD_NODES}` records them"
    yield ui.Table(
        title=(
            f"{counted(part.total, 'node')}{with_find}, sorted by {sort}; {resource} in percent of"
            f" allocatable, at {ui.moment_text(report.at)}; the line in a bar is the threshold"
        ),
        columns=(
            column("name", "Node", ui.Kind.NAME),
            *(column(each, each.capitalize()) for each in measures),
            ui.number("Allocatable"),
            column("pods", "Pods"),
            column("zone", "Zone", ui.Kind.NAME),
            ui.number("Report"),
        ),
        rows=[*_rows(report, resource, measures, part.items, names)],
        note=names.note,
        empty=nothing,
    )
    yield part.links(choice)


def _rows(
    report: NodesReport,
    resource: str,
    measures: Sequence[str],
    nodes: Sequence[int],
    names: NodeNames,
) -> Iterator[ui.Row]:
    bars = {each: _bar(report, resource, each) for each in measures}
    for i in nodes:
        age = report.report_age_seconds[i]
        yield (
            (
                ui.node_link(report.names[i], names),
                ui.quiet(" (cordoned)") if report.unschedulable[i] else "",
            ),
            *(_level(report, resource, each, i, bars[each]) for each in measures),
            ui.amount(report.resources[resource].allocatable[i], resource),
            f"{report.pods[i]}",
            report.zones[i],
            "none" if age is None else f"{age} s ago",
        )


def _suggested(report: NodesReport) -> Sequence[str]:
    return (*sorted({zone for zone in report.zones if zone}), *report.names)


def _amounts(report: NodesReport, resource: str, measure: str) -> Sequence[int | None]:
    columns = report.resources[resource]
    match measure:
        case Measure.REQUESTS:
            return columns.requests
        case Measure.LIMITS:
            return columns.limits
    return columns.usage


def _levels(report: NodesReport, resource: str, measure: str) -> list[float | None]:
    """Return a measure of each node in percent of what it offers."""
    offered = _offered(report, resource, measure)
    return [*map(ui.percent, _amounts(report, resource, measure), offered)]


def _offered(report: NodesReport, resource: str, measure: str) -> Sequence[int]:
    """Return the allocatable amounts, for usage those before amplification."""
    columns = report.resources[resource]
    return columns.raw_allocatable if measure == Measure.LOAD else columns.allocatable


def _thresholds(
    thresholds: Sequence[Threshold], resource: str, measure: str
) -> tuple[Threshold, ...]:
    return tuple(
        each for each in thresholds if (each.resource, each.measure) == (resource, measure)
    )


def _facts(
    report: NodesReport,
    levels: Sequence[float | None],
    known: Sequence[float],
    threshold: float | None,
) -> list[tuple[str, ui.Inline]]:
    """Return what is to be read first."""
    facts: list[tuple[str, ui.Inline]] = []
    if threshold is not None:
        above = sum(level > threshold for level in known)
        facts.append((f"Nodes above {threshold} %", f"{above:,} of {len(known):,}"))
    else:
        facts.append(("Nodes", f"{len(levels):,}"))
    if known:
        facts += (
            ("Fullest", f"{max(known):.1f} %"),
            ("Mean", f"{np.mean(known):.1f} %"),
            ("Spread (std. dev.)", f"{np.std(known):.1f} points"),
        )
    if len(known) < len(levels):
        facts.append(("Unknown", f"{len(levels) - len(known):,}"))
    crowd = report.crowd
    if crowd is not None and crowd.pods > 1 and crowd.example is not None:
        node = ui.node_link(crowd.node, NodeNames.of(report.names))
        where = (f"{crowd.pods}: ", ui.pod_link(crowd.example), " on ", node)
        facts.append(("Most replicas on one node", where))
    return facts


@dataclass(frozen=True, slots=True)
class _Bar:
    """How the bars of a measure are drawn."""

    end: float  # where they are full, in percent
    threshold: int | None  # the lowest, in percent; None for none


def _bar(report: NodesReport, resource: str, measure: str) -> _Bar:
    thresholds = [each.percent for each in _thresholds(report.thresholds, resource, measure)]
    levels = _levels(report, resource, measure)
    return _Bar(end_of(levels, thresholds), min(thresholds, default=None))


def _level(report: NodesReport, resource: str, measure: str, i: int, bar: _Bar) -> ui.Level:
    used, offered = _amounts(report, resource, measure)[i], _offered(report, resource, measure)[i]
    return ui.Level(ui.amount(used, resource), ui.percent(used, offered), bar.end, bar.threshold)


def _order(
    report: NodesReport, resource: str, sort: str
) -> Callable[[int], tuple[float | str, str]]:
    """Return the order of nodes: texts rising, numbers falling, what is unknown last."""
    names = report.names
    match sort:
        case "name":
            return lambda i: (names[i], "")
        case "zone":
            return lambda i: (report.zones[i], names[i])
        case "pods":
            return lambda i: (-report.pods[i], names[i])
    levels = _levels(report, resource, sort)
    falling = [1.0 if level is None else -level for level in levels]
    return lambda i: (falling[i], names[i])


def _distribution(
    known: Sequence[float], measure: str, thresholds: Sequence[Threshold], end: float
) -> ui.Figure:
    bins = Bins.up_to(end)
    figure = grouped_bars(
        bins.labels,
        {measure: bins.counts(known)},
        x=f"{measure}, % of allocatable, from",
        y="nodes",
    )
    # On an axis of names positions are counted: the middle of the first bin is 0.
    marks = [upright(each.percent / bins.width - 0.5, f"{each.percent} %") for each in thresholds]
    shown = {
        **figure["layout"],
        "shapes": [shape for shape, _ in marks],
        "annotations": [label for _, label in marks],
    }
    return {"data": figure["data"], "layout": shown}


def node_page(report: NodeReport) -> Page:
    """Return the page of a node."""
    nodes, i = report.nodes, report.nodes.names.index(report.name)
    age, zone = nodes.report_age_seconds[i], nodes.zones[i]
    offered = [
        name
        for name, columns in nodes.resources.items()
        if columns.allocatable[i] and name != _PODS
    ]
    shown = [name for name in offered if name in {CPU, MEMORY} or _is_asked_for(report, name)]
    most = nodes.resources[_PODS].allocatable[i] if _PODS in nodes.resources else 0
    of = ui.quiet(f" of {most}") if most else ""
    facts: list[tuple[str, ui.Inline]] = [("Pods", (f"{len(report.pods)}", of))]
    if zone:
        facts.append(("Zone", zone))
    if nodes.unschedulable[i]:
        facts.append(("Cordoned", "yes"))
    told = "never" if age is None else f"{age} s ago"
    facts.append(("Usage reported", told))
    resources = ui.Table(
        title=(
            "What the node offers, in percent of allocatable; the line in a bar is the threshold of"
            " a policy"
        ),
        columns=(
            ui.name_column("Resource"),
            ui.number("Allocatable"),
            *(ui.number(each.capitalize()) for each in _MEASURES),
        ),
        rows=[
            (
                ui.Span(name, href=f"nodes?resource={quote(name, '')}"),
                ui.amount(nodes.resources[name].allocatable[i], name),
                *(_own_level(nodes, name, each, i) for each in _MEASURES),
            )
            for name in offered
        ],
    )
    pods = ui.Table(
        title=f"{counted(len(report.pods), 'pod')} on this node; each leads to why it is here",
        columns=(
            ui.name_column("Pod"),
            *(
                ui.number(title)
                for name in shown
                for title in (f"{name}: requested", "limit", "in use")
            ),
        ),
        rows=[
            (
                (ui.pod_link(each.pod), ui.quiet(" (expected)") if each.is_expected else ""),
                *(
                    ui.amount(amounts[name], name) if name in amounts else ""
                    for name in shown
                    for amounts in (each.requests, each.limits, each.usage or {})
                ),
            )
            for each in report.pods
        ],
        empty="no pod counts on this node",
    )
    blocks = (ui.Facts(facts), resources, ui.Paragraph("Pods", "heading"), pods)
    return page_of("node", f"Node {report.name}", blocks)


def _is_asked_for(report: NodeReport, resource: str) -> bool:
    return any(each.requests.get(resource) for each in report.pods)


def _own_level(nodes: NodesReport, resource: str, measure: str, i: int) -> ui.Level:
    """Return a level of one node; its bar is full where that of no other node matters."""
    thresholds = [each.percent for each in _thresholds(nodes.thresholds, resource, measure)]
    used, offered = _amounts(nodes, resource, measure)[i], _offered(nodes, resource, measure)[i]
    level = ui.percent(used, offered)
    bar = _Bar(end_of([level], thresholds), min(thresholds, default=None))
    return _level(nodes, resource, measure, i, bar)
