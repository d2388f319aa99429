"""A node as the engine sees it: what it offers and what keeps pods away."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from engine.model import api, resources

if TYPE_CHECKING:
    from engine.model.resources import Amounts


@dataclass(frozen=True, slots=True, kw_only=True)
class Node:
    """One node.

    Attributes:
        allocatable: what pods may request, base units.
        unschedulable: whether it is cordoned.
        ready: condition Ready; True when nothing is said about it.
    """

    name: str
    labels: Mapping[str, str] = field(default_factory=dict)
    annotations: Mapping[str, str] = field(default_factory=dict)
    taints: tuple[api.Taint, ...] = ()
    unschedulable: bool = False
    ready: bool = True
    allocatable: Amounts


def node_of(wire: api.Node) -> Node:
    """Return the engine's node for its wire form.

    Raises:
        QuantityError: an amount is not a quantity.
    """
    conditions = wire.status.conditions or ()
    return Node(
        name=wire.metadata.name,
        labels=wire.metadata.labels or {},
        annotations=wire.metadata.annotations or {},
        taints=tuple(wire.spec.taints or ()),
        unschedulable=wire.spec.unschedulable,
        ready=all(c.status == "True" for c in conditions if c.type == "Ready"),
        allocatable=resources.amounts(wire.status.allocatable),
    )
