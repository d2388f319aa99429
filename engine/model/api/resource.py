"""Kinds of `resource.k8s.io`, dynamic resource allocation."""

from __future__ import annotations

from engine.model.api.meta import ObjectMeta, WireStruct


class DeviceClassSpec(WireStruct, frozen=True):
    """The extended resource that devices of a class stand for."""

    extended_resource_name: str | None = None


class DeviceClass(WireStruct, frozen=True):
    """A `resource.k8s.io/v1` DeviceClass."""

    metadata: ObjectMeta = ObjectMeta()
    spec: DeviceClassSpec = DeviceClassSpec()
