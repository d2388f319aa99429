"""Room that is kept for pods which are not bound yet: what a binding must leave.

The scheduler keeps room for nominated pods as well, but it hears of a nomination later than of the
room that has come free, and gives that to whoever waits for it.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from engine.model.pod import Pod
from engine.model.pod_shape import PodShape
from engine.view import BoolColumn, ClusterView, IntColumn, Sum, counted_requests


def takes_nominated_room(pod: Pod, row: int, view: ClusterView, nominated: Iterable[Pod]) -> bool:
    """Return whether a pod would take room on a node from pods that are nominated to it.

    Those of lower priority keep none from it: kube-scheduler, RunFilterPluginsWithNominatedPods.
    Of what devices provide (DRA) it is not known how much there is, so that counts as left.

    Args:
        pod: which counts on no node.
        row: of the node.
        view: the cluster.
        nominated: some of the pods that count on the node without being bound to it.
    """
    asked = _requests(pod.shape, view)
    free = view.allocatable[:, row] - view.sums[Sum.REQUESTS, :, row]
    kept = np.zeros_like(asked)
    for each in nominated:
        if each.priority < pod.priority:
            free = free + _requests(each.shape, view)
        else:
            kept += _requests(each.shape, view)
    return bool(((asked > free) & (asked > 0) & (kept > 0) & (view.allocatable[:, row] > 0)).any())


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class AwaitedRoom:
    """Pods of one shape that wait for room, which is kept where the least of it is missing.

    Attributes:
        shape: of each; none of them counts on a node.
        count: how many they are.
        may_take: the nodes that would take one of them if no pods were there, (n,).
        fitting: the nodes that would take one of them now, (n,).
    """

    shape: PodShape
    count: int
    may_take: BoolColumn
    fitting: BoolColumn


def missing_of_place(pod: Pod, row: int, view: ClusterView, awaited: AwaitedRoom) -> float | None:
    """Return what is missing of the place for a waiting pod that another pod would take on a node.

    As a part of what that pod requests, of the resource that most is missing of; 0 where it has
    room. None if the other pod takes no place from it: it fits beside, or as many others are as
    good, so that each of the waiting pods has one.

    Args:
        pod: which counts on no node.
        row: of the node.
        view: the cluster.
        awaited: the room that is waited for.
    """
    needed, asked = (_requests(each, view)[:, None] for each in (awaited.shape, pod.shape))
    free: IntColumn = view.allocatable - view.sums[Sum.REQUESTS]
    offered, here = view.allocatable, slice(row, row + 1)

    def missing(number: int, free: IntColumn, offered: IntColumn) -> NDArray[np.float64]:
        """Return what is missing of the place for the last of some pods on a node, (n,)."""
        counts = (needed > 0) & (offered > 0)  # what a node offers itself: devices are not known
        lacking = np.maximum(number * needed - free, 0) / np.maximum(needed, 1)
        is_never = counts & (number * needed > offered)
        each = np.where(is_never, np.inf, np.where(counts, lacking, 0.0))
        most: NDArray[np.float64] = each.max(axis=0)
        return most

    usable = awaited.may_take & (awaited.fitting | (missing(1, free, offered) > 0))
    if not usable[row]:
        return None
    for number in range(1, awaited.count + 1):
        (before,) = missing(number, free[:, here], offered[:, here])
        if np.isinf(before):
            return None  # there is no place for so many
        if missing(number, free[:, here] - asked, offered[:, here])[0] > before:
            break
    else:
        return None
    usable[row] = False
    as_good = number - 1
    for other in range(1, awaited.count + 1):
        found = int(np.count_nonzero(usable & (missing(other, free, offered) <= before)))
        as_good += found
        if not found or as_good >= awaited.count:
            break
    return float(before) if as_good < awaited.count else None


def _requests(shape: PodShape, view: ClusterView) -> IntColumn:
    return view.axis.vector(counted_requests(shape))
