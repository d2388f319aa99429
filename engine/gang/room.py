"""Whether a cluster has the room that a gang says it needs, before any node is looked at.

Source: scheduler-plugins, pkg/coscheduling/core/core.go, CheckClusterResource. Unlike there, what
pods use beyond a node's own is not taken from the others.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import numpy as np

from engine.model.gang import Gang
from engine.model.pod_shape import PodShape
from engine.model.resource_names import PODS
from engine.model.resources import Amounts
from engine.view import ClusterView, Sum, counted_requests, is_device_resource


def min_resources_gap(
    gang: Gang, view: ClusterView, running: Iterable[tuple[str, PodShape]]
) -> Amounts:
    """Return what all nodes together lack of a gang's `min_resources`; no amount is 0.

    A gang that says what it needs needs a place for each member, too. What nodes have free is added
    up, so nothing may be missing although no node has room. What devices may provide is not looked
    at: how much of it there is, is not known.

    Args:
        gang: that is to start.
        view: the cluster.
        running: names of nodes, and shapes of members that count on them: what they use is free for
            their gang.
    """
    if gang.min_resources is None:
        return {}
    needed = {**gang.min_resources, PODS: gang.min_member}
    of_members = [
        (view.rows[node_name], counted_requests(shape))
        for node_name, shape in running
        if node_name in view.rows
    ]
    gap = {
        name: amount - _free(name, view, of_members)
        for name, amount in needed.items()
        if not is_device_resource(name, view)
    }
    return {name: amount for name, amount in gap.items() if amount > 0}


def _free(name: str, view: ClusterView, of_members: Sequence[tuple[int, Mapping[str, int]]]) -> int:
    """Return what all nodes have of a resource, as if some pods were not on their rows."""
    at = view.axis.find(name)
    if at is None:
        return 0
    free = view.allocatable[at] - view.sums[Sum.REQUESTS, at]
    for row, requests in of_members:
        free[row] += requests.get(name, 0)
    return int(np.maximum(free, 0)[view.valid].sum())
