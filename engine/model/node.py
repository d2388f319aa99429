"""The model of a node: what it offers, and what keeps pods away."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from functools import lru_cache
from sys import intern
from typing import NamedTuple

from engine.model import api, resources
from engine.model.resources import Amounts
from engine.model.time import Micros, micros

_CACHED_IMAGES = 32_768
_MOST_CONDITIONS = 64  # of one node that are kept
_LONGEST_REASON = 1024  # as of conditions of API types: metav1.Condition


class NodeCondition(NamedTuple):
    """A condition of a node, without the time of its heartbeat, which changes all the time.

    Attributes:
        type: as `Ready`; by convention a node has one condition of a type.
        status: `True`, `False` or `Unknown`.
        reason: a word for the cause, "" where there is none.
        since: when the status last changed, None where it is not said.
    """

    type: str
    status: str
    reason: str
    since: Micros | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Node:
    """One node.

    Attributes:
        allocatable: what pods may request, base units.
        capacity: total amounts, base units; the allocatable if it has none.
        images: the container images it holds, each object shared between the nodes that hold it. Of
            several of one name the first has it.
        unschedulable: whether it is cordoned.
        ready: condition Ready; True if it has no such condition.
        created: creation time, None where it has none.
        conditions: its conditions, in its order.
    """

    name: str
    labels: Mapping[str, str] = field(default_factory=dict)
    annotations: Mapping[str, str] = field(default_factory=dict)
    taints: tuple[api.Taint, ...] = ()
    unschedulable: bool = False
    ready: bool = True
    allocatable: Amounts
    capacity: Amounts = field(default_factory=dict)
    images: tuple[api.ContainerImage, ...] = ()
    created: Micros | None = None
    conditions: tuple[NodeCondition, ...] = ()

    def takes_the_same_pods_as(self, other: Node) -> bool:
        """Return whether pods that could run on one could run on the other, were both empty."""
        return (
            self.labels == other.labels
            and self.taints == other.taints
            and self.unschedulable == other.unschedulable
            and self.allocatable == other.allocatable
        )


def node_of(wire: api.Node) -> Node:
    """Return the model of a Node.

    Raises:
        QuantityError: an amount is not a quantity.
    """
    conditions = wire.status.conditions or ()
    allocatable, capacity = resources.amounts(wire.status.allocatable), wire.status.capacity
    return Node(
        name=wire.metadata.name,
        labels=wire.metadata.labels or {},
        annotations=wire.metadata.annotations or {},
        taints=tuple(wire.spec.taints or ()),
        unschedulable=wire.spec.unschedulable,
        ready=all(c.status == "True" for c in conditions if c.type == "Ready"),
        allocatable=allocatable,
        capacity=allocatable if capacity is None else resources.amounts(capacity),
        images=_images(wire.status.images or ()),
        created=_micros(wire.metadata.creation_timestamp),
        conditions=tuple(map(_condition, conditions[:_MOST_CONDITIONS])),
    )


def _condition(wire: api.NodeCondition) -> NodeCondition:
    """Return a condition; its texts are shared by all nodes."""
    reason = intern(wire.reason[:_LONGEST_REASON])
    since = _micros(wire.last_transition_time)
    return NodeCondition(intern(wire.type), intern(wire.status), reason, since)


def _micros(moment: datetime | None) -> Micros | None:
    return None if moment is None else micros(moment)


def _images(listed: Sequence[api.ContainerImage]) -> tuple[api.ContainerImage, ...]:
    """Return images without names that an earlier one has (scheduler/backend/cache/cache.go)."""
    images = tuple(map(_shared, listed))
    names = [name for image in images for name in image.names or ()]
    if len(set(names)) == len(names):
        return images
    taken: set[str] = set()
    kept = []
    for image in images:
        own = tuple(name for name in dict.fromkeys(image.names or ()) if name not in taken)
        taken.update(own)
        kept.append(_shared(api.ContainerImage(names=own, size_bytes=image.size_bytes)))
    return tuple(kept)


@lru_cache(maxsize=_CACHED_IMAGES)
def _shared(image: api.ContainerImage) -> api.ContainerImage:
    """Return an equal image, the same object for all nodes.

    At 5,000 nodes of 50 images this takes 2 MB instead of more than a hundred.
    """
    return image
