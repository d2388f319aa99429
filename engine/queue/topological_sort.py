"""TopologicalSort: pods of an AppGroup in the order of its dependencies, others as PrioritySort.

Source: scheduler-plugins, pkg/networkaware/topologicalsort.

Upstream's relation is no order. Let `a` and `c` be of one AppGroup, `c` of the earlier workload,
and `b` of none, created in the order a, b, c at one priority: a before b and b before c by age, c
before a by the AppGroup. Each of two pods of one workload is before the other, too.

The keys make it one. Priority counts first, within an AppGroup too. Pods of one AppGroup and
priority stand together, where the oldest of them would stand by itself, and among themselves in
upstream's order; within a workload the oldest goes first.

A pod whose AppGroup does not exist is in none, where upstream crashes.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from engine.model.network import AppGroup
from engine.model.pod import Pod
from engine.queue.priority_sort import PrioritySort
from engine.queue.queue_sort import QueueFacts, QueueSort, SortKey, queued_at


class TopologicalSort(QueueSort):
    """Workloads that others depend on go first, so that the others find them placed.

    Args:
        facts: find an AppGroup by the name in a label of its pods.
    """

    def __init__(self, facts: QueueFacts) -> None:
        self._app_group = facts.app_group
        self._by_priority = PrioritySort(facts)

    def less(self, first: Pod, second: Pod) -> bool:
        """Return upstream's relation, which holds both ways for two pods of one workload."""
        name, index = self._place(first, {})
        other_name, other_index = self._place(second, {})
        if name and name == other_name:
            return index <= other_index
        return self._by_priority.less(first, second)

    def keys(self, pods: Sequence[Pod]) -> list[SortKey]:
        """Return priority, creation of the group's oldest pod, group, index and creation."""
        found: dict[str, AppGroup | None] = {}
        places = [self._place(pod, found) for pod in pods]
        oldest: dict[tuple[int, str], datetime] = {}
        for pod, (name, _) in zip(pods, places, strict=True):
            if name:
                key, queued = (pod.priority, name), queued_at(pod)
                oldest[key] = min(oldest.get(key, queued), queued)
        return [
            (
                -pod.priority,
                oldest[pod.priority, name] if name else queued_at(pod),
                name,
                index,
                queued_at(pod),
            )
            for pod, (name, index) in zip(pods, places, strict=True)
        ]

    def _place(self, pod: Pod, found: dict[str, AppGroup | None]) -> tuple[str, int]:
        """Return the name of the pod's AppGroup and the index in it; ("", -1) for none.

        Args:
            pod: any.
            found: AppGroups by name, as far as they were searched for.
        """
        if pod.shape.workload is None:
            return "", -1
        name, selector = pod.shape.workload
        if name not in found:
            found[name] = self._app_group(name)
        app_group = found[name]
        return ("", -1) if app_group is None else (name, app_group.indexes.get(selector, -1))
