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
_MOST_OF_LATE: Final = 1_024
_MOST_COMPARED: Final = 1_024  # with each node; of more, the greatest amounts together
_LEAST_ROWS: Final = 16
_MANY_NODES: Final = 32
"""So many that the scheduler will hardly take the one that a pod was just moved to."""

Requests: TypeAlias = tuple[tuple[str, int], ...]


class Margin:
    """The pods that the scheduler may put somewhere at any moment, by what they request.

    They are those that wait, and any like one that was bound of late: that may not have been seen.
    A pod that many nodes would take leaves room nowhere: the largest pods of a burst would else
    keep all others from all but the largest nodes.
    What the scheduler believes to be free on a node is at most what is free without the pods that
    it may not know to be there.
    """

    def __init__(self) -> None:
        self._waiting: dict[str, tuple[PodShape, Requests]] = {}
        self._pods = Counter[Requests]()  # of those
        self._of_late: dict[Requests, Micros] = {}  # the latest last
        self._unsure: dict[str, Counter[str]] = {}  # amounts by node
        self._table = _RequestTable()

    def waits(self, key: str, shape: PodShape | None) -> bool:
        """Note a pod that waits for the scheduler, None if it does no longer.

        Returns:
            Whether it did before.
        """
        old = self._waiting.get(key)
        if old is not None and old[0] is not shape:
            del self._waiting[key]
            _add(self._pods, old[1], -1)
            self._keep_or_drop(old[1])
        if shape is not None and (old is None or old[0] is not shape):
            requests = _requests_of(shape)
            self._waiting[key] = shape, requests
            _add(self._pods, requests, 1)
            self._keep_or_drop(requests)
        return old is not None

    def landed(self, shape: PodShape, now: Micros) -> None:
        """Note that a pod of a shape was bound."""
        requests = _requests_of(shape)
        self._of_late.pop(requests, None)
        self._of_late[requests] = now
        self._keep_or_drop(requests)
        if len(self._of_late) > _MOST_OF_LATE:
            self._forget(next(iter(self._of_late)))

    def expire(self, now: Micros) -> None:
        """Forget pods that were bound long ago."""
        while self._of_late:
            requests, at = next(iter(self._of_late.items()))
            if at + _LIKE_ONE_OF_SECONDS * SECOND > now:
                break
            self._forget(requests)

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
        own = _requests_of(pod.shape)
        is_alone = self._pods[own] == 1 and pod.key in self._waiting and own not in self._of_late
        requests = self._table.of(view.axis, but=own if is_alone else None)
        taken = view.axis.vector(dict(own))
        most = requests.max(axis=0) if len(requests) > _MOST_COMPARED else None
        fits_in_many: dict[bytes, bool] = {}

        def has_choice(asked: IntColumn) -> bool:
            """Return whether so many nodes would take requests that it will hardly be this one."""
            key = asked.tobytes()
            if key not in fits_in_many:
                free = view.allocatable - view.sums[Sum.REQUESTS]
                fitting = (free >= asked[:, None]) | (asked == 0)[:, None]
                nodes = np.count_nonzero(fitting.all(axis=0) & view.valid)
                fits_in_many[key] = bool(nodes >= _MANY_NODES)
            return fits_in_many[key]

        def may_take(row: int) -> bool:
            free = view.allocatable[:, row] - view.sums[Sum.REQUESTS, :, row]
            believed = free.copy()
            for name, amount in self._unsure.get(view.names[row], {}).items():
                at = view.axis.find(name)
                if at is not None:
                    believed[at] += amount
            left = free - taken
            if most is not None:
                return bool((left >= np.minimum(most, believed)).all()) or has_choice(most)
            may_come = ((requests <= believed) | (requests == 0)).all(axis=1)
            has_room = ((requests <= left) | (requests == 0)).all(axis=1)
            homeless = requests[may_come & ~has_room]
            return not homeless.size or has_choice(homeless.max(axis=0))

        return may_take

    def _keep_or_drop(self, requests: Requests) -> None:
        """Have requests compared as long as any pod has them."""
        if requests in self._pods or requests in self._of_late:
            self._table.add(requests)
        else:
            self._table.remove(requests)

    def _forget(self, requests: Requests) -> None:
        del self._of_late[requests]
        self._keep_or_drop(requests)


class _RequestTable:
    """Different requests, a row each on the axis of a view.

    Whoever may create pods may have any number of them wait, so one that comes or goes must not
    cost a pass over all.
    """

    def __init__(self) -> None:
        self._rows: dict[Requests, int] = {}
        self._free: list[int] = []  # INVARIANT: with those of `_rows`, all from 0 on
        self._axis: ResourceAxis | None = None
        self._matrix: IntColumn = np.zeros((0, 0), np.int64)  # free rows are 0: nobody asks

    def add(self, requests: Requests) -> None:
        """Add requests unless they are there."""
        if requests in self._rows:
            return
        row = self._free.pop() if self._free else len(self._rows)
        self._rows[requests] = row
        if self._axis is not None:
            if row == len(self._matrix):
                self._matrix = np.concatenate([self._matrix, np.zeros_like(self._matrix)])
            self._matrix[row] = self._axis.vector(dict(requests))

    def remove(self, requests: Requests) -> None:
        """Remove requests if they are there."""
        row = self._rows.pop(requests, None)
        if row is not None:
            self._free.append(row)
            if len(self._free) > len(self._rows) + _LEAST_ROWS:
                self._axis = None  # written anew when it is read next
            if self._axis is not None:
                self._matrix[row] = 0

    def of(self, axis: ResourceAxis, but: Requests | None) -> IntColumn:
        """Return all requests but one, (n, n_resources); to be read before the next change."""
        if axis is not self._axis:
            self._axis, self._free = axis, []
            self._rows = {requests: row for row, requests in enumerate(self._rows)}
            self._matrix = np.zeros((max(_LEAST_ROWS, 2 * len(self._rows)), len(axis)), np.int64)
            for requests, row in self._rows.items():
                self._matrix[row] = axis.vector(dict(requests))
        found = self._matrix[: len(self._rows) + len(self._free)]
        if but is not None:
            found = found.copy()
            found[self._rows[but]] = 0
        return found


def _requests_of(shape: PodShape) -> Requests:
    return tuple(sorted(counted_requests(shape).items()))


def _add(counter: Counter[Requests], requests: Requests, number: int) -> None:
    counter[requests] += number
    if not counter[requests]:
        del counter[requests]
