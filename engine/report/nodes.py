"""The nodes of a cluster in columns: what is requested, limited and used of each."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

import msgspec
import numpy as np
from numpy.typing import NDArray

from engine.model.measure import Measure
from engine.model.resource_names import CPU, MEMORY
from engine.model.time import SECOND, Micros, date
from engine.model.well_known import ZONE_LABEL
from engine.plugins.load_aware.usage import capacity
from engine.policy import PolicySet
from engine.report.replicas import Crowd
from engine.view import ClusterView, IntColumn, Sum

_FIRST: Final = (CPU, MEMORY)


class Threshold(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """A percentage of the allocatable amount above which a filter rejects nodes.

    Attributes:
        policy: the policy of the filter.
        rule: its name.
    """

    measure: Measure
    resource: str
    percent: int
    policy: str
    rule: str


class ResourceColumns(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """One resource of all nodes: a value per node in the order of `NodesReport.names`, base units.

    Attributes:
        raw_allocatable: allocatable before amplification, which usage is compared with.
        usage: as last reported; None where there is no report, or it does not say.
    """

    allocatable: Sequence[int]
    raw_allocatable: Sequence[int]
    requests: Sequence[int]
    limits: Sequence[int]
    usage: Sequence[int | None]


class NodesReport(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """The nodes at one moment, in columns.

    Attributes:
        at: ISO 8601.
        view_version: grows with every event.
        stale: the sources that are too old for rules to read, each with its age.
        names: of the nodes, ascending; all columns are in this order.
        zones: "" for a node without one.
        unschedulable: whether a node is cordoned.
        pods: the number that counts on each node, those only advised or nominated included.
        report_age_seconds: of the usage, None where there is no report.
        resources: columns by resource name.
        thresholds: of the policies in force.
        crowd: the most replicas of one owner on one node; None where nobody counts.
    """

    at: str
    view_version: int = 0
    stale: Sequence[str] = ()
    names: Sequence[str]
    zones: Sequence[str]
    unschedulable: Sequence[bool]
    pods: Sequence[int]
    report_age_seconds: Sequence[int | None]
    resources: Mapping[str, ResourceColumns]
    thresholds: Sequence[Threshold] = ()
    crowd: Crowd | None = None


def nodes_report(
    view: ClusterView,
    now: Micros,
    *,
    thresholds: Sequence[Threshold] = (),
    stale: Sequence[str] = (),
    crowd: Crowd | None = None,
) -> NodesReport:
    """Return the report on the nodes of a view; some milliseconds for thousands of them.

    Args:
        view: the cluster.
        now: the time of day.
        thresholds: of the policies in force.
        stale: the sources that are too old, each with its age.
        crowd: the most replicas of one owner on one node.
    """
    rows = np.array(
        sorted(np.flatnonzero(view.valid).tolist(), key=view.names.__getitem__), np.intp
    )
    nodes = [view.nodes[row] for row in rows.tolist()]
    return NodesReport(
        at=date(now).isoformat(timespec="seconds"),
        view_version=view.version,
        stale=stale,
        names=[view.names[row] for row in rows.tolist()],
        zones=["" if node is None else node.labels.get(ZONE_LABEL, "") for node in nodes],
        unschedulable=view.unschedulable[rows].tolist(),
        pods=view.amount(view.sums[Sum.REQUESTS], "pods")[rows].tolist(),
        report_age_seconds=_ages(view.metric_time[rows], now),
        resources={name: _columns(view, name, rows) for name in _offered(view)},
        thresholds=thresholds,
        crowd=crowd,
    )


def _offered(view: ClusterView) -> Sequence[str]:
    """Return cpu, memory, and every other resource that a node offers."""
    others = (
        name
        for name in view.axis.names
        if name not in _FIRST and bool((view.amount(view.allocatable, name) > 0)[view.valid].any())
    )
    return (*_FIRST, *sorted(others))


def thresholds_of(policies: PolicySet) -> tuple[Threshold, ...]:
    """Return the thresholds that filters of policies in force are given, for nodes without own."""
    return tuple(
        Threshold(
            measure=each.measure,
            resource=each.resource,
            percent=each.percent,
            policy=policy.name,
            rule=rule.name,
        )
        for policy in policies
        for rule in policy.filters
        for each in rule.thresholds
    )


def _ages(times: IntColumn, now: Micros) -> list[int | None]:
    ages = np.maximum(now - times, 0) // SECOND
    return [age if time else None for age, time in zip(ages.tolist(), times.tolist(), strict=True)]


def _columns(view: ClusterView, resource: str, rows: NDArray[np.intp]) -> ResourceColumns:
    reports = (view.usages[row] for row in rows.tolist())
    return ResourceColumns(
        allocatable=view.amount(view.allocatable, resource)[rows].tolist(),
        raw_allocatable=capacity(view, (resource,))[0, rows].tolist(),
        requests=view.amount(view.sums[Sum.REQUESTS], resource)[rows].tolist(),
        limits=view.amount(view.sums[Sum.LIMITS], resource)[rows].tolist(),
        usage=[
            None if report is None or report.usage is None else report.usage.get(resource)
            for report in reports
        ],
    )
