"""The room that a move leaves for what may be bound without being asked about."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Final, TypeAlias

import numpy as np

from engine.model.pod import Pod
from engine.model.pod_shape import PodShape
from engine.model.time import SECOND, Micros
from engine.view import ClusterView, IntColumn, ResourceAxis, Sum, counted_requests

_LIKE_ONE_OF_SECONDS: Final = 60
_MOST_SHAPES: Final = 1_024

Requests: TypeAlias = tuple[tuple[str, int], ...]


class Margin:
    """The pods that the scheduler may put somewhere at any moment, by what they request.

    They are those that wait, and any like one that was bound of late: that may not have been seen.
    What the scheduler believes to be free on a node is at most what is free without the pods that
    it may not know to be there.
    """

    def __init__(self) -> None:
        self._waiting: dict[str, PodShape] = {}
        self._shapes: Counter[PodShape] = Counter()  # of those
        self._of_late: dict[PodShape, Micros] = {}  # the latest last
        self._unsure: dict[str, Counter[str]] = {}  # amounts by node
        self._matrix: tuple[ResourceAxis, IntColumn] | None = None

    def waits(self, key: str, shape: PodShape | None) -> bool:
        """Note a pod that waits for the scheduler, None if it does no longer.

        Returns:
            Whether it did before.
        """
        old = self._waiting.get(key)
        if old is not shape:
            if old is not None:
                del self._waiting[key]
                self._shapes[old] -= 1
                if not self._shapes[old]:
                    del self._shapes[old]
                    self._matrix = None
            if shape is not None:
                self._waiting[key] = shape
                if shape not in self._shapes:
                    self._matrix = None
                self._shapes[shape] += 1
        return old is not None

    def landed(self, shape: PodShape, now: Micros) -> None:
        """Note that a pod of a shape was bound."""
        if self._of_late.pop(shape, None) is None:
            self._matrix = None
        self._of_late[shape] = now
        if len(self._of_late) > _MOST_SHAPES:
            del self._of_late[next(iter(self._of_late))]

    def expire(self, now: Micros) -> None:
        """Forget pods that were bound long ago."""
        while self._of_late:
            shape, at = next(iter(self._of_late.items()))
            if at + _LIKE_ONE_OF_SECONDS * SECOND > now:
                break
            del self._of_late[shape]
            self._matrix = None

    def unsure(self, node_name: str, shape: PodShape, sign: int) -> None:
        """Note that the scheduler may not know a pod to be on a node, 1, or that it does, -1."""
        amounts = self._unsure.setdefault(node_name, Counter())
        for name, amount in counted_requests(shape).items():
            amounts[name] += sign * amount
        if not any(amounts.values()):
            del self._unsure[node_name]

    def for_pod(self, pod: Pod, view: ClusterView) -> Callable[[int], bool]:
        """Return whether the node of a row would leave the margin if it took a pod.

        Args:
            pod: the pod; it may be the only one of its shape.
            view: the cluster without it.
        """
        requests = self._requests(view.axis)
        is_alone = self._shapes.get(pod.shape) == 1 and self._waiting.get(pod.key) is pod.shape
        if is_alone and pod.shape not in self._of_late:
            own = view.axis.vector(counted_requests(pod.shape))
            requests = requests[(requests != own).any(axis=1)]
        taken = view.axis.vector(counted_requests(pod.shape))

        def may_take(row: int) -> bool:
            free = view.allocatable[:, row] - view.sums[Sum.REQUESTS, :, row]
            believed = free.copy()
            for name, amount in self._unsure.get(view.names[row], {}).items():
                at = view.axis.find(name)
                if at is not None:
                    believed[at] += amount
            left = free - taken
            if len(requests) > _MOST_SHAPES:
                return bool((left >= np.minimum(requests.max(axis=0), believed)).all())
            may_come = ((requests <= believed) | (requests == 0)).all(axis=1)
            has_room = ((requests <= left) | (requests == 0)).all(axis=1)
            return not bool((may_come & ~has_room).any())

        return may_take

    def _requests(self, axis: ResourceAxis) -> IntColumn:
        """Return what pods of each shape request, (n_shapes, n_resources)."""
        if self._matrix is None or self._matrix[0] is not axis:
            vectors = {
                axis.vector(counted_requests(shape)).tobytes()
                for shape in (*self._shapes, *self._of_late)
            }
            flat = np.frombuffer(b"".join(sorted(vectors)), np.int64)
            self._matrix = axis, flat.reshape(-1, len(axis))
        return self._matrix[1]
