"""The model of a RuntimeClass: what admission adds to the pods that name it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from engine.model import api
from engine.model.quantity import base_units


@dataclass(frozen=True, slots=True, kw_only=True)
class RuntimeClass:
    """A RuntimeClass.

    Attributes:
        overhead: quantities by resource, as written; empty for none.
        node_selector: of the nodes that support it.
        tolerations: of its pods.
    """

    name: str
    overhead: Mapping[str, api.Quantity] = field(default_factory=dict)
    node_selector: Mapping[str, str] = field(default_factory=dict)
    tolerations: tuple[api.Toleration, ...] = ()
    node_name: str = ""

    @property
    def key(self) -> str:
        """Its name, which is unique."""
        return self.name


def runtime_class_of(wire: api.RuntimeClass) -> RuntimeClass:
    """Return the model of a RuntimeClass.

    Raises:
        QuantityError: an amount is not a quantity.
    """
    overhead = (wire.overhead or api.Overhead()).pod_fixed or {}
    for resource, amount in overhead.items():
        base_units(resource, amount)
    scheduling = wire.scheduling or api.Scheduling()
    return RuntimeClass(
        name=wire.metadata.name,
        overhead=overhead,
        node_selector=scheduling.node_selector or {},
        tolerations=tuple(scheduling.tolerations or ()),
    )
