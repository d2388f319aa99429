"""Nodes of 4 cores, pods that wait, and policies that decide at binding."""

from __future__ import annotations

from typing import Any

from engine.binding import BindingAction, BindingDecision, BindingReason
from engine.model.decision import PlacementRequest
from engine.model.node import Node
from engine.model.pod import Pod
from engine.model.time import SECOND, Micros
from engine.policy import PolicySet
from engine.view import ClusterState, ClusterView
from tests.builders import request_from
from tests.engine.policy.worlds import GIB, policies

NOW = Micros(1_700_000_000 * SECOND)

AT_BINDING = "placement: {at: Binding}"

Outcome = tuple[BindingAction, str, BindingReason]


def outcome(decision: BindingDecision) -> Outcome:
    """Return what became of a binding."""
    return decision.action, decision.node_name, decision.reason


def by_rank(*more: str, weight: int = 1) -> PolicySet:
    """Return a policy that ranks nodes by their label, and has more parts."""
    score = f"- {{name: rank, expression: \"int(node.labels['rank'])\", weight: {weight}}}"
    return policies(p="\n".join(("scores:", score, *(more or (AT_BINDING,)))))


def node(name: str, rank: int = 0, cores: int = 4, **more: Any) -> Node:  # noqa: ANN401 - its fields
    """Return a node with some cores, 8 GiB and room for 10 pods."""
    offered = {"cpu": 1000 * cores, "memory": 8 * GIB, "pods": 10}
    return Node(**{"name": name, "labels": {"rank": str(rank)}, "allocatable": offered, **more})


def request(
    name: str = "p",
    *,
    cpu: str = "1",
    on: str = "",
    requests: dict[str, str] | None = None,
    status: dict[str, Any] | None = None,
    metadata: dict[str, Any] | None = None,
    **spec: Any,  # noqa: ANN401 - JSON
) -> PlacementRequest:
    """Return the request of a stored pod of namespace `shop`, whose uid is its name."""
    container = {"name": "c", "resources": {"requests": {"cpu": cpu, **(requests or {})}}}
    wire = {
        "metadata": {"namespace": "shop", "name": name, "uid": name, **(metadata or {})},
        "spec": {"containers": [container], "nodeName": on, **spec},
        "status": status or {},
    }
    return request_from(wire)


def pod(name: str = "p", **more: Any) -> Pod:  # noqa: ANN401 - see `request`
    """Return the pod of `request`."""
    return request(name, **more).pod


def cluster(*objects: Node | Pod) -> ClusterState:
    """Return a state of nodes and pods."""
    state = ClusterState()
    for one in objects:
        if isinstance(one, Node):
            state.set_node(one)
        else:
            state.set_pod(one, seen_at=NOW)
    return state


def view_of(*objects: Node | Pod) -> ClusterView:
    """Return a view of nodes and pods."""
    return cluster(*objects).view()
