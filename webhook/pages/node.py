"""The page of a node: how full it is, and the pods that make it so."""

from __future__ import annotations

from dataclasses import dataclass

from engine.model.resource_names import CPU, MEMORY
from engine.report import Measure, NodeReport, NodesReport
from webhook.pages.amounts import percent
from webhook.pages.page import Page
from webhook.pages.scale import end_of
from webhook.pages.templates import render


@dataclass(frozen=True, slots=True)
class _Bar:
    """Where a bar is full, and its threshold; see the page of nodes."""

    end: float
    threshold: int | None


@dataclass(frozen=True, slots=True)
class _Cell:
    """A measure of a resource: base units, None where it is unknown."""

    amount: int | None
    level: float | None
    bar: _Bar


def node_page(report: NodeReport) -> Page:
    """Return the page of a node."""
    nodes, i = report.nodes, report.nodes.names.index(report.name)
    offered = {
        name: columns.allocatable[i]
        for name, columns in nodes.resources.items()
        if columns.allocatable[i]
    }
    return Page(
        name="node",
        title=f"Node {report.name}",
        body=render(
            "node.html",
            report=report,
            zone=nodes.zones[i],
            is_cordoned=nodes.unschedulable[i],
            age=nodes.report_age_seconds[i],
            measures=tuple(Measure),
            offered=offered,
            cells={
                name: {each: _cell(nodes, name, each, i) for each in Measure} for name in offered
            },
            shown=[
                name for name in offered if name in {CPU, MEMORY} or _is_asked_for(report, name)
            ],
        ),
    )


def _is_asked_for(report: NodeReport, resource: str) -> bool:
    return any(each.requests.get(resource) for each in report.pods)


def _cell(nodes: NodesReport, resource: str, measure: Measure, i: int) -> _Cell:
    columns = nodes.resources[resource]
    amounts = {
        Measure.REQUESTS: (columns.requests, columns.allocatable),
        Measure.LIMITS: (columns.limits, columns.allocatable),
        Measure.LOAD: (columns.usage, columns.raw_allocatable),
    }
    amount, offered = (column[i] for column in amounts[measure])
    thresholds = [
        each.percent
        for each in nodes.thresholds
        if (each.resource, each.measure) == (resource, measure)
    ]
    level = percent(amount, offered)
    bar = _Bar(end_of([level], thresholds), min(thresholds, default=None))
    return _Cell(amount, level, bar)
