"""QOSSort: higher priority first, then the better QoS class, then earlier creation.

Source: scheduler-plugins, pkg/qos/queue_sort.go.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from engine.model.pod import Pod
from engine.queue.queue_sort import QueueFacts, QueueSort, SortKey, queued_at

_RANKS: Final[Mapping[str, int]] = {"Guaranteed": 0, "Burstable": 1, "BestEffort": 2}


class QOSSort(QueueSort):
    """Pods that the kubelet evicts last go first."""

    def __init__(self, facts: QueueFacts) -> None:
        pass

    def less(self, first: Pod, second: Pod) -> bool:
        """Return whether `first` wins by priority, else by QoS class, else by age."""
        return _key(first) < _key(second)

    def keys(self, pods: Sequence[Pod]) -> list[SortKey]:
        """Return priority, rank of the QoS class and creation."""
        return [_key(pod) for pod in pods]


def _key(pod: Pod) -> SortKey:
    return -pod.priority, _RANKS[pod.shape.qos_class], queued_at(pod)
