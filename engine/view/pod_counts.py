"""Counts by node of the few pods that some rules need one by one: in transition, or of AppGroups.

Both are kept beside the table of all pods, so that other pods cost nothing.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple, TypeAlias

from engine.model.network import Workload
from engine.model.pod import Pod

PodsOnNodes: TypeAlias = Mapping[str, int]
"""Number of pods by node name; never 0."""


class PodTransitions(NamedTuple):
    """Pods of a node that are being deleted, and pending ones that are nominated to it."""

    terminating: int = 0
    nominated: int = 0

    def plus(self, other: PodTransitions, times: int) -> PodTransitions:
        """Return the sum with so many times another, -1 to take one off."""
        return PodTransitions(
            self.terminating + times * other.terminating, self.nominated + times * other.nominated
        )


_TERMINATING = PodTransitions(terminating=1)
NOMINATED = PodTransitions(nominated=1)
NO_TRANSITIONS = PodTransitions()


class TransitionCounts:
    """The transitions of each node that has any, by name; snapshots are never written to."""

    def __init__(self) -> None:
        self._by_pod: dict[str, tuple[str, PodTransitions]] = {}
        self._by_node: dict[str, PodTransitions] = {}

    def snapshot(self) -> Mapping[str, PodTransitions]:
        """Return the transitions by node name, valid until `unshare` is called."""
        return self._by_node

    def unshare(self) -> None:
        """Leave the snapshots to their holders, and write to a copy."""
        self._by_node = self._by_node.copy()

    def would_change(self, key: str, pod: Pod | None) -> bool:
        """Return whether `put` of the same would change anything."""
        if pod is None or not (pod.deleting or pod.nominated_node_name):
            return key in self._by_pod  # nearly every pod, at every event: so first
        return self._by_pod.get(key) != _transition(pod)

    def put(self, key: str, pod: Pod | None) -> tuple[str, ...]:
        """Count a pod as it now is, None if it is gone; return the names of the nodes concerned."""
        return self._replace(key, _transition(pod))

    def nominate(self, key: str, node_name: str) -> tuple[str, ...]:
        """Count a pod as nominated to a node, "" for none; return the names as `put` does."""
        return self._replace(key, (node_name, NOMINATED) if node_name else None)

    def _replace(self, key: str, new: tuple[str, PodTransitions] | None) -> tuple[str, ...]:
        old = self._by_pod.pop(key, None)
        if old is not None:
            self._add(*old, times=-1)
        if new is not None:
            self._by_pod[key] = new
            self._add(*new, times=1)
        return tuple(node_name for node_name, _ in filter(None, (old, new)))

    def _add(self, node_name: str, transitions: PodTransitions, *, times: int) -> None:
        total = self._by_node.pop(node_name, NO_TRANSITIONS).plus(transitions, times)
        if total != NO_TRANSITIONS:
            self._by_node[node_name] = total


def _transition(pod: Pod | None) -> tuple[str, PodTransitions] | None:
    """Return the node of a pod in transition and its count there, None for any other pod."""
    if pod is None:
        return None
    if pod.node_name:
        return (pod.node_name, _TERMINATING) if pod.deleting else None
    if pod.nominated_node_name:
        return pod.nominated_node_name, NOMINATED
    return None


class WorkloadCounts:
    """Pods of AppGroups by workload and node; snapshots are never written to."""

    def __init__(self) -> None:
        self._pods: dict[Workload, dict[str, int]] = {}
        self._own: set[Workload] = set()  # workloads whose counts no snapshot holds

    def snapshot(self) -> Mapping[Workload, PodsOnNodes]:
        """Return the pods of each workload, valid until `unshare` is called."""
        return self._pods

    def unshare(self) -> None:
        """Leave the snapshots to their holders, and write to copies."""
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
