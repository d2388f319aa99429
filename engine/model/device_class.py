"""The model of a DeviceClass: the extended resource that devices stand for."""

from __future__ import annotations

from dataclasses import dataclass

from engine.model import api

IMPLICIT_DOMAIN = "deviceclass.resource.kubernetes.io/"
"""Before the name of a class: an extended resource that each class stands for by itself."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceClass:
    """A DeviceClass.

    Attributes:
        resource: the extended resource that its devices provide, "" for none.
    """

    name: str
    resource: str
    node_name: str = ""

    @property
    def key(self) -> str:
        """The extended resource: rules look for a class by it."""
        return self.resource


def device_class_of(wire: api.DeviceClass) -> DeviceClass:
    """Return the model of a DeviceClass."""
    return DeviceClass(name=wire.metadata.name, resource=wire.spec.extended_resource_name or "")
