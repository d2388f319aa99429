"""The amounts that a pod of each shape adds to its node and namespace, computed once per shape."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import islice
from sys import getsizeof
from typing import NamedTuple

import numpy as np

from engine.model.byte_limited_cache import ByteLimitedCache
from engine.model.pod_shape import PodShape
from engine.model.resource_names import PODS
from engine.model.resources import Amounts
from engine.view.axis import IntColumn, ResourceAxis
from engine.view.rows import NodeRows

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
    """The amounts that a pod of one shape adds to its namespace and to its node.

    Attributes:
        requests: of the namespace, with `pods`.
        bare_requests: the same by `PodShape.bare_requests`; nearly always the same object.
        sums: of the node, (len(Sum) * n_resources,), base units.
    """

    requests: tuple[tuple[str, int], ...]
    bare_requests: tuple[tuple[str, int], ...]
    sums: IntColumn


class ShapeContributions:
    """The contribution of each shape, on the axis of the rows, which it extends as needed.

    Args:
        rows: have the axis.
        most_bytes: of the contributions that are cached, and their shapes.
    """

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
