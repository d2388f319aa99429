"""Coscheduling: higher priority first, then the older gang, then the name.

Source: scheduler-plugins, pkg/coscheduling/coscheduling.go, Less.

A gang counts from the creation of its PodGroup on, however late a member was created, so that no
member has to wait behind pods that others are ahead of. Once it has failed it counts from then on,
until it starts: a gang that fits nowhere does not keep the others.
"""

from __future__ import annotations

from collections.abc import Sequence

from engine.model.pod import Pod
from engine.queue.queue_sort import QueueFacts, QueueSort, SortKey, queued_at


class Coscheduling(QueueSort):
    """Members of a gang have one age.

    Args:
        facts: find the gang of a pod, and when it failed.
    """

    def __init__(self, facts: QueueFacts) -> None:
        self._facts = facts

    def less(self, first: Pod, second: Pod) -> bool:
        """Return whether `first` wins by priority, else by age, else by `namespace/name`."""
        return self._key(first) < self._key(second)

    def keys(self, pods: Sequence[Pod]) -> list[SortKey]:
        """Return priority, age of the pod or its gang, and `namespace/name`."""
        return [self._key(pod) for pod in pods]

    def _key(self, pod: Pod) -> SortKey:
        gang = self._facts.gang(pod)
        if gang is None:
            return -pod.priority, queued_at(pod), pod.key
        since = self._facts.failed_at.get(gang.key, queued_at(gang))
        return -pod.priority, since, pod.key
