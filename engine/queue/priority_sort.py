"""PrioritySort: higher priority first, then earlier creation.

Source: kube-scheduler, pkg/scheduler/framework/plugins/queuesort/priority_sort.go.
"""

from __future__ import annotations

from collections.abc import Sequence

from engine.model.pod import Pod
from engine.queue.queue_sort import QueueFacts, QueueSort, SortKey, queued_at


class PrioritySort(QueueSort):
    """The order of the scheduler's own queue."""

    def __init__(self, facts: QueueFacts) -> None:
        pass

    def less(self, first: Pod, second: Pod) -> bool:
        """Return whether `first` has the higher priority or, at the same one, is older."""
        return _key(first) < _key(second)

    def keys(self, pods: Sequence[Pod]) -> list[SortKey]:
        """Return priority and creation."""
        return [_key(pod) for pod in pods]


def _key(pod: Pod) -> SortKey:
    return -pod.priority, queued_at(pod)
