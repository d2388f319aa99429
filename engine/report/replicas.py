"""How many replicas of one owner are on one node."""

from __future__ import annotations

from collections import Counter
from typing import TypeAlias

import msgspec

from engine.model.pod import Pod
from engine.report.decision import PodName

Owner: TypeAlias = tuple[str, str]
"""Namespace and uid."""

_Place: TypeAlias = tuple[str, Owner]
"""A node, and the owner of pods on it."""


class Crowd(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """The most pods of one owner on one node.

    Attributes:
        pods: how many; 0 where no pod with an owner has a node.
        node: which, the first by name; "" for none.
        example: one of the pods; None for none.
    """

    pods: int = 0
    node: str = ""
    example: PodName | None = None


def owner_of(pod: Pod) -> Owner | None:
    """Return the owner of a pod; None without one, or where it is a DaemonSet."""
    return (pod.namespace, pod.owner_uid) if pod.owner_uid and not pod.is_daemon_set else None


class Replicas:
    """The bound pods of each owner, as pods come and go."""

    def __init__(self) -> None:
        self._counts = Counter[_Place]()
        self._places: dict[str, _Place] = {}

    def set(self, pod: Pod) -> None:
        """Count a pod where it is now; one without a node, or that has ended, nowhere."""
        key, owner = pod.key, owner_of(pod)
        self.delete(key)
        if owner is not None and pod.node_name and not pod.is_terminal:
            place = pod.node_name, owner
            self._places[key] = place
            self._counts[place] += 1

    def delete(self, key: str) -> None:
        """Count a pod no longer, by `namespace/name`."""
        place = self._places.pop(key, None)
        if place is not None:
            self._counts[place] -= 1
            if not self._counts[place]:
                del self._counts[place]

    def crowd(self) -> Crowd:
        """Return the most of one owner on one node."""
        if not self._counts:
            return Crowd()
        place = min(self._counts, key=lambda each: (-self._counts[each], each))
        key = min(key for key, other in self._places.items() if other == place)
        namespace, _, name = key.partition("/")
        return Crowd(pods=self._counts[place], node=place[0], example=PodName(namespace, name))
