"""On which nodes the pods of each workload of an AppGroup are.

Only pods that carry the label of an AppGroup are counted here, so others cost nothing.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeAlias

from engine.model.network import Workload

PodsOnNodes: TypeAlias = Mapping[str, int]
"""How many pods there are, by the name of the node; never 0."""


class WorkloadCounts:
    """Pods by workload and node; what was given out is never written to."""

    def __init__(self) -> None:
        self._pods: dict[Workload, dict[str, int]] = {}
        self._own: set[Workload] = set()  # workloads whose counts nobody else holds

    def snapshot(self) -> Mapping[Workload, PodsOnNodes]:
        """Return the pods of each workload, to be held until `unshare` is called."""
        return self._pods

    def unshare(self) -> None:
        """Leave what was given out so far to those who hold it, and write to others."""
        self._pods = self._pods.copy()
        self._own.clear()

    def count(self, workload: Workload, node_name: str, sign: int) -> None:
        """Count a pod that came to a node, 1, or went from it, -1."""
        if workload not in self._own:
            self._own.add(workload)
            self._pods[workload] = dict(self._pods.get(workload, {}))
        on_nodes = self._pods[workload]
        on_nodes[node_name] = on_nodes.get(node_name, 0) + sign
        if not on_nodes[node_name]:
            del on_nodes[node_name]
        if not on_nodes:
            del self._pods[workload]
            self._own.remove(workload)
