"""The cluster of one arm, as pods come and go."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from itertools import chain
from typing import Final

import numpy as np
from msgspec import structs

from engine.model.node import Node
from engine.model.pod import Pod
from engine.model.time import SECOND, Micros, micros
from engine.model.usage import (
    NO_POD_USAGES,
    AggregatedUsage,
    NodeUsage,
    PodUsage,
    PodUsages,
)
from engine.simulation.load import RESOURCES, Load, base_load, estimated_load
from engine.simulation.recorded_cluster import RecordedCluster
from engine.view import ClusterState, ClusterView, PodSumProfile

_LONG_AGO: Final = 86_400 * SECOND
_NO_LOAD: Final[Load] = np.zeros(len(RESOURCES), np.int64)


class ArmCluster:
    """A recorded cluster without some of its pods, which others are bound to one by one.

    Time stands still for rules: measurements are always of now. A pod that was just bound is no
    part of them until `report`, and counts by its estimate, as on a live cluster. Pods that stay
    have the age that they were recorded with: evictions go by it.

    Args:
        recorded: the cluster.
        moves: `namespace/name` of the pods that are not on it.
        loads: the load of recorded pods.
        profiles: sums that policies need.

    Attributes:
        load: what is in use on each node, by name; base units by `load.RESOURCES`.
        running: bound pods by node name, each by `namespace/name`; without those that stay.
    """

    def __init__(
        self,
        recorded: RecordedCluster,
        moves: frozenset[str],
        loads: Mapping[str, Load],
        profiles: Iterable[PodSumProfile],
    ) -> None:
        self._recorded = recorded
        self._loads = dict(loads)
        self._state = recorded.empty_state()
        self._state.track_sums(profiles)
        self._now = recorded.now
        self._fresh: dict[str, dict[str, Pod]] = {}  # bound since the last report, by node
        self._pods: dict[str, dict[str, Pod]] = {node.name: {} for node in recorded.nodes}
        self._usages: dict[str, dict[str, PodUsage]] = {node.name: {} for node in recorded.nodes}
        self.running: dict[str, set[str]] = {node.name: set() for node in recorded.nodes}
        self.load: dict[str, Load] = {}
        self._fill(moves)

    @property
    def now(self) -> Micros:
        """The moment of all decisions."""
        return self._now

    @property
    def state(self) -> ClusterState:
        """The state that views are made of."""
        return self._state

    def view(self) -> ClusterView:
        """Return the cluster as it is now; not to be held over the next change."""
        return self._state.view()

    def pods(self) -> Iterator[Pod]:
        """Return all bound pods, those that stay among them."""
        return chain.from_iterable(pods.values() for pods in self._pods.values())

    def bind(self, pod: Pod, node_name: str, *, like: str) -> None:
        """Bind a pod to a node.

        Args:
            pod: on no node yet.
            node_name: name of a node of the recording.
            like: `namespace/name` of the recorded pod that it has the load of, "" for none.
        """
        bound = structs.replace(
            pod, node_name=node_name, phase="Running", scheduled_at=self._now, created=None
        )
        key = pod.key
        load = self._loads.get(like)
        self._loads[key] = estimated_load(pod.shape) if load is None else load
        self._state.set_pod(bound, seen_at=self._now)
        self.load[node_name] = self.load[node_name] + self._loads[key]
        self._pods[node_name][key] = bound
        self._usages[node_name][key] = self._usage(bound)
        self.running[node_name].add(key)
        self._fresh.setdefault(node_name, {})[key] = bound

    def remove(self, key: str, node_name: str) -> None:
        """Let a pod end that is bound to a node."""
        self._state.delete_pod(key)
        del self._pods[node_name][key]
        del self._usages[node_name][key]
        self.running[node_name].discard(key)
        self.load[node_name] = np.maximum(self.load[node_name] - self._loads[key], 0)
        self._fresh.setdefault(node_name, {}).pop(key, None)

    def add_node(self, node: Node) -> None:
        """Add a node of the recording that was removed, with the pods that stay on it."""
        self._state.set_node(node)
        for pod in self._pods[node.name].values():
            self._state.set_pod(pod, seen_at=self._now)
        self._measure(node.name)

    def remove_node(self, name: str) -> None:
        """Remove a node with all pods on it; those that stay come back with it."""
        for key in [*self.running[name]]:
            self.remove(key, name)
        for key in self._pods[name]:
            self._state.delete_pod(key)
        self._fresh.pop(name, None)
        self._state.delete_usage(name)
        self._state.delete_node(name)

    def movable_pods(self, name: str) -> tuple[Pod, ...]:
        """Return the pods that were bound to a node here, in order of their keys."""
        return tuple(self._pods[name][key] for key in sorted(self.running[name]))

    def report(self) -> None:
        """Measure the nodes on which something has changed; no pod is new any more."""
        for name, fresh in self._fresh.items():
            self._measure(name)
            for key, pod in fresh.items():
                settled = _settled(pod, self._now)
                self._pods[name][key] = settled
                self._state.set_pod(settled, seen_at=self._now)
        self._fresh.clear()

    def _fill(self, moves: frozenset[str]) -> None:
        """Count the pods that stay, and measure all nodes."""
        gone: dict[str, list[Load]] = {}
        has_report = self._recorded.reports.keys()
        for recorded in self._recorded.pods:
            pod = recorded.pod
            on_node = self._pods.get(pod.node_name)
            if on_node is None:
                continue  # it waits, or its node is unknown
            if pod.key in moves:
                gone.setdefault(pod.node_name, []).append(self._loads[pod.key])
                continue
            on_node[pod.key] = pod
            self._usages[pod.node_name][pod.key] = self._usage(pod)
            self._state.set_pod(pod, seen_at=_seen_at(pod, self._now))
        for name, pods in self._pods.items():
            self.load[name] = base_load(self._recorded.reports.get(name), gone.get(name, ()))
            if name not in has_report:
                self.load[name] = sum((self._loads[key] for key in pods), start=_NO_LOAD)
            self._measure(name)

    def _measure(self, name: str) -> None:
        recorded = self._recorded.reports.get(name)
        if recorded is not None and recorded.usage is not None:
            self._state.set_usage(self._measured(recorded))

    def _measured(self, recorded: NodeUsage) -> NodeUsage:
        """Return a report of now in the form of the recorded one; deviations stay as recorded."""
        name = recorded.node_name
        used = dict(zip(RESOURCES, self.load[name].tolist(), strict=True))
        usage = {**(recorded.usage or {}), **used}
        return replace(
            recorded,
            update_time=self._now,
            usage=usage,
            aggregated=tuple(
                AggregatedUsage(window.duration_ns, dict.fromkeys(window.by_type, used))
                for window in recorded.aggregated
            ),
            average={**recorded.average, **used} if recorded.average else {},
            pods=PodUsages(self._usages[name]) if recorded.pods_measured else NO_POD_USAGES,
        )

    def _usage(self, pod: Pod) -> PodUsage:
        """Return what is measured of a pod once its node is."""
        amounts = dict(zip(RESOURCES, self._loads[pod.key].tolist(), strict=True))
        return PodUsage(amounts, pod.shape.is_prod)


def _seen_at(pod: Pod, now: Micros) -> Micros:
    """Return since when a recorded pod is known: its creation, else long ago."""
    return Micros(now - _LONG_AGO) if pod.created is None else micros(pod.created)


def _settled(pod: Pod, now: Micros) -> Pod:
    """Return a pod that has run for so long that its measurement tells all of it."""
    long_ago = Micros(now - _LONG_AGO)
    return structs.replace(pod, scheduled_at=long_ago, initialized_at=long_ago)
