"""Free amounts in the NUMA zones of each node, in tables: one row per zone, one column per node.

Zones stand in order of their ids, and tables are as high as the node with the most zones needs.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final, TypeVar

import numpy as np
from numpy.typing import NDArray

from engine.model import api, resources
from engine.model.numa import NodeZones, NumaLayout
from engine.model.pod import Pod
from engine.model.resource_names import (
    CPU,
    EPHEMERAL_STORAGE,
    MEMORY,
    PODS,
    is_huge_pages,
    is_prefixed_native,
    is_scalar,
)
from engine.model.resources import Amounts
from engine.plugins.lib.arithmetic import FloatColumn
from engine.view import BoolColumn, ClusterView, DictionaryColumn, Domain, capped

ABSENT: Final = -(2**62)
"""The amount of a resource that a zone does not list; less than any other, whatever is taken."""

_MILLI: Final = 1000
_ZONES: Final = (Domain.TOPOLOGY,)
_NODES: Final = (Domain.NODES,)
_ALWAYS_OFFERED: Final = frozenset({CPU, MEMORY, EPHEMERAL_STORAGE, PODS})


@dataclass(frozen=True, slots=True)
class ZoneTables:
    """The zones of the nodes of a view.

    Attributes:
        view: whose nodes.
        layouts: the layout of each node, missing without a report of its zones.
        most: the height of the tables, at least 1.
    """

    view: ClusterView
    layouts: DictionaryColumn[NumaLayout]
    most: int

    @classmethod
    def of(cls, view: ClusterView) -> ZoneTables:
        """Return the zones of the nodes of a view."""
        layouts = view.dictionary_column("NUMA layout", _ZONES, _layouts)
        most = max((len(layout) for layout in layouts.values if layout is not None), default=0)
        return cls(view, layouts, max(most, 1))

    def has(self, policy: str, scope: str) -> BoolColumn:
        """Return which nodes have a kubelet with a policy in a scope, (n,)."""
        table = [node is not None and (node.policy, node.scope) == (policy, scope) for node in self]
        return self.layouts.spread(np.array(table, np.bool_))

    def rows_by_layout(self) -> Iterator[tuple[NumaLayout, NDArray[np.intp]]]:
        """Yield each layout with the rows of the nodes that have it."""
        for code in np.flatnonzero(self.layouts.counts).tolist():
            layout = self.layouts.values[code]
            if layout is not None:
                yield layout, np.flatnonzero(self.layouts.codes == code)

    def __iter__(self) -> Iterator[NumaLayout | None]:
        """Yield the layouts by their code."""
        return iter(self.layouts.values)

    def exist(self) -> BoolColumn:
        """Return which zones there are, (most, n)."""
        counts = np.array([0 if layout is None else len(layout) for layout in self])
        exist: BoolColumn = np.arange(self.most)[:, np.newaxis] < self.layouts.spread(counts)
        return exist

    def available(self, resource: str) -> FloatColumn:
        """Return what is left of a resource in each zone, base units or ABSENT, (most, n).

        Floats, for they are compared and added several times faster, and as exactly: amounts are
        capped.
        """
        return _available(self.view, resource, self.most)

    def is_listed(self, resources: Iterable[str]) -> BoolColumn:
        """Return which nodes have a zone that lists one of some resources, (n,)."""
        names = frozenset(resources)

        def compute(part: ClusterView) -> BoolColumn:
            is_listed = np.zeros(len(part), np.bool_)
            for name in names:
                is_listed |= (_available(part, name, self.most) != ABSENT).any(axis=0)
            return is_listed

        return self.view.node_column(("NUMA lists", names, self.most), _ZONES, compute)

    def most_in(self, resource: str, beside: frozenset[str]) -> FloatColumn:
        """Return the most that one zone has left of a resource, that two have and so on.

        The shape is (most, n). Only zones that list all that is `beside` it count; where there are
        too few, it is less than 0.
        """

        def compute(part: ClusterView) -> FloatColumn:
            listed = [_available(part, name, self.most) != ABSENT for name in beside]
            amounts = np.maximum(_available(part, resource, self.most), 0)
            usable = np.where(np.logical_and.reduce(listed), amounts, ABSENT)
            return np.sort(usable, axis=0)[::-1].cumsum(axis=0)

        key = ("NUMA most", resource, beside, self.most)
        return self.view.node_column(key, _ZONES, compute)

    def whole_units(self, resource: str) -> FloatColumn:
        """Return the same in whole units, rounded up, cpu in cores; 1 where nothing is left.

        So it can always be divided by.
        """

        def compute(part: ClusterView) -> FloatColumn:
            return whole_units(resource, np.maximum(_available(part, resource, self.most), 1))

        return self.view.node_column(("NUMA units", resource, self.most), _ZONES, compute)

    def divisor(self, resource: str) -> FloatColumn:
        """Return what a request is divided by to get its share of each zone, (2, most, n).

        The first is in whole units, infinite where nothing is left. There the share is 1, which is
        the second, and to be added.
        """

        def compute(part: ClusterView) -> FloatColumn:
            available = _available(part, resource, self.most)
            units = whole_units(resource, np.maximum(available, 1))
            return np.array([np.where(available > 0, units, np.inf), available <= 0])

        return self.view.node_column(("NUMA divisor", resource, self.most), _ZONES, compute)

    def is_offered(self, resource: str) -> BoolColumn:
        """Return which nodes have a resource at all, (n,); see `NodeInfo.Allocatable` upstream."""
        if resource in _ALWAYS_OFFERED:
            return np.ones(len(self.view), np.bool_)
        if not is_scalar(resource):
            return np.zeros(len(self.view), np.bool_)

        def compute(part: ClusterView) -> BoolColumn:
            nodes = part.nodes
            return np.array(
                [node is not None and resource in node.allocatable for node in nodes], bool
            )

        return self.view.node_column(("offers", resource), _NODES, compute)


_Amount = TypeVar("_Amount", int, FloatColumn)


def whole_units(resource: str, amount: _Amount) -> _Amount:
    """Return an amount as Go's `Quantity.Value` gives it: cpu in cores, rounded up."""
    return -(-amount // _MILLI) if resource == CPU else amount


def first_of(suitable: BoolColumn) -> NDArray[np.intp]:
    """Return the number of the first row that is True in each column, and of rows if none is.

    There may be 255 rows. Several times as fast as `argmax`, which goes down each column alone.
    """
    countdown = np.arange(len(suitable), 0, -1, dtype=np.uint8)[:, np.newaxis]
    greatest = (suitable * countdown).max(axis=0)
    first: NDArray[np.intp] = np.subtract(len(suitable), greatest, dtype=np.intp)
    return first


def container_requests(pod: Pod) -> tuple[Sequence[Amounts], Sequence[Amounts]]:
    """Return what each init container and each container of a pod requests."""
    return (
        [_requests(container) for container in pod.init_containers],
        [_requests(container) for container in pod.containers],
    )


def is_native(resource: str) -> bool:
    """Return whether a resource is Kubernetes' own (v1 helper, IsNativeResource)."""
    return "/" not in resource or is_prefixed_native(resource)


def is_host_level(resource: str) -> bool:
    """Return whether a resource need not belong to any zone."""
    return resource in (EPHEMERAL_STORAGE, "storage") or not is_native(resource)


def is_shared(resource: str, qos_class: str) -> bool:
    """Return whether a pod of a QoS class takes nothing of a zone by requesting a resource."""
    belongs = resource in (CPU, MEMORY) or is_huge_pages(resource)
    return belongs and qos_class != "Guaranteed"


def _requests(container: api.Container) -> Amounts:
    written = container.resources.requests if container.resources else None
    return {name: capped(amount) for name, amount in resources.amounts(written).items()}


def _available(view: ClusterView, resource: str, most: int) -> FloatColumn:
    def compute(part: ClusterView) -> FloatColumn:
        table = np.full((most, len(part)), ABSENT, np.float64)
        for row, name in enumerate(part.names):
            zones = part.lookup(NodeZones, name)
            for number, amounts in enumerate(zones.available if zones else ()):
                if resource in amounts:
                    table[number, row] = capped(amounts[resource])
        return table

    return view.node_column(("NUMA available", resource, most), _ZONES, compute)


def _layouts(view: ClusterView) -> Iterator[NumaLayout | None]:
    for name in view.names:
        zones = view.lookup(NodeZones, name)
        yield None if zones is None else zones.layout
