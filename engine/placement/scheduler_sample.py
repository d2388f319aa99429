"""How many nodes to name: the scheduler looks at a sample of the nodes that can take a pod.

Source of the sample: pkg/scheduler/schedule_one.go (numFeasibleNodesToFind). It begins where the
last search ended, in an order of the nodes that nobody else knows: a scheduler that starts has read
them in no order. So what is in the sample is taken to be drawn at random, without replacement.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Final

_LEAST_NODES: Final = 100
_LEAST_PERCENTAGE: Final = 5
_PERCENTAGE: Final = 50
_NODES_PER_PERCENT: Final = 125

LEAST_NAMES: Final = 8
MOST_NAMES: Final = 64
_SAMPLED: Final = 2
_PROBABILITY: Final = 0.99


def nodes_to_find(nodes: int, percentage: int = 0) -> int:
    """Return how many feasible nodes are enough for the scheduler to choose among.

    Args:
        nodes: that there are.
        percentage: `percentageOfNodesToScore`; 0 lets the number of nodes decide.
    """
    if nodes < _LEAST_NODES:
        return nodes
    if not percentage:
        percentage = max(_PERCENTAGE - nodes // _NODES_PER_PERCENT, _LEAST_PERCENTAGE)
    return max(nodes * percentage // 100, _LEAST_NODES)


@lru_cache(maxsize=4096)
def names_needed(nodes: int, feasible: int, percentage: int = 0) -> int:
    """Return how many nodes to name so that at least two of them are in the sample.

    That holds 99 times of 100, where `LEAST_NAMES` to `MOST_NAMES` suffice for it. Of two the
    scheduler can take the one that it likes better itself. With `s` of `f` feasible nodes in the
    sample, none of `k` is in it with the probability (f-s)/f (f-s-1)/(f-1) ..., k factors, and
    exactly one is with k s / (f-k+1) times the first k - 1 of them (the hypergeometric
    distribution).

    Args:
        nodes: that there are.
        feasible: those that pass what the scheduler itself enforces.
        percentage: `percentageOfNodesToScore`; 0 lets the number of nodes decide.
    """
    sample = nodes_to_find(nodes, percentage)
    if sample >= feasible:
        return LEAST_NAMES
    none = 1.0
    for names in range(1, MOST_NAMES):
        left = feasible - names + 1
        one = names * sample / left * none
        none *= max(left - sample, 0) / left
        if names >= LEAST_NAMES and none + one <= 1 - _PROBABILITY:
            return names
    return MOST_NAMES
