"""Which nodes the scheduler looks at for a pod: in a large cluster not all of them.

Source: pkg/scheduler/schedule_one.go (findNodesThatPassFilters) and
pkg/scheduler/backend/cache/node_tree.go. The scheduler looks at several nodes at a time, and so may
find others than the first ones by a few.
"""

from __future__ import annotations

from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from engine.view import BoolColumn, ClusterView, Domain, label_column

_REGION: Final = "topology.kubernetes.io/region"
_ZONE: Final = "topology.kubernetes.io/zone"

Rows = NDArray[np.intp]


class Sample(NamedTuple):
    """What a search for nodes found.

    Attributes:
        feasible: rows of nodes that can take the pod, in the order in which they were found.
        looked_at: the number of nodes that were looked at.
    """

    feasible: Rows
    looked_at: int


def node_order(view: ClusterView) -> Rows:
    """Return the rows of all nodes in the order in which the scheduler looks at them.

    That is the first node of each zone, then the second of each, and so on. Nodes, and zones by
    their first node, are in order of names here, as a scheduler that has just started knows them.
    """
    return view.whole.node_aggregate("scheduler's order of nodes", (Domain.NODES,), _interleaved)


def search(order: Rows, passes: BoolColumn, start: int, most: int) -> Sample:
    """Search for feasible nodes, from a place of the order on and around.

    Args:
        order: rows of the nodes.
        passes: (n,), which rows can take the pod.
        start: where to begin, any number.
        most: feasible nodes that are enough.
    """
    if not order.size:
        return Sample(order, 0)
    start %= order.size
    ahead = np.concatenate([order[start:], order[:start]])
    (places,) = passes.take(ahead).nonzero()
    if places.size <= most:
        return Sample(ahead[places], order.size)
    places = places[:most]
    return Sample(ahead[places], int(places[-1]) + 1)


def _interleaved(view: ClusterView) -> Rows:
    (known,) = view.valid.nonzero()
    rows = np.array(sorted(known.tolist(), key=view.names.__getitem__), np.intp)
    region, zone = (label_column(view, key) for key in (_REGION, _ZONE))
    pairs = region.codes[rows].astype(np.int64) * len(zone.book) + zone.codes[rows]
    _, first, of_row = np.unique(pairs, return_index=True, return_inverse=True)
    by_zone, sizes = np.argsort(of_row, kind="stable"), np.bincount(of_row)
    turns = np.empty(rows.size, np.intp)
    turns[by_zone] = np.arange(rows.size) - np.repeat(np.cumsum(sizes) - sizes, sizes)
    return rows[np.lexsort((first[of_row], turns))]
