"""The amounts that a pod of each shape adds to its node and namespace, computed once per shape."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import islice
from typing import NamedTuple

import numpy as np

from engine.model.pod import PodShape
from engine.model.resource_names import PODS
from engine.model.resources import Amounts
from engine.view.axis import IntColumn
from engine.view.rows import NodeRows

MOST_RESOURCES = 128
"""Resources on the axis, unless nodes offer more; each costs 48 bytes a node."""

_SHAPES_REMEMBERED = 65_536


def counted_requests(shape: PodShape) -> Amounts:
    """Return what a pod adds to the requests of its node and namespace: its own, and one pod."""
    return {**shape.requests, PODS: 1}


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
    """The contribution of each shape, on the axis of the rows, which it extends as needed."""

    def __init__(self, rows: NodeRows) -> None:
        self._rows = rows
        self._by_shape: dict[PodShape, Contribution] = {}
        self._has_unplaced = False  # whether any pod names a resource that is not on the axis

    def of(self, shape: PodShape) -> Contribution:
        """Return the contribution of a shape; it may make room in the sums of the rows."""
        contribution = self._by_shape.get(shape)
        return self._remembered(shape) if contribution is None else contribution

    def offer(self, resources: Iterable[str]) -> bool:
        """Give each resource that a node offers a place.

        Returns:
            Whether pods may have been counted without it, so that they must be counted again.
        """
        if not self._rows.grow_axis(resources):
            return False
        self._by_shape.clear()  # they lack the new resources
        return self._has_unplaced

    def _remembered(self, shape: PodShape) -> Contribution:
        if len(self._by_shape) > _SHAPES_REMEMBERED:
            self._by_shape.clear()
        amounts = (shape.requests, shape.limits, shape.effective_limits_non_zero)
        self._place(name for each in amounts for name, amount in each.items() if amount)
        requests = tuple(counted_requests(shape).items())
        bare_requests = (*shape.bare_requests.items(), (PODS, 1))
        contribution = self._by_shape[shape] = Contribution(
            requests=requests,
            bare_requests=requests if bare_requests == requests else bare_requests,
            sums=self._sums(shape),
        )
        return contribution

    def _sums(self, shape: PodShape) -> IntColumn:
        """Return the amounts of each `Sum`, in their order."""
        vector = self._rows.axis.vector
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

    def _place(self, resources: Iterable[str]) -> None:
        """Give resources that a pod names a place while there is room.

        Beyond it only resources that nodes offer count: no pod can be placed for anything else, and
        a pod can name thousands.
        """
        axis = self._rows.axis
        room = max(MOST_RESOURCES - len(axis), 0)
        new = list(islice((name for name in resources if axis.find(name) is None), room + 1))
        self._has_unplaced |= len(new) > room
        if self._rows.grow_axis(new[:room]):
            self._by_shape.clear()  # they lack the new resources
