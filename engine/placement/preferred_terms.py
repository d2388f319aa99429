"""A ranking as preferred terms: a label where it describes the nodes of a step, else hostnames."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from engine.model.decision import Decision
from engine.model.selectors import GREATEST_WEIGHT, NAME_FIELD, Operator
from engine.model.well_known import HOSTNAME_LABEL
from engine.placement.affinity import Requirement, requirement
from engine.placement.exclusion import Rejections
from engine.placement.groups import Groups
from engine.placement.hostnames import Hostnames
from engine.placement.weight_tiers import WeightTier, candidate_cuts, steps
from engine.view import ClusterView

_Rows: TypeAlias = NDArray[np.intp]
_Described: TypeAlias = tuple[WeightTier, Requirement | None]


@dataclass(frozen=True, slots=True)
class Preference:
    """What is preferred.

    Attributes:
        terms: preferred terms as they stand in JSON, best nodes first; three at most.
        best_tier: rows of the nodes that are preferred most, best first.
        left_out: how many nodes belong into a term but cannot be listed.
    """

    terms: list[dict[str, Any]]
    best_tier: _Rows
    left_out: int


def preference_of(
    decision: Decision,
    view: ClusterView,
    hostnames: Hostnames,
    rejections: Rejections,
    total_weight: int,
) -> Preference:
    """Return the preferred terms for a decision.

    A node that cannot be listed by hostname is written by its name where it is a tier by itself,
    and otherwise left out: a term can ask for one name only.

    Args:
        decision: a decision to place.
        view: the view it was decided on.
        hostnames: those of the view.
        rejections: those of the decision.
        total_weight: what the terms should add up to on the best node.
    """
    terms: list[dict[str, Any]] = []
    tiers: list[_Rows] = []
    left_out = 0
    chosen = _chosen(decision, view, hostnames, rejections, total_weight)
    # The names of all steps at once: each look at the columns costs more than the names do.
    unlabelled = [step for step, group in chosen if group is None]
    first, end = (unlabelled[0].start, unlabelled[-1].end) if unlabelled else (0, 0)
    names = hostnames.of(decision.candidates[first:end])
    for step, group in chosen:
        rows = decision.candidates[step.start : step.end]
        if group is not None:
            term = {"matchExpressions": [group]}
        else:
            rows, term = _listing(rows, names[step.start - first : step.end - first], view)
            left_out += step.end - step.start - rows.size
        if rows.size:
            tiers.append(rows)
            terms.append({"weight": step.weight, "preference": term})
    return Preference(terms, tiers[0] if tiers else decision.candidates[:0], left_out)


def _chosen(
    decision: Decision,
    view: ClusterView,
    hostnames: Hostnames,
    rejections: Rejections,
    total_weight: int,
) -> list[_Described]:
    """Return the steps of the widest listing that takes few enough names, each with its label.

    INVARIANT: nested steps are chosen only if every node can be listed. One left out of a wide step
    but not of a narrow one, where a label stands for it, would end up below worse nodes.
    """
    totals, candidates, placement = decision.totals, decision.candidates, decision.placement
    groups = Groups(view, placement.group_labels, candidates, rejections)
    for listed in candidate_cuts(
        totals, placement.max_nodes, lambda: bool(rejections.rejected.any())
    ):
        nestable = total_weight <= GREATEST_WEIGHT or bool(
            hostnames.listable(candidates[:listed]).all()
        )
        chosen = steps(totals, listed, total_weight if nestable else GREATEST_WEIGHT)
        described = _described(chosen, groups, placement.max_nodes)
        if described is not None:
            return described
    return []


def _described(
    chosen: Iterable[WeightTier], groups: Groups, max_nodes: int
) -> list[_Described] | None:
    """Return each step with its label, None once the steps without one are too many names.

    A name counts once in nested steps, which are in order of their ends.
    """
    described: list[_Described] = []
    names = covered = 0
    for step in chosen:
        group = groups.describe(step.start, step.end)
        described.append((step, group))
        if group is None:
            names += step.end - max(step.start, covered)
            covered = step.end
            if names > max_nodes:
                return None
    return described


def _listing(
    rows: _Rows, hostnames: Sequence[str | None], view: ClusterView
) -> tuple[_Rows, dict[str, Any]]:
    """Return those of `rows` that one term can list, and the term."""
    values = [name for name in hostnames if name is not None]
    if len(values) < rows.size:
        if rows.size == 1:
            name = requirement(NAME_FIELD, Operator.IN, [view.names[rows[0]]])
            return rows, {"matchFields": [name]}
        rows = rows[[name is not None for name in hostnames]]
    return rows, {"matchExpressions": [requirement(HOSTNAME_LABEL, Operator.IN, values)]}
