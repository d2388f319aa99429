"""A recorded cluster: all that an arm begins with."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Self

from engine.model.aux_object import AuxObject
from engine.model.node import Node
from engine.model.time import Micros
from engine.model.usage import NodeUsage
from engine.simulation.arrivals import RecordedPod, is_movable
from engine.simulation.load import Load, loads_on_node
from engine.view import ClusterState, ClusterView
from engine.view.namespaces import NamespaceFacts


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordedCluster:
    """A recorded cluster, or what a what-if makes of it.

    Attributes:
        nodes: in the order of all columns of a report.
        reports: the usage of nodes, by name; some may have none.
        pods: those that run or wait.
        namespaces: labels and quotas.
        extras: objects that only some rules read.
        now: the moment that all ages are judged at.
    """

    nodes: tuple[Node, ...]
    reports: Mapping[str, NodeUsage]
    pods: tuple[RecordedPod, ...]
    namespaces: NamespaceFacts
    extras: tuple[AuxObject, ...]
    now: Micros

    @classmethod
    def of(cls, view: ClusterView, pods: Iterable[RecordedPod], now: Micros) -> Self:
        """Return the cluster of a view and of all pods that it counts.

        Args:
            view: the cluster.
            pods: in any order.
            now: the moment of the recording.
        """
        nodes = sorted((node for node in view.nodes if node is not None), key=lambda it: it.name)
        usages = (usage for usage in view.usages if usage is not None)
        return cls(
            nodes=tuple(nodes),
            reports={usage.node_name: usage for usage in usages},
            pods=tuple(pods),
            namespaces=view.namespaces,
            extras=tuple(view.extras.values()),
            now=now,
        )

    def loads(self) -> dict[str, Load]:
        """Return the load of each pod by `namespace/name`; see `load`."""
        on_node: dict[str, list[RecordedPod]] = {}
        for each in self.pods:
            on_node.setdefault(each.pod.node_name, []).append(each)
        loads: dict[str, Load] = {}
        for name, pods in on_node.items():
            loads |= loads_on_node([each.pod for each in pods], self.reports.get(name))
        return loads

    def waiting(self) -> Sequence[RecordedPod]:
        """Return the pods that wait for a node."""
        return [each for each in self.pods if not each.pod.node_name and is_movable(each.pod)]

    def empty_state(self) -> ClusterState:
        """Return a state with all but pods and usage."""
        state = ClusterState()
        for node in self.nodes:
            state.set_node(node)
        facts = self.namespaces
        for name, labels in facts.labels.items():
            state.set_namespace(name, labels, quota_mode=facts.quota_modes.get(name, ""))
        for quotas in facts.quotas.values():
            for quota in quotas:
                state.set_quota(quota)
        for extra in self.extras:
            state.set_extra(extra)
        return state
