"""The group `node.k8s.io`: RuntimeClasses."""

from __future__ import annotations

from engine.model.api.core import Toleration
from engine.model.api.meta import ObjectMeta, ResourceList, WireStruct


class Overhead(WireStruct, frozen=True):
    """What a pod of the class takes beside its containers."""

    pod_fixed: ResourceList | None = None


class Scheduling(WireStruct, frozen=True):
    """The nodes that support the class."""

    node_selector: dict[str, str] | None = None
    tolerations: list[Toleration] | None = None


class RuntimeClass(WireStruct, frozen=True):
    """A `node.k8s.io/v1` RuntimeClass."""

    metadata: ObjectMeta = ObjectMeta()
    overhead: Overhead | None = None
    scheduling: Scheduling | None = None
