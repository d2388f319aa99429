"""The model of a node: what it offers, and what keeps pods away."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from functools import lru_cache
from sys import intern
from typing import Final, NamedTuple

from engine.model import api, resources
from engine.model.resources import Amounts
from engine.model.selectors import integer
from engine.model.time import Micros, micros

NO_SCHEDULE: Final = "NoSchedule"
NO_EXECUTE: Final = "NoExecute"
PREFER_NO_SCHEDULE: Final = "PreferNoSchedule"


def tolerates(toleration: api.Toleration, taint: api.Taint) -> bool:
    """Return whether one toleration tolerates one taint.

    An empty effect stands for every effect, an empty key for every key and an empty operator for
    Equal. Lt and Gt ask that the taint's value be less or greater than the toleration's, both
    64-bit integers; only clusters with that feature accept such pods.

    Source: api/core/v1/toleration.go (ToleratesTaint).
    """
    if toleration.effect and toleration.effect != taint.effect:
        return False
    if toleration.key and toleration.key != taint.key:
        return False
    match toleration.operator:
        case "" | "Equal":
            return toleration.value == taint.value
        case "Exists":
            return True
        case "Lt" | "Gt":
            limit, value = integer(toleration.value), integer(taint.value)
            if limit is None or value is None:
                return False
            return value < limit if toleration.operator == "Lt" else value > limit
        case _:
            return False


def untolerated(
    taints: Iterable[api.Taint], tolerations: Iterable[api.Toleration], effects: Collection[str]
) -> list[api.Taint]:
    """Return the taints with one of `effects` that no toleration tolerates, in order."""
    return [
        taint
        for taint in taints
        if taint.effect in effects
        and not any(tolerates(toleration, taint) for toleration in tolerations)
    ]


_CACHED_IMAGES = 32_768
_MOST_CONDITIONS = 64  # of one node that are kept
_LONGEST_REASON = 1024  # as of conditions of API types: metav1.Condition


class NodeCondition(NamedTuple):
    """A condition of a node, without the time of its heartbeat, which changes all the time."""

    type: str  # as `Ready`; by convention a node has one condition of a type
    status: str  # `True`, `False` or `Unknown`
    reason: str  # a word for the cause, "" where there is none
    since: Micros | None  # when the status last changed, None where it is not said


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
    """Return the model of a Node."""
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


IMPLICIT_DOMAIN = "deviceclass.resource.kubernetes.io/"
"""Before the name of a class: an extended resource that each class stands for by itself."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceClass:
    """A DeviceClass."""

    name: str
    resource: str  # the extended resource that its devices provide, "" for none
    node_name: str = ""

    @property
    def key(self) -> str:
        """The extended resource: rules look for a class by it."""
        return self.resource


def device_class_of(wire: api.DeviceClass) -> DeviceClass:
    """Return the model of a DeviceClass."""
    return DeviceClass(name=wire.metadata.name, resource=wire.spec.extended_resource_name or "")
