"""Whether a node has room for a pod, as the scheduler judges it."""

from __future__ import annotations

from typing import Final

from engine.model.node import NO_EXECUTE, NO_SCHEDULE, untolerated
from engine.model.pod import Pod
from engine.model.quantity import PODS
from engine.view import ClusterView, Sum, left_to_devices

_REPELLING: Final = frozenset({NO_SCHEDULE, NO_EXECUTE})


def would_stay(view: ClusterView, node_name: str, pod: Pod) -> bool:
    """Return whether a pod that counts on a node still fits there, with all others that do."""
    row = view.rows.get(node_name)
    return row is not None and not _repels(view, row, pod) and is_within_room(view, node_name, pod)


def is_within_room(view: ClusterView, node_name: str, pod: Pod) -> bool:
    """Return whether a node has no less than nothing free of what a pod on it requests.

    What devices provide there has no amount that could be exceeded.
    """
    row = view.rows.get(node_name)
    if row is None or view.nodes[row] is None:
        return False
    free = view.allocatable - view.sums[Sum.REQUESTS]
    for name in (*pod.shape.requests, PODS):
        by_devices = left_to_devices(name, view)
        if view.amount(free, name)[row] < 0 and (by_devices is None or not by_devices[row]):
            return False
    return True


def _repels(view: ClusterView, row: int, pod: Pod) -> bool:
    """Return whether there is no such node any more, or it takes no pods like this one."""
    node = view.nodes[row]
    if node is None or node.unschedulable:
        return True
    return bool(untolerated(node.taints, pod.tolerations, _REPELLING))
