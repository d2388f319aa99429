"""What a pod of each shape adds, worked out once per shape."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, NamedTuple

from engine.model.resource_names import PODS
from engine.view.axis import IntColumn
from engine.view.sums import counted_requests, named_resources, shape_vector

if TYPE_CHECKING:
    from engine.model.pod import PodShape
    from engine.view.rows import NodeRows

MOST_RESOURCES = 128
"""Resources on the axis, unless nodes offer more; each costs 48 bytes a node."""

_SHAPES_REMEMBERED = 65_536


class Share(NamedTuple):
    """What a pod of one shape adds to its namespace and to its node.

    Attributes:
        requests: of the namespace, with `pods`.
        bare_requests: the same by `PodShape.bare_requests`; nearly always the same object.
        sums: of the node, (len(Sum) * n_resources,), base units.
    """

    requests: tuple[tuple[str, int], ...]
    bare_requests: tuple[tuple[str, int], ...]
    sums: IntColumn


class ShapeContributions:
    """The share of each shape, on the axis of the rows; gives resources their place on it."""

    def __init__(self, rows: NodeRows) -> None:
        self._rows = rows
        self._shares: dict[PodShape, Share] = {}
        self._has_unplaced = False  # whether any pod names a resource that is not on the axis

    def of(self, shape: PodShape) -> Share:
        """Return the share of a shape; it may make room in the sums of the rows."""
        share = self._shares.get(shape)
        return self._remembered(shape) if share is None else share

    def offer(self, resources: Iterable[str]) -> bool:
        """Give each resource that a node offers a place.

        Returns:
            Whether pods may have been counted without it, so that they must be counted again.
        """
        if not self._rows.grow_axis(resources):
            return False
        self._shares.clear()  # they lack the new resources
        return self._has_unplaced

    def _remembered(self, shape: PodShape) -> Share:
        """Work out the share of a shape."""
        if len(self._shares) > _SHAPES_REMEMBERED:
            self._shares.clear()
        self._name(named_resources(shape))
        requests = tuple(counted_requests(shape).items())
        bare_requests = (*shape.bare_requests.items(), (PODS, 1))
        share = self._shares[shape] = Share(
            requests=requests,
            bare_requests=requests if bare_requests == requests else bare_requests,
            sums=shape_vector(shape, self._rows.axis).reshape(-1),
        )
        return share

    def _name(self, resources: Iterable[str]) -> None:
        """Give resources that a pod names a place while there is room.

        Beyond it only what nodes offer counts: no pod can be placed for anything else, and a pod
        can name thousands.
        """
        axis = self._rows.axis
        new = [name for name in resources if axis.find(name) is None]
        room = max(MOST_RESOURCES - len(axis), 0)
        self._has_unplaced |= len(new) > room
        if self._rows.grow_axis(new[:room]):
            self._shares.clear()  # they lack the new resources
