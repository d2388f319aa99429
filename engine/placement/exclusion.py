"""Rejected nodes as one requirement, for policies whose dynamic filters are required.

Always `NotIn`: future nodes still match, so the cluster autoscaler can add one.
"""

from __future__ import annotations

from collections.abc import Container
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from engine.model.count_text import counted
from engine.model.decision import Decision
from engine.model.rule_outcomes import SCHEDULER, FilterOutcome, and_not
from engine.model.selectors import Operator
from engine.model.well_known import HOSTNAME_LABEL
from engine.placement.affinity import Alternatives, Requirement, requirement
from engine.placement.hostnames import NOT_LISTABLE, Hostnames
from engine.view import BoolColumn, ClusterView, Sum, name_hashes
from engine.view.axis import CPU, MEMORY


@dataclass(frozen=True, slots=True)
class Exclusion:
    """The excluded nodes.

    Attributes:
        requirements: at most one.
        left_out: how many rejected nodes are not excluded: beyond the bound, or not listable.
    """

    requirements: tuple[Requirement, ...] = ()
    left_out: int = 0

    def added_to(self, required: Alternatives) -> Alternatives:
        """Return alternatives that each exclude the nodes as well."""
        if not self.requirements:
            return required
        return [[*alternative, *self.requirements] for alternative in required or ((),)]

    @property
    def warnings(self) -> list[str]:
        """A line for the nodes left out, below the 120 characters that clients show."""
        if not self.left_out:
            return []
        nodes = counted(self.left_out, "rejected node is", "rejected nodes are")
        return [f"{nodes} not excluded: too many, or {NOT_LISTABLE}"]


class Rejections:
    """The rejected nodes of a decision, by who enforces the rejection; computed when read.

    Args:
        decision: a decision by filters: a node that is no candidate was rejected by one.
        enforced: filters of policies that the scheduler enforces through required labels.
    """

    def __init__(self, decision: Decision, enforced: Container[FilterOutcome] = ()) -> None:
        self._decision = decision
        self._enforced = enforced

    @cached_property
    def unreachable(self) -> BoolColumn:
        """The nodes that the scheduler itself rejects, (n,); anything for rows without a node."""
        unreachable = np.zeros(self._decision.valid.size, np.bool_)
        for outcome in self._decision.filters:
            if outcome.policy == SCHEDULER or outcome in self._enforced:
                unreachable |= outcome.rejects
        return unreachable

    @property
    def feasible(self) -> int:
        """How many nodes the scheduler accepts, or a few more."""
        decision = self._decision
        return len(decision.ranking) + sum(
            count
            for outcome, count in zip(decision.filters, decision.first_rejections, strict=False)
            if count and outcome.policy != SCHEDULER and outcome not in self._enforced
        )

    @cached_property
    def rejected(self) -> BoolColumn:
        """The nodes that the scheduler would accept and a policy's filter rejects, (n,)."""
        rejected = and_not(self._decision.valid, self.unreachable)
        rejected[self._decision.ranking.rows] = False
        return rejected


def exclusion_of(
    rejected: BoolColumn, view: ClusterView, hostnames: Hostnames, max_nodes: int
) -> Exclusion:
    """Return the requirement that keeps a pod off rejected nodes.

    Of more than `max_nodes`, those are excluded that the scheduler would score best. Every replica
    lists the same nodes in the same order, whatever the order of its watch events.

    Args:
        rejected: the nodes, shape (n,).
        view: the view they were rejected on.
        hostnames: those of the view.
        max_nodes: the most that are listed.
    """
    rejected_rows = np.flatnonzero(rejected)
    rows = rejected_rows[hostnames.listable(rejected_rows)]
    if rows.size > max_nodes:
        by_share = np.lexsort((name_hashes(view)[rows], _requested_share(view, rows)))
        rows = rows[by_share[:max_nodes]]
    left_out = rejected_rows.size - rows.size
    if not rows.size:
        return Exclusion((), left_out)
    values = sorted(name for name in hostnames.of(rows) if name is not None)
    return Exclusion((requirement(HOSTNAME_LABEL, Operator.NOT_IN, values),), left_out)


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
