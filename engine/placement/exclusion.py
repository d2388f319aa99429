"""Rejected nodes as one requirement, for policies that ask for their filters to be binding.

Always `NotIn`: nodes that do not exist yet still match, so the cluster autoscaler can add one.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from engine.model.decision import SCHEDULER, Decision
from engine.model.selectors import Operator
from engine.placement.affinity import Requirement, requirement
from engine.placement.hostnames import HOSTNAME, Hostnames
from engine.view import BoolColumn, ClusterView, Sum
from engine.view.axis import CPU, MEMORY


@dataclass(frozen=True, slots=True)
class Exclusion:
    """What is excluded.

    Attributes:
        requirements: at most one.
        left_out: how many rejected nodes are not excluded: beyond the bound, or not listable.
    """

    requirements: tuple[Requirement, ...] = ()
    left_out: int = 0


def unreachable_nodes(decision: Decision) -> BoolColumn:
    """Return the nodes that the scheduler itself turns away, shape (n,)."""
    unreachable = np.zeros(decision.valid.size, np.bool_)
    for outcome in decision.filters:
        if outcome.policy == SCHEDULER:
            unreachable |= outcome.rejects
    return unreachable


def rejected_nodes(decision: Decision, unreachable: BoolColumn) -> BoolColumn:
    """Return the nodes that the scheduler would take and a policy's filter turned away, (n,).

    Args:
        decision: a decision by filters: a node that is no candidate was turned away by one.
        unreachable: what `unreachable_nodes` gives for it.
    """
    rejected = decision.valid > unreachable  # of bools: and not
    rejected[decision.candidates] = False
    return rejected


def exclusion_of(
    rejected: BoolColumn, view: ClusterView, hostnames: Hostnames, max_nodes: int
) -> Exclusion:
    """Return the requirement that keeps a pod off rejected nodes.

    Where there are more than `max_nodes`, those are kept that the scheduler would like best.

    Args:
        rejected: which nodes, shape (n,).
        view: the view they were rejected on.
        hostnames: those of the view.
        max_nodes: the most that are written.
    """
    rejected_rows = np.flatnonzero(rejected)
    rows = rejected_rows[hostnames.listable(rejected_rows)]
    if rows.size > max_nodes:
        rows = rows[np.argsort(_requested_share(view, rows), kind="stable")[:max_nodes]]
    left_out = rejected_rows.size - rows.size
    if not rows.size:
        return Exclusion((), left_out)
    not_in = requirement(HOSTNAME, Operator.NOT_IN, hostnames.of(rows))
    return Exclusion((not_in,), left_out)


def _requested_share(view: ClusterView, rows: NDArray[np.intp]) -> NDArray[np.float64]:
    """Return the requested share of cpu plus that of memory, lowest where LeastAllocated is best.

    As the scheduler's default scorer does, it counts 100m and 200Mi for containers that name no
    request; a node that offers nothing comes last.
    """
    total = np.zeros(rows.size)
    for resource in (CPU, MEMORY):
        offered = view.allocatable[resource, rows]
        share = np.full(rows.size, np.inf)
        requested = view.sums[Sum.NON_ZERO_REQUESTS, resource, rows]
        total += np.divide(requested, offered, out=share, where=offered > 0)
    return total
