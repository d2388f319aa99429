"""Pods that are about to leave their node, and pods that wait for a node to be made free for them.

Both are few at any time, so they are kept beside the table of all pods.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from engine.model.pod import Pod


class PodTransitions(NamedTuple):
    """How many pods of a node are being deleted, and how many pending ones are nominated to it."""

    terminating: int = 0
    nominated: int = 0

    def plus(self, other: PodTransitions, times: int) -> PodTransitions:
        """Return this with so many times another added, -1 to take one off."""
        return PodTransitions(
            self.terminating + times * other.terminating, self.nominated + times * other.nominated
        )


_TERMINATING = PodTransitions(terminating=1)
_NOMINATED = PodTransitions(nominated=1)
NO_TRANSITIONS = PodTransitions()


class TransitionCounts:
    """The turnover of each node that has any, by name; what was given out is never written to."""

    def __init__(self) -> None:
        self._stands: dict[str, tuple[str, PodTransitions]] = {}
        self._by_node: dict[str, PodTransitions] = {}

    def snapshot(self) -> Mapping[str, PodTransitions]:
        """Return the turnover by node name, to be held until `unshare` is called."""
        return self._by_node

    def unshare(self) -> None:
        """Leave what was given out so far to those who hold it, and write to another."""
        self._by_node = self._by_node.copy()

    def would_change(self, key: str, pod: Pod | None) -> bool:
        """Return whether `put` of the same would change anything."""
        if pod is None or not (pod.deleting or pod.nominated_node_name):
            return key in self._stands  # nearly every pod: asked of each event, so first
        return self._stands.get(key) != _stand(pod)

    def put(self, key: str, pod: Pod | None) -> tuple[str, ...]:
        """Count a pod as it now is, None if it is gone; return the names of the nodes concerned."""
        old, new = self._stands.pop(key, None), _stand(pod)
        if old is not None:
            self._add(*old, times=-1)
        if new is not None:
            self._stands[key] = new
            self._add(*new, times=1)
        return tuple(stand[0] for stand in (old, new) if stand is not None)

    def _add(self, node_name: str, one: PodTransitions, *, times: int) -> None:
        total = self._by_node.pop(node_name, NO_TRANSITIONS).plus(one, times)
        if total != NO_TRANSITIONS:
            self._by_node[node_name] = total


def _stand(pod: Pod | None) -> tuple[str, PodTransitions] | None:
    """Return what a pod counts for and on which node, None if for nothing."""
    if pod is None:
        return None
    if pod.node_name:
        return (pod.node_name, _TERMINATING) if pod.deleting else None
    if pod.nominated_node_name:
        return pod.nominated_node_name, _NOMINATED
    return None
