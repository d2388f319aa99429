"""Readings of nodes and of pods, joined: `metrics.k8s.io` does not say which node a pod is on."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace

from engine.model.resource_metrics import PodReading
from engine.model.usage import NodeUsage, PodUsage, PodUsages
from engine.view import ClusterState


def join_readings(
    nodes: Iterable[NodeUsage], pods: Iterable[PodReading], state: ClusterState
) -> Iterator[NodeUsage]:
    """Yield the usage of nodes with that of the pods which the state knows on them.

    Without any reading of a pod, usage of pods was not measured.
    """
    readings = list(pods)
    on_nodes = PodsOnNodes(state)
    for reading in readings:
        on_nodes.add(reading)
    for node in nodes:
        yield on_nodes.join(node) if readings else replace(node, pods_measured=False)


class PodsOnNodes:
    """Readings of pods by node.

    Args:
        state: knows the node of each pod.
    """

    def __init__(self, state: ClusterState) -> None:
        self._state = state
        self._by_node: dict[str, dict[str, PodUsage]] = {}

    def add(self, reading: PodReading) -> None:
        """Add a reading; its pod counts as production by its own class, as the API has no other."""
        place = self._state.placement(reading.key)
        if place is not None and reading.usage:
            node_name, shape = place
            usage = PodUsage(reading.usage, shape.is_prod)
            self._by_node.setdefault(node_name, {})[reading.key] = usage

    def join(self, node: NodeUsage) -> NodeUsage:
        """Return the usage of a node with that of its pods."""
        return replace(node, pods=PodUsages(self._by_node.get(node.node_name, {})))
