"""What is free in the NUMA zones of each node, in tables: one row per zone, one column per node.

Zones stand in order of their ids, and tables are as high as the node with the most zones needs.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
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
from engine.plugins.arithmetic import FloatColumn
from engine.view import BoolColumn, ClusterView, Domain, IntColumn, dictionary_column
from engine.view.axis import capped
from engine.view.dictionary import DictionaryColumn

ABSENT: Final = -(2**62)
"""The amount of a resource that a zone does not list; less than any other."""

_MILLI: Final = 1000
_ZONES: Final = (Domain.TOPOLOGY,)
_NODES: Final = (Domain.NODES,)
_ALWAYS_OFFERED: Final = frozenset({CPU, MEMORY, EPHEMERAL_STORAGE, PODS})


@dataclass(frozen=True, slots=True)
class ZoneTables:
    """The zones of the nodes of a view.

    Attributes:
        view: whose nodes.
        layouts: the layout of each node, missing where nothing is told of its zones.
        most: the height of the tables, at least 1.
    """

    view: ClusterView
    layouts: DictionaryColumn[NumaLayout]
    most: int

    @classmethod
    def of(cls, view: ClusterView) -> ZoneTables:
        """Return the zones of the nodes of a view."""
        layouts = dictionary_column(view, "NUMA layout", _ZONES, _layouts)
        most = max((len(layout) for layout in layouts.values if layout is not None), default=0)
        return cls(view, layouts, max(most, 1))

    def nodes_with(self, policy: str, scope: str) -> NDArray[np.intp]:
        """Return the rows of nodes whose kubelet has a policy in a scope."""
        table = [one is not None and (one.policy, one.scope) == (policy, scope) for one in self]
        return np.flatnonzero(self.layouts.spread(np.array(table, np.bool_)))

    def rows_by_layout(self) -> Iterator[tuple[NumaLayout, NDArray[np.intp]]]:
        """Yield each layout with the rows of the nodes that have it."""
        for code in np.unique(self.layouts.codes).tolist():
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

    def available(self, resource: str) -> IntColumn:
        """Return what is left of a resource in each zone, base units or ABSENT, (most, n)."""
        return _available(self.view, resource, self.most)

    def whole_units(self, resource: str) -> FloatColumn:
        """Return the same in whole units, rounded up, cpu in cores; 1 where nothing is left.

        So it can always be divided by.
        """

        def compute(part: ClusterView) -> FloatColumn:
            available = _available(part, resource, self.most)
            return whole_units(resource, np.maximum(available, 1)).astype(np.float64)

        return self.view.node_column(("NUMA units", resource, self.most), _ZONES, compute)

    def is_offered(self, resource: str) -> BoolColumn:
        """Return which nodes have a resource at all, (n,); see `NodeInfo.Allocatable` upstream."""
        if resource in _ALWAYS_OFFERED:
            return np.ones(len(self.view), np.bool_)
        if not is_scalar(resource):
            return np.zeros(len(self.view), np.bool_)

        def compute(part: ClusterView) -> BoolColumn:
            nodes = part.nodes
            return np.array(
                [one is not None and resource in one.allocatable for one in nodes], bool
            )

        return self.view.node_column(("offers", resource), _NODES, compute)


_Amount = TypeVar("_Amount", int, IntColumn)


def whole_units(resource: str, amount: _Amount) -> _Amount:
    """Return an amount as Go's `Quantity.Value` gives it: cpu in cores, rounded up."""
    return -(-amount // _MILLI) if resource == CPU else amount


def container_requests(pod: Pod) -> tuple[Sequence[Amounts], Sequence[Amounts]]:
    """Return what each init container and each container of a pod requests."""
    return (
        [_requests(one) for one in pod.init_containers],
        [_requests(one) for one in pod.containers],
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


def _available(view: ClusterView, resource: str, most: int) -> IntColumn:
    def compute(part: ClusterView) -> IntColumn:
        table = np.full((most, len(part)), ABSENT, np.int64)
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
