"""Zones, disks and a network for a generated cluster, and pods that ask for all of it."""

from __future__ import annotations

from random import Random
from typing import TYPE_CHECKING, Final

from msgspec.structs import replace as changed

from engine.model import api
from engine.model.disk_io import THROUGHPUT_ANNOTATION, Disk, NodeDisks
from engine.model.network import (
    APP_GROUP_LABEL,
    WORKLOAD_LABEL,
    AppGroup,
    Dependency,
    NetworkTopology,
)
from engine.model.node import node_of
from engine.model.numa import CONTAINER_SCOPE, SINGLE_ZONE, NodeZones, NumaLayout
from engine.model.pod import pod_of
from engine.model.well_known import ZONE_LABEL
from engine.view import ClusterState

if TYPE_CHECKING:
    from engine.model.node import Node
    from engine.model.pod import Pod

_DEVICE: Final = "example.com/gpu"
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


def with_zones(count: int, nodes: int) -> ClusterState:
    """Return a cluster of nodes with so many zones, in each of which something else is left."""
    far = tuple(tuple(_distance(one, other) for other in range(count)) for one in range(count))
    layout = NumaLayout(SINGLE_ZONE, CONTAINER_SCOPE, 8, far)
    drawn = Random(count)
    state = ClusterState()
    for row in range(nodes):
        node = node_of(
            api.Node(
                metadata=api.ObjectMeta(name=f"node-{row}"),
                status=api.NodeStatus(allocatable={"cpu": "256", "memory": "1Ti", _DEVICE: "64"}),
            )
        )
        left = [
            {"cpu": drawn.randrange(0, 16_001, 100), "memory": drawn.randrange(64) << 30}
            | {_DEVICE: drawn.randrange(5)}
            for _ in range(count)
        ]
        state.set_node(node)
        state.set_extra(NodeZones(node.name, layout, tuple(left)))
    return state


def wanting_devices(number: int) -> Pod:
    """Return a Guaranteed pod of two containers and three resources; each number asks for more."""
    amounts: list[api.ResourceList] = [
        {"cpu": f"{1000 + 5 * number}m", "memory": f"{2048 + number}Mi", _DEVICE: "1"},
        {"cpu": f"{500 + 5 * number}m", "memory": f"{1024 + number}Mi", _DEVICE: "2"},
    ]
    containers = [
        api.Container(resources=api.ResourceRequirements(requests=one, limits=one))
        for one in amounts
    ]
    return pod_of(api.Pod(metadata=api.ObjectMeta(), spec=api.PodSpec(containers=containers)))


def _distance(one: int, other: int) -> int:
    return 10 if one == other else 12 if one // 2 == other // 2 else 21


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
