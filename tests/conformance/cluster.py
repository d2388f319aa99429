"""The cluster and the incoming pod of a case, built the way the program builds them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import msgspec

from engine.model import api
from engine.model.gang import pod_group_of
from engine.model.kubernetes_version import kubernetes_version_of
from engine.model.pod import Pod, pod_of
from engine.model.scheduler_plugins import app_group_of, network_topology_of, node_zones_of
from engine.model.time import Micros
from engine.view import ClusterState
from tests.builders import node_from

if TYPE_CHECKING:
    from collections.abc import Callable

    from engine.model.kinds import AuxObject
    from engine.view import ClusterView
    from tests.conformance.outcome import Json

NOW: Final = Micros(0)
"""For rules that do not ask what time it is."""


_EXTRAS: Final[tuple[tuple[str, type, Callable[[Any], AuxObject]], ...]] = (
    ("nrts", api.NodeResourceTopology, node_zones_of),
    ("appgroups", api.AppGroup, app_group_of),
    ("podgroups", api.PodGroup, pod_group_of),
    ("networktopologies", api.NetworkTopology, network_topology_of),
)
"""Lists of a case that only some rules read, and how they become objects of a cluster."""


def cluster_of(case: Json) -> ClusterView:
    """Return the nodes of a case with those of its pods that are bound or nominated to one."""
    state = ClusterState()
    state.set_kubernetes(kubernetes_version_of(case.get("kubernetes", "")))
    for node in case.get("nodes", ()):
        state.set_node(node_from(node))
    for key, wire, made in _EXTRAS:
        for extra in case.get(key, ()):
            state.set_extra(made(msgspec.convert(extra, wire)))
    for i, written in enumerate(case.get("pods", ())):
        pod = pod_of(msgspec.convert(written, api.Pod), namespace=f"namespace-{i}")
        if pod.node_name or pod.nominated_node_name:
            state.set_pod(pod, seen_at=NOW)
    return state.view()


def incoming(case: Json) -> Pod:
    """Return the pod that a case asks about."""
    return pod_of(msgspec.convert(case["pod"], api.Pod), namespace="default")
