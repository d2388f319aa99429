"""The cluster and the incoming pod of a case, built the way the program builds them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import msgspec

from engine.model import api
from engine.model.node import node_of
from engine.model.pod import Pod, pod_of
from engine.model.time import Micros
from engine.view import ClusterState

if TYPE_CHECKING:
    from engine.view import ClusterView
    from tests.conformance.outcome import Json

NOW: Final = Micros(0)
"""For rules that do not ask what time it is."""


def cluster_of(case: Json) -> ClusterView:
    """Return the nodes of a case with those of its pods that are bound to one."""
    state = ClusterState()
    for node in case.get("nodes", ()):
        state.set_node(node_of(msgspec.convert(node, api.Node)))
    for i, written in enumerate(case.get("pods", ())):
        pod = pod_of(msgspec.convert(written, api.Pod), namespace=f"namespace-{i}")
        if pod.node_name:
            state.set_pod(pod, seen_at=NOW)
    return state.view()


def incoming(case: Json) -> Pod:
    """Return the pod that a case asks about."""
    return pod_of(msgspec.convert(case["pod"], api.Pod), namespace="default")
