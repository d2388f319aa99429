"""The nodes of a cluster and the pods on them, as lists that people read."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from heapq import nsmallest
from os.path import commonprefix
from typing import Final, TypeAlias

import msgspec
import numpy as np
from numpy.typing import NDArray

from engine.model.pod import Pod
from engine.model.quantity import CPU, MEMORY
from engine.model.rule_outcomes import Measure
from engine.model.time import SECOND, Micros, date
from engine.model.well_known import ZONE_LABEL
from engine.plugins.load_aware.estimation import capacity
from engine.policy import PolicySet
from engine.report.decision import PodName
from engine.view import ClusterState, ClusterView, IntColumn, Sum

_LEAST: Final = 8
"""Characters: a shorter end is not worth the sentence that tells of it."""


@dataclass(frozen=True, slots=True)
class NodeNames:
    """How the nodes of a cluster are named where there is little room.

    Attributes:
        suffix: of all names, from a dot on, such as `.eu-central-1.compute.internal`; "" for none
            that is worth it.
    """

    suffix: str = ""

    @classmethod
    def of(cls, names: Iterable[str]) -> NodeNames:
        """Return how nodes are named; several of them have something in common."""
        reversed_names = [name[::-1] for name in names]
        if len(reversed_names) < 2:  # noqa: PLR2004 - one has everything in common with itself
            return cls()
        common = commonprefix(reversed_names)[::-1]  # noqa: RUF071 - characters are meant
        dot = common.find(".")
        suffix = common[dot:] if dot >= 0 else ""
        return cls(suffix if len(suffix) >= _LEAST else "")

    @property
    def note(self) -> str:
        """What is to be said once, "" for nothing."""
        return f"names of nodes end with {self.suffix}" if self.suffix else ""

    def short(self, name: str) -> str:
        """Return the name of a node without the suffix."""
        return name.removesuffix(self.suffix)

    def in_text(self, text: str) -> str:
        """Return a text in which names of nodes are short."""
        if not self.suffix or self.suffix not in text:
            return text
        return re.sub(rf"(?<=[a-z0-9]){re.escape(self.suffix)}(?![-\w])", "", text)


Owner: TypeAlias = tuple[str, str]
"""Namespace and uid."""

_Place: TypeAlias = tuple[str, Owner]
"""A node, and the owner of pods on it."""


class Crowd(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """The most pods of one owner on one node.

    Attributes:
        pods: how many; 0 where no pod with an owner has a node.
        node: which, the first by name; "" for none.
        example: one of the pods; None for none.
    """

    pods: int = 0
    node: str = ""
    example: PodName | None = None


def owner_of(pod: Pod) -> Owner | None:
    """Return the owner of a pod; None without one, or where it is a DaemonSet."""
    return (pod.namespace, pod.owner_uid) if pod.owner_uid and not pod.is_daemon_set else None


class Replicas:
    """The bound pods of each owner, as pods come and go."""

    def __init__(self) -> None:
        self._counts = Counter[_Place]()
        self._places: dict[str, _Place] = {}

    def set(self, pod: Pod) -> None:
        """Count a pod where it is now; one without a node, or that has ended, nowhere."""
        key, owner = pod.key, owner_of(pod)
        self.delete(key)
        if owner is not None and pod.node_name and not pod.is_terminal:
            place = pod.node_name, owner
            self._places[key] = place
            self._counts[place] += 1

    def delete(self, key: str) -> None:
        """Count a pod no longer, by `namespace/name`."""
        place = self._places.pop(key, None)
        if place is not None:
            self._counts[place] -= 1
            if not self._counts[place]:
                del self._counts[place]

    def crowd(self) -> Crowd:
        """Return the most of one owner on one node."""
        if not self._counts:
            return Crowd()
        place = min(self._counts, key=lambda each: (-self._counts[each], each))
        key = min(key for key, other in self._places.items() if other == place)
        namespace, _, name = key.partition("/")
        return Crowd(pods=self._counts[place], node=place[0], example=PodName(namespace, name))


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


_MOST_LISTED: Final = 1_000


class FoundPod(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """A pod in a list; `node` is where it counts, "" for nowhere."""

    pod: PodName
    node: str


class PodsReport(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """The pods that a reader looks for.

    Attributes:
        total: how many there are.
        pods: the first of them by namespace and name.
        namespaces: of the whole cluster, to choose from.
    """

    total: int
    pods: tuple[FoundPod, ...]
    namespaces: tuple[str, ...]


class PodOnNode(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """A pod that counts on a node; amounts in base units.

    Attributes:
        is_expected: whether it is only advised or nominated, not bound.
        usage: as its node reported it; None where it does not say.
    """

    pod: PodName
    is_expected: bool
    requests: Mapping[str, int]
    limits: Mapping[str, int]
    usage: Mapping[str, int] | None


class NodeReport(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """A node with its pods, by namespace and name.

    Attributes:
        name: of the node.
        nodes: it among all nodes.
    """

    name: str
    nodes: NodesReport
    pods: tuple[PodOnNode, ...]


def pods_report(state: ClusterState, namespace: str, text: str) -> PodsReport:
    """Return the pods of a namespace, "" for all, whose name contains a text; the first 1,000."""
    found = [
        (*key.split("/", 1), node)
        for key, node in state.pods_containing(text)
        if (key.startswith(f"{namespace}/") if namespace else True)
        and text in key.partition("/")[2]
    ]
    return PodsReport(
        total=len(found),
        pods=tuple(
            FoundPod(pod=PodName(of, name), node=node)
            for of, name, node in nsmallest(_MOST_LISTED, found)
        ),
        namespaces=tuple(sorted(state.view().namespaces.labels)),
    )


def node_report(state: ClusterState, nodes: NodesReport, name: str) -> NodeReport | None:
    """Return a node with its pods; None where there is no such node.

    Args:
        state: the cluster.
        nodes: all nodes.
        name: of the node.
    """
    if name not in nodes.names:
        return None
    usage = state.usage(name)
    measured = {} if usage is None else usage.pods
    return NodeReport(
        name=name,
        nodes=nodes,
        pods=tuple(
            PodOnNode(
                pod=PodName(*key.split("/", 1)),
                is_expected=entry.assumed,
                requests=entry.shape.requests,
                limits=entry.shape.limits,
                usage=None if (of_pod := measured.get(key)) is None else of_pod.amounts,
            )
            for key, entry in sorted(state.pods_on(name), key=lambda each: each[0])
        ),
    )
