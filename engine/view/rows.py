"""Rows of nodes with the columns over them, and what a pod adds to those of its node.

Columns are written in place, and copied while a view holds them.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from enum import IntEnum
from itertools import accumulate, islice, pairwise
from sys import getsizeof
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from engine.model.caches import ByteLimitedCache
from engine.model.kinds import Domain
from engine.model.node import Node
from engine.model.pod_shape import PodShape
from engine.model.quantity import PODS
from engine.model.resources import Amounts
from engine.model.usage import NodeUsage
from engine.view.axis import IntColumn, ResourceAxis
from engine.view.pod_table import PodTable
from engine.view.trait_book import NUMBER_BYTES, PodQuery, TraitBook

_FIRST_ROWS = 64
_NODES, _METRICS = int(Domain.NODES), int(Domain.METRICS)  # numpy takes these twice as fast
_COLUMNS = (
    "valid",
    "unschedulable",
    "allocatable",
    "sums",
    "assumed",
    "metric_time",
    "changed",
)
_COLLECTIONS = ("of", "nodes", "usages", "traits")


class Sum(IntEnum):
    """The sums kept per node over its pods; see `PodShape` for the amounts in each."""

    REQUESTS = 0
    NON_ZERO_REQUESTS = 1
    LIMITS = 2
    EFFECTIVE_LIMITS = 3
    EFFECTIVE_LIMITS_NON_ZERO = 4
    CONTAINER_LIMITS = 5


class NodeRows:
    """A row for each node name that a node, a pod or a usage report refers to.

    INVARIANT: callers raise `version` before they write, so that no column remembered for an
    earlier version is taken for right. The columns have more rows than are in use: only the first
    `len(names)` mean anything.

    Attributes:
        version: the one being written.
        latest: the version at which any row last changed, by domain.
        axis: the resource axis.
        of: row by node name.
        names: node name per row, "" for a free one.
        sums: (len(Sum) * n_resources, rows), so that one pod is one vector.
        nodes, usages, traits, valid, unschedulable, allocatable, assumed, metric_time, changed: see
            `ClusterView`.
    """

    def __init__(self, pods: PodTable) -> None:
        self.version = 0
        self.latest = [0] * len(Domain)
        self.axis = ResourceAxis()
        self.of: dict[str, int] = {}
        self.names: list[str] = []
        self.nodes: list[Node | None] = []
        self.usages: list[NodeUsage | None] = []
        self.traits: list[bytes] = []
        self.valid = np.zeros(_FIRST_ROWS, np.bool_)
        self.unschedulable = np.zeros(_FIRST_ROWS, np.bool_)
        self.allocatable = np.zeros((len(self.axis), _FIRST_ROWS), np.int64)
        self.sums = np.zeros((len(Sum) * len(self.axis), _FIRST_ROWS), np.int64)
        self.assumed = np.zeros(_FIRST_ROWS, np.int64)
        self.metric_time = np.zeros(_FIRST_ROWS, np.int64)
        self.changed = np.zeros((len(Domain), _FIRST_ROWS), np.int64)
        self._pods = pods
        self._free: list[int] = []
        self._names_now: tuple[str, ...] | None = None

    def unshare(self) -> None:
        """Leave the columns given out so far to their holders, and write to copies."""
        for name in (*_COLLECTIONS, *_COLUMNS):
            setattr(self, name, getattr(self, name).copy())

    @property
    def names_now(self) -> tuple[str, ...]:
        """The names as they are now; the same object until one changes."""
        if self._names_now is None:
            self._names_now = tuple(self.names)
        return self._names_now

    def node(self, name: str) -> Node | None:
        row = self.of.get(name)
        return None if row is None else self.nodes[row]

    def put_node(self, node: Node) -> None:
        """Write a node; its resources have a place on the axis."""
        row = self.row(node.name)
        self.nodes[row] = node
        self.valid[row] = True
        self.unschedulable[row] = node.unschedulable
        self.allocatable[:, row] = self.axis.vector(node.allocatable)
        self.touch(row, _NODES)

    def drop_node(self, name: str) -> None:
        """Take out a node that is there; its row stays while pods or usage are on it."""
        row = self.of[name]
        self.nodes[row] = None
        self.valid[row] = self.unschedulable[row] = False
        self.allocatable[:, row] = 0
        self.touch(row, _NODES)

    def put_usage(self, usage: NodeUsage) -> None:
        row = self.row(usage.node_name)
        self.usages[row] = usage
        self.metric_time[row] = usage.update_time or 0
        self.touch(row, _METRICS)

    def drop_usage(self, name: str) -> None:
        """Take out a usage report that is there."""
        row = self.of[name]
        self.usages[row] = None
        self.metric_time[row] = 0
        self.touch(row, _METRICS)

    def row(self, name: str) -> int:
        """Return the row of a node name, a fresh one if it has none."""
        row = self.of.get(name)
        if row is not None:
            return row
        if self._free:
            row = self._free.pop()
        else:
            row = len(self.names)
            self.names.append("")
            self.nodes.append(None)
            self.usages.append(None)
            self.traits.append(b"")
            if row == len(self.valid):
                self._grow(2 * row)
        self.of[name] = row
        self._rename(row, name)
        return row

    def release(self, row: int) -> None:
        """Free a row that no node, pod or usage report refers to any more."""
        if not self.names[row]:
            return  # free already
        if self.nodes[row] is None and self.usages[row] is None and not self._pods.count_on(row):
            del self.of[self.names[row]]
            self._rename(row, "")
            self._free.append(row)

    def renumber_traits(self, numbers: NDArray[np.int32]) -> None:
        """Give the traits of all pods other numbers, by their old ones."""
        # All at once: a call for each of 50,000 rows would take 60 ms.
        renumbered = numbers[np.frombuffer(b"".join(self.traits), np.int32)].tobytes()
        ends = list(accumulate(map(len, self.traits)))
        self.traits = [renumbered[start:end] for start, end in pairwise([0, *ends])]

    def touch(self, row: int, domain: int) -> None:
        """Note that a row changes in a domain."""
        self.changed[domain, row] = self.latest[domain] = self.version

    def touch_pods_of(self, book: TraitBook, queries: Sequence[PodQuery]) -> None:
        """Note that pods change on the rows of those that any query selects."""
        if not queries:
            return
        found = np.logical_or.reduce([book.select(query, 0) for query in queries])
        selected = found[np.frombuffer(b"".join(self.traits), np.int32)]
        ends = np.fromiter(map(len, self.traits), np.int64, len(self.traits)).cumsum()
        for row in np.unique((ends // NUMBER_BYTES).searchsorted(selected.nonzero()[0], "right")):
            self.touch(row, Domain.PODS)

    def grow_axis(self, resources: Iterable[str]) -> bool:
        """Give resources a place on the axis; return whether any had none."""
        axis = self.axis.including(resources)
        if axis is self.axis:
            return False
        more = len(axis) - len(self.axis)
        self.allocatable = np.pad(self.allocatable, ((0, more), (0, 0)))
        sums = self.sums.reshape(len(Sum), len(self.axis), -1)
        self.sums = np.pad(sums, ((0, 0), (0, more), (0, 0))).reshape(len(Sum) * len(axis), -1)
        self.axis = axis
        return True

    def _rename(self, row: int, name: str) -> None:
        """Give a row to another name, or to none."""
        self.names[row] = name
        self._names_now = None
        for domain in range(len(Domain)):
            self.touch(row, domain)

    def _grow(self, rows: int) -> None:
        """Make room for so many rows."""
        for name in _COLUMNS:
            old = getattr(self, name)
            new = np.zeros((*old.shape[:-1], rows), old.dtype)
            new[..., : old.shape[-1]] = old
            setattr(self, name, new)


MOST_RESOURCES = 64
"""Resources on the axis, unless nodes offer more; each costs 48 bytes a node."""

LONGEST_NAME = 317
"""Characters of a resource name on the axis: a domain of 253, a slash, a name of 63."""

_CACHE_BYTES = 64 * 2**20  # some 20,000 shapes of everyday pods
_TUPLE = 104  # bytes of a tuple of a name and an amount, in a tuple


def counted_requests(shape: PodShape) -> Amounts:
    """Return what a pod adds to the requests of its node: its own, and one pod."""
    return {**shape.requests, PODS: 1}


def quota_requests(shape: PodShape) -> Amounts:
    """Return what a pod adds to the requests of its namespace, as quotas count them."""
    return {**shape.quota_requests, PODS: 1}


def sums_of(shape: PodShape, axis: ResourceAxis) -> IntColumn:
    """Return what a pod adds to the sums of its node: the amounts of each `Sum`, in their order.

    Shape (len(Sum) * n_resources,); what the axis has no place for is left out.
    """
    vector = axis.vector
    return np.concatenate(
        [
            vector(counted_requests(shape)),
            vector(shape.non_zero_requests),
            vector(shape.limits),
            vector(shape.effective_limits),
            vector(shape.effective_limits_non_zero),
            vector(shape.container_limits),
        ]
    )


class Contribution(NamedTuple):
    """The amounts that a pod of one shape adds to its namespace and to its node."""

    requests: tuple[tuple[str, int], ...]  # of the namespace, with `pods`
    # the same by `PodShape.bare_requests`; nearly always the same object
    bare_requests: tuple[tuple[str, int], ...]
    sums: IntColumn  # of the node, (len(Sum) * n_resources,), base units


class ShapeContributions:
    """The contribution of each shape, on the axis of the rows, which it extends as needed."""

    def __init__(self, rows: NodeRows, most_bytes: int = _CACHE_BYTES) -> None:
        self._rows = rows
        self.cached: ByteLimitedCache[PodShape, Contribution] = ByteLimitedCache(
            most_bytes, _size_of
        )
        self._has_unplaced = False  # whether any pod names a resource that is not on the axis

    def of(self, shape: PodShape) -> Contribution:
        """Return the contribution of a shape; it may make room in the sums of the rows."""
        contribution = self.cached.get(shape)
        return self._computed(shape) if contribution is None else contribution

    def offer(self, resources: Iterable[str]) -> bool:
        """Give each resource that a node offers a place.

        Returns:
            Whether pods may have been counted without it, so that they must be counted again.
        """
        if not self._rows.grow_axis(resources):
            return False
        self.cached.clear()  # they lack the new resources
        return self._has_unplaced

    def _computed(self, shape: PodShape) -> Contribution:
        amounts = (shape.requests, shape.limits, shape.effective_limits_non_zero)
        self._place(name for each in amounts for name, amount in each.items() if amount)
        requests = tuple(quota_requests(shape).items())
        bare_requests = (*shape.bare_requests.items(), (PODS, 1))
        contribution = Contribution(
            requests=requests,
            bare_requests=requests if bare_requests == requests else bare_requests,
            sums=sums_of(shape, self._rows.axis),
        )
        self.cached.put(shape, contribution)
        return contribution

    def _place(self, resources: Iterable[str]) -> None:
        """Give resources that a pod names a place while there is room.

        Beyond it only resources that nodes offer count: no pod can be placed for anything else, and
        a pod can name thousands, of any length while nothing has validated it.
        """
        axis = self._rows.axis
        room = max(MOST_RESOURCES - len(axis), 0)
        new = list(islice((n for n in resources if _is_new(n, axis)), room + 1))
        self._has_unplaced |= len(new) > room
        if self._rows.grow_axis(new[:room]):
            self.cached.clear()  # they lack the new resources


def _is_new(name: str, axis: ResourceAxis) -> bool:
    """Return whether a name may have a place on an axis, and has none."""
    return len(name) <= LONGEST_NAME and axis.find(name) is None


def _size_of(shape: PodShape, contribution: Contribution) -> int:
    """Return the bytes of a cached contribution and its shape, about."""
    amounts = len(contribution.requests)
    if contribution.bare_requests is not contribution.requests:
        amounts += len(contribution.bare_requests)
    return shape.size + _TUPLE * amounts + getsizeof(contribution.sums) + _TUPLE
