"""How few nodes could be used, and be hot, at best: lower bounds, as if pods were divisible."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

import numpy as np

from engine.model.pod import Pod
from engine.report import Measure
from engine.simulation.arrivals import RESOURCES, Load
from engine.simulation.figures import SHOWN, Levels, Percents

_ROUNDING: Final = 1e-9


class NodeBounds(NamedTuple):
    """The fewest nodes for the pods of an arm; None where that is not known."""

    used: int | None
    hot: int | None


def node_bounds(
    pods: Sequence[tuple[Pod, Load]],
    levels: Percents,
    fixed: Percents,
    offered: Percents,
    thresholds: Mapping[str, float],
) -> NodeBounds:
    """Return the bounds of an arm. Nothing is known once nodes or pods that stay have gone.

    Args:
        pods: that were placed, each with its load.
        levels: of all pods.
        fixed: of those that stay.
        offered: what nodes offer.
        thresholds: of load in percent, above which a node is hot.
    """
    asked = np.array(
        [[pod.shape.requests.get(name, 0) for pod, _ in pods] for name in RESOURCES], float
    )
    room = np.empty((len(RESOURCES), len(offered[Measure.REQUESTS, RESOURCES[0]])))
    for at, name in enumerate(RESOURCES):
        key = Measure.REQUESTS, name
        amount, size = asked[at].sum(), offered[key] / 100
        added = float((levels[key] - fixed[key]) @ size)
        # A node that is gone makes this NaN.
        stays = abs(added - amount) <= _ROUNDING * float(offered[key].sum())
        if not stays or (levels[key] > 100 + _ROUNDING).any():
            return NodeBounds(None, None)
        room[at] = np.maximum(100 - fixed[key], 0) * size
    hot: list[int | None] = []
    for name, threshold in thresholds.items():
        key = Measure.LOAD, name
        loads = np.array([load[RESOURCES.index(name)] for _, load in pods], float)
        cold = (threshold + SHOWN / 2 - fixed[key]) * np.maximum(offered[key], 0) / 100
        hot.append(least_hot_nodes(loads, asked, room, cold))
    known = [each for each in hot if each is not None]
    return NodeBounds(
        used=least_nodes(asked.sum(axis=1), room),
        hot=max(known, default=0) if len(known) == len(hot) else None,
    )


def least_nodes(demands: Levels, room: Levels) -> int | None:
    """Return the fewest nodes that have room for all pods; None where all have not.

    Args:
        demands: what all pods request of each resource, (r,).
        room: what each node has for them, (r, n).
    """
    counts = [_fewest(demand, rooms) for demand, rooms in zip(demands, room, strict=True)]
    known = [count for count in counts if count is not None]
    return max(known, default=0) if len(known) == len(counts) else None


def least_hot_nodes(loads: Levels, requests: Levels, room: Levels, cold: Levels) -> int | None:
    """Return the fewest nodes that some load makes hot; None where it cannot be anywhere.

    A node that is not hot takes no more load than up to its threshold. A hot one takes as much as
    pods have that fit by requests, those with the most load for their requests first.

    Args:
        loads: of each pod, (p,).
        requests: of each pod, (r, p).
        room: what each node has for these requests, (r, n).
        cold: the load that each node takes before it is hot, (n,); negative where it is hot anyway.
    """
    most = np.min([_most_load(loads, *pair) for pair in zip(requests, room, strict=True)], axis=0)
    is_hot = cold < 0
    left = float(loads.sum() - most[is_hot].sum() - cold[~is_hot].sum())
    more = _fewest(left, np.maximum(most[~is_hot] - cold[~is_hot], 0))
    return None if more is None else int(is_hot.sum()) + more


def _most_load(loads: Levels, requests: Levels, room: Levels) -> Levels:
    """Return the most load that fits on each node by one resource, (n,)."""
    with np.errstate(divide="ignore", invalid="ignore"):
        order = np.argsort(-np.where(requests > 0, loads / requests, np.inf), kind="stable")
    asked = np.append(0.0, requests[order].cumsum())
    given = np.append(0.0, loads[order].cumsum())
    # Pods that request nothing fit anywhere: of equal amounts the last one counts.
    last = np.append(asked[1:] > asked[:-1], True)
    most: Levels = np.interp(room, asked[last], given[last])
    return most


def _fewest(demand: float, rooms: Levels) -> int | None:
    """Return how many of the largest rooms meet a demand."""
    if demand <= _ROUNDING:
        return 0
    enough = np.sort(rooms)[::-1].cumsum() >= demand * (1 - _ROUNDING)
    return int(enough.argmax()) + 1 if enough.any() else None
