"""Zones, disks and networks of small clusters, written in as few words as a test needs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from engine.model import api
from engine.model.node import Node
from engine.model.pod import Pod
from engine.model.scheduler_plugins import (
    APP_GROUP_LABEL,
    WORKLOAD_LABEL,
    AppGroup,
    Disk,
    NetworkTopology,
    NodeDisks,
    NodeZones,
    app_group_of,
    network_topology_of,
    node_zones_of,
)
from engine.model.well_known import REGION_LABEL, ZONE_LABEL
from engine.view import ClusterState
from tests.builders import node_from, pod_from
from tests.engine.measured_cluster import NOW

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from engine.model.kinds import AuxObject
    from engine.view import ClusterView, PodSumProfile

Amounts = dict[str, str]
GPU = "x.com/gpu"


def node(name: str, *, region: str = "", zone: str = "", **allocatable: str) -> Node:
    """Return a node in a place that offers these amounts."""
    labels = {key: text for key, text in ((REGION_LABEL, region), (ZONE_LABEL, zone)) if text}
    wire = {
        "metadata": {"name": name, "labels": labels},
        "status": {"allocatable": {"cpu": "64", "memory": "256Gi", "pods": "99", **allocatable}},
    }
    return node_from(wire)


def zones(
    name: str,
    *available: Amounts,
    policy: str = "single-numa-node",
    scope: str = "container",
    distances: Sequence[Sequence[int]] = (),
    **attributes: str,
) -> NodeZones:
    """Return what is left in the zones of a node."""
    told = {"topologyManagerPolicy": policy, "topologyManagerScope": scope, **attributes}
    wire = {
        "metadata": {"name": name},
        "attributes": [{"name": key, "value": value} for key, value in told.items()],
        "zones": [
            {
                "name": f"node-{i}",
                "type": "Node",
                "resources": [{"name": key, "available": text} for key, text in amounts.items()],
                "costs": [
                    {"name": f"node-{j}", "value": far}
                    for j, far in enumerate(distances[i] if distances else ())
                ],
            }
            for i, amounts in enumerate(available)
        ],
    }
    return node_zones_of(msgspec.convert(wire, api.NodeResourceTopology))


def disks(name: str, *left: tuple[int, int, int]) -> NodeDisks:
    """Return disks with a total, a read and a write bandwidth left."""
    return NodeDisks(name, tuple(Disk(*one) for one in left))


def app_group(name: str, **needs: Mapping[str, int]) -> AppGroup:
    """Return an AppGroup: by workload, what it needs to reach at which cost at most."""
    workloads = [
        {
            "workload": {"selector": selector},
            "dependencies": [
                {"workload": {"selector": other}, "maxNetworkCost": cost}
                for other, cost in others.items()
            ],
        }
        for selector, others in needs.items()
    ]
    wire = {"metadata": {"name": name, "namespace": "default"}, "spec": {"workloads": workloads}}
    return app_group_of(msgspec.convert(wire, api.AppGroup))


def network(
    regions: Mapping[tuple[str, str], int] | None = None,
    zones: Mapping[tuple[str, str], int] | None = None,
    name: str = "nt-default",
) -> NetworkTopology:
    """Return a NetworkTopology: what it costs from one region or zone to another."""
    both = ((REGION_LABEL, regions or {}), (ZONE_LABEL, zones or {}))
    topologies = [
        {
            "topologyKey": label,
            "originList": [
                {"origin": one, "costList": [{"destination": other, "networkCost": cost}]}
                for (one, other), cost in costs.items()
            ],
        }
        for label, costs in both
    ]
    weights = [{"name": "UserDefined", "topologyList": topologies}]
    wire = {"metadata": {"name": name, "namespace": "default"}, "spec": {"weights": weights}}
    return network_topology_of(msgspec.convert(wire, api.NetworkTopology))


def pod(
    *containers: Amounts,
    init: Sequence[Amounts] = (),
    name: str = "incoming",
    on: str = "",
    workload: str = "",
    is_guaranteed: bool = True,
    annotations: Mapping[str, str] | None = None,
    **spec: Any,  # noqa: ANN401 (any part of a pod's spec)
) -> Pod:
    """Return a pod whose containers request these amounts; `workload` is of the group `shop`."""

    def container(amounts: Amounts) -> dict[str, Any]:
        sides = {"requests": amounts} | ({"limits": amounts} if is_guaranteed else {})
        return {"resources": sides}

    labels = {APP_GROUP_LABEL: "shop", WORKLOAD_LABEL: workload} if workload else {}
    wire = {
        "metadata": {
            "name": name,
            "namespace": "default",
            "labels": labels,
            "annotations": annotations or {},
        },
        "spec": {
            "nodeName": on,
            "containers": [container(one) for one in containers],
            "initContainers": [container(one) for one in init],
            **spec,
        },
    }
    return pod_from(wire)


def cluster(
    nodes: Iterable[Node],
    extras: Iterable[AuxObject] = (),
    pods: Iterable[Pod] = (),
    profiles: Sequence[PodSumProfile] = (),
) -> ClusterView:
    """Return the view of these objects."""
    state = ClusterState()
    state.track_sums(profiles)
    for one in nodes:
        state.set_node(one)
    for extra in extras:
        state.set_extra(extra)
    for one_pod in pods:
        state.set_pod(one_pod, seen_at=NOW)
    return state.view()
