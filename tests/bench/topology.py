"""Zones, disks and a network for a generated cluster, and pods that ask for all of it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from msgspec.structs import replace as changed

from engine.model import api
from engine.model.disk_io import THROUGHPUT_ANNOTATION, Disk, NodeDisks
from engine.model.network import (
    APP_GROUP_LABEL,
    WORKLOAD_LABEL,
    ZONE_LABEL,
    AppGroup,
    Dependency,
    NetworkTopology,
)
from engine.model.numa import CONTAINER_SCOPE, SINGLE_ZONE, NodeZones, NumaLayout

if TYPE_CHECKING:
    from engine.model.node import Node
    from engine.view import ClusterState

_GROUP: Final = "bench"
_WORKLOADS: Final = ("front", "cart", "store")
_FRONT: Final = {APP_GROUP_LABEL: _GROUP, WORKLOAD_LABEL: _WORKLOADS[0]}
_PEER_EVERY: Final = 500  # so that 300 of 150,000 pods are talked to
_MBPS: Final = 10**6
_LAYOUT: Final = NumaLayout(SINGLE_ZONE, CONTAINER_SCOPE, 8, ((10, 21), (21, 10)))


def add_node_topology(state: ClusterState, node: Node) -> None:
    """Tell of the two zones and two disks of a node."""
    half = {name: amount // len(_LAYOUT) for name, amount in node.allocatable.items()}
    state.set_extra(NodeZones(node.name, _LAYOUT, (half, half)))
    disk = Disk(2000 * _MBPS, 1000 * _MBPS, 1000 * _MBPS)
    state.set_extra(NodeDisks(node.name, (disk, disk)))


def add_network(state: ClusterState, zones: set[str]) -> None:
    """Tell of an application, and of what traffic costs between all zones."""
    front, *others = _WORKLOADS
    dependencies = {front: tuple(Dependency(other, 10) for other in others)}
    state.set_extra(AppGroup(f"default/{_GROUP}", dependencies))
    costs = {one: {other: len(one + other) for other in zones} for one in zones}
    topology = NetworkTopology("default/nt-default", {"UserDefined": {ZONE_LABEL: costs}})
    state.set_extra(topology)


def zone_of(node: Node) -> str:
    """Return the zone that a node is labelled with."""
    return node.labels.get(ZONE_LABEL, "")


def peer(wire: api.Pod, number: int) -> api.Pod:
    """Return a stored pod, one of the application's now and then."""
    if number % _PEER_EVERY:
        return wire
    workload = _WORKLOADS[1 + number // _PEER_EVERY % 2]
    labels = {APP_GROUP_LABEL: _GROUP, WORKLOAD_LABEL: workload}
    return changed(wire, metadata=changed(wire.metadata, labels=labels))


def wanting_all(wire: api.Pod) -> api.Pod:
    """Return a new pod that is Guaranteed, reads and writes, and talks to others."""
    meta = changed(
        wire.metadata,
        name="",
        labels={**(wire.metadata.labels or {}), **_FRONT},
        annotations={THROUGHPUT_ANNOTATION: '{"rbps":"20M","wbps":"30M"}'},
    )
    spec = changed(
        wire.spec, node_name="", containers=[_guaranteed(one) for one in wire.spec.containers or ()]
    )
    return changed(wire, metadata=meta, spec=spec)


def _guaranteed(container: api.Container) -> api.Container:
    written = container.resources and container.resources.requests
    amounts = {"cpu": "1", "memory": "1Gi", **(written or {})}
    return changed(container, resources=api.ResourceRequirements(requests=amounts, limits=amounts))
