"""Nodes that go and come as pods do: a model of Karpenter and of Cluster Autoscaler.

A node with Karpenter's label follows the rules of Karpenter, any other those of Cluster Autoscaler
with its default flags.

Sources: kubernetes/autoscaler, cluster-autoscaler/FAQ.md, "How does scale-down work?";
karpenter.sh, docs/concepts/disruption, "Consolidation", and docs/concepts/capacitybuffers.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import groupby
from typing import Final

import numpy as np
from msgspec import structs

from engine.model import api
from engine.model.disruption_budget import NODE_POOL_LABEL
from engine.model.node import Node
from engine.model.pod import Pod
from engine.model.quantity import CPU, MEMORY, PODS
from engine.model.time import SECOND
from engine.simulation.arms import ArmCluster
from engine.simulation.scheduler import depends_on_pods, passing_nodes
from engine.view import ClusterView, IntColumn, Sum, WhatIf, pods_not_evictable

SCAN_SECONDS: Final = 60
"""Time between two looks at the nodes; real ones take 10 s, and minutes to remove a node."""

_LEAST_USED: Final = 0.5  # of cpu or memory requested: Cluster Autoscaler leaves such a node
_UNNEEDED: Final = 10 * 60 * SECOND
_AFTER_ADD: Final = 10 * 60 * SECOND
_RECHECK: Final = 5 * 60 * SECOND
"""Of both: a node that could not go is not looked at for so long."""

_MOST: Final = 10  # nodes that are looked at in one scan, those with the fewest pods first
_CANDIDATE: Final = api.Taint(key="DeletionCandidateOfClusterAutoscaler", effect="PreferNoSchedule")


class Autoscaler:
    """Removes nodes whose pods can run elsewhere, and brings them back for pods that wait.

    Of Cluster Autoscaler a node goes once less than half of it is requested for ten minutes, and no
    node has come for ten; of Karpenter, however full it is. There are never more nodes than at
    first, and one that is wanted comes at once. Room for the placeholders of a buffer is kept, as
    of a CapacityBuffer: no node goes whose room they need, and one comes where they fit no more.
    """

    def __init__(
        self, nodes: Iterable[Node], cluster: ArmCluster, buffer: Sequence[Pod] = ()
    ) -> None:
        self._cluster = cluster
        self._buffer = buffer
        self._here = {node.name: node for node in nodes}
        self._gone: dict[str, Node] = {}
        self._unneeded_since: dict[str, int] = {}
        self._looked_at: dict[str, int] = {}
        self._added_at: int | None = None

    @property
    def nodes(self) -> Mapping[str, Node]:
        """Those that are there, by name."""
        return self._here

    def add_for(self, pod: Pod, at: int) -> bool:
        """Bring back the smallest node that can take a pod; return whether there is one.

        Args:
            pod: on no node.
            at: the moment, microseconds since the first arrival.
        """
        wanted = pod.shape.requests
        fitting = [
            node
            for node in self._gone.values()
            if all(node.allocatable.get(name, 0) >= amount for name, amount in wanted.items())
        ]
        for node in sorted(fitting, key=_size):
            self._cluster.add_node(node)
            view = self._cluster.view()
            if passing_nodes(pod, view, self._cluster.now)[view.rows[node.name]]:
                self._here[node.name] = self._gone.pop(node.name)
                self._added_at = at
                return True
            self._cluster.remove_node(node.name)
        return False

    def refill(self, at: int) -> None:
        """Bring back nodes until the buffer has room, or none is left that would help."""
        while (pod := self._first_without_room(self._buffer, self._here)) is not None:
            if not self.add_for(pod, at):
                return

    def leaving(self, at: int) -> Iterator[tuple[str, tuple[Pod, ...]]]:
        """Yield the nodes that go at a moment, each with its pods, which need another node.

        Once one is yielded it is gone, and its pods are to be placed before the next one.
        """
        self._find_unneeded(at)
        due = [name for name in self._unneeded_since if self._is_due(name, at)]
        due.sort(key=lambda name: (len(self._cluster.running[name]), name))
        for name in due[:_MOST]:
            pods = self._cluster.movable_pods(name)
            if len(self._here) == 1:
                return
            others = self._here.keys() - {name}
            if self._first_without_room((*pods, *self._buffer), others) is not None:
                self._looked_at[name] = at
                continue
            self._gone[name] = self._here.pop(name)
            del self._unneeded_since[name]
            self._cluster.remove_node(name)
            yield name, pods
            if pods:
                return

    def _find_unneeded(self, at: int) -> None:
        """Note which nodes nothing of themselves keeps, and since when."""
        view = self._cluster.view()
        used, kept = _used(view), pods_not_evictable(view)
        for name in [*self._here]:
            row = view.rows[name]
            is_unneeded = self._may_go(name, float(used[row]), int(kept[row]), at)
            if not is_unneeded:
                self._unneeded_since.pop(name, None)
            else:
                self._unneeded_since.setdefault(name, at)
            self._mark(name, is_candidate=is_unneeded)

    def _may_go(self, name: str, used: float, kept: int, at: int) -> bool:
        """Return whether nothing of a node itself keeps it."""
        if kept:
            return False
        if self._is_karpenters(name):
            return True
        has_grown = self._added_at is not None and at - self._added_at < _AFTER_ADD
        return used < _LEAST_USED and not has_grown

    def _is_due(self, name: str, at: int) -> bool:
        """Return whether an unneeded node is so for long enough, and to be looked at again."""
        is_old = self._is_karpenters(name) or at - self._unneeded_since[name] >= _UNNEEDED
        return is_old and at - self._looked_at.get(name, -_RECHECK) >= _RECHECK

    def _is_karpenters(self, name: str) -> bool:
        return NODE_POOL_LABEL in self._here[name].labels

    def _mark(self, name: str, *, is_candidate: bool) -> None:
        """Taint a node that Cluster Autoscaler will remove, as it does, or take the taint off."""
        node = self._here[name]
        if (_CANDIDATE in node.taints) is is_candidate or self._is_karpenters(name):
            return
        others = tuple(taint for taint in node.taints if taint != _CANDIDATE)
        node = replace(node, taints=(*others, _CANDIDATE) if is_candidate else others)
        self._here[name] = node
        self._cluster.state.set_node(node)

    def _first_without_room(self, pods: Iterable[Pod], names: Iterable[str]) -> Pod | None:
        """Return the largest pod that some nodes have no room for, were all to run there."""
        view, now = self._cluster.view(), self._cluster.now
        rows = sorted(view.rows[name] for name in names)
        left = WhatIf(view.take(np.array(rows, np.int64)))
        ordered = sorted(pods, key=lambda it: (-it.shape.requests.get(CPU, 0), it.key))
        for template, alike in groupby(ordered, _template):
            waiting = list(alike)
            is_alone = depends_on_pods(template, left.view, now)
            while waiting:
                passing = np.flatnonzero(passing_nodes(template, left.view, now))
                if not passing.size:
                    return template
                copies = _copies(template, left.view)[passing]
                # Of pods that see one another, the next one may not pass where the last one did.
                on = passing[:1] if is_alone else np.repeat(passing, copies)[: len(waiting)]
                left.place_each(waiting[: len(on)], on.tolist())
                del waiting[: len(on)]
        return None


def _template(pod: Pod) -> Pod:
    """Return a pod that is on no node as all that were made like it are."""
    return structs.replace(pod, name="", uid="", created=None, node_name="", scheduled_at=None)


def _copies(pod: Pod, view: ClusterView) -> IntColumn:
    """Return how many pods like one each node has room for, if it has room for one, (n,)."""
    free = view.allocatable - view.sums[Sum.REQUESTS]
    wanted = (*pod.shape.requests.items(), (PODS, 1))
    most = [view.amount(free, name) // amount for name, amount in wanted if amount > 0]
    copies: IntColumn = np.maximum(np.min(most, axis=0), 1)
    return copies


def _used(view: ClusterView) -> IntColumn:
    """Return the greater share of cpu and memory that is requested of each node, (n,)."""
    shares = [
        view.amount(view.sums[Sum.REQUESTS], name)
        / np.maximum(view.amount(view.allocatable, name), 1)
        for name in (CPU, MEMORY)
    ]
    used: IntColumn = np.maximum(*shares)
    return used


def _size(node: Node) -> tuple[int, int, str]:
    return node.allocatable.get(CPU, 0), node.allocatable.get(MEMORY, 0), node.name
