"""A ranking as preferred terms: a label where it describes the nodes of a step, else hostnames."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from engine.model.decision import Decision
from engine.model.selectors import GREATEST_WEIGHT, NAME_FIELD, Operator
from engine.placement.affinity import Requirement, requirement
from engine.placement.groups import Groups
from engine.placement.hostnames import HOSTNAME, Hostnames
from engine.placement.tiers import Step, listings, named, steps
from engine.view import ClusterView

_Rows: TypeAlias = NDArray[np.intp]
_Described: TypeAlias = tuple[Step, Requirement | None]


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
    groups: Groups,
    total_weight: int,
    *,
    some_rejected: bool,
) -> Preference:
    """Return the preferred terms for a decision.

    A node that cannot be listed by hostname is written by its name where it is a tier by itself,
    and otherwise left out: a term can ask for one name only.

    Args:
        decision: a decision to place.
        view: the view it was decided on.
        hostnames: those of the view.
        groups: those of the view, for what the scheduler itself turns away.
        total_weight: what the terms should add up to on the best node.
        some_rejected: whether a policy turned away nodes that the scheduler would take.
    """
    widths = listings(decision.totals, decision.placement.max_nodes, some_rejected=some_rejected)
    terms: list[dict[str, Any]] = []
    tiers: list[_Rows] = []
    left_out = 0
    for step, group in _chosen(decision, hostnames, groups, total_weight, widths):
        rows = decision.candidates[step.start : step.end]
        if group is not None:
            term = {"matchExpressions": [group]}
        else:
            rows, term = _listing(rows, view, hostnames)
            left_out += step.end - step.start - rows.size
        if rows.size:
            tiers.append(rows)
            terms.append({"weight": step.weight, "preference": term})
    return Preference(terms, tiers[0] if tiers else decision.candidates[:0], left_out)


def _chosen(
    decision: Decision,
    hostnames: Hostnames,
    groups: Groups,
    total_weight: int,
    widths: Iterable[int],
) -> list[_Described]:
    """Return the steps of the widest listing that takes few enough names, each with its label.

    INVARIANT: nested steps are chosen only if every node can be listed. One left out of a wide step
    but not of a narrow one, where a label stands for it, would end up below worse nodes.
    """
    for listed in widths:
        rows = decision.candidates[:listed]
        nestable = total_weight <= GREATEST_WEIGHT or bool(hostnames.listable(rows).all())
        weight = total_weight if nestable else GREATEST_WEIGHT
        chosen = steps(decision.totals, listed, weight)
        described = _described(chosen, rows, groups, decision.placement.max_nodes)
        if described is not None:
            return described
    return []


def _described(
    chosen: Iterable[Step], rows: _Rows, groups: Groups, max_nodes: int
) -> list[_Described] | None:
    """Return each step with its label, None once the steps without one are too many names."""
    described: list[_Described] = []
    for step in chosen:
        described.append((step, groups.describe(rows[step.start : step.end])))
        if named([step for step, group in described if group is None]) > max_nodes:
            return None
    return described


def _listing(rows: _Rows, view: ClusterView, hostnames: Hostnames) -> tuple[_Rows, dict[str, Any]]:
    """Return those of `rows` that one term can list, and the term."""
    values = hostnames.of(rows)
    if len(values) < rows.size:
        if rows.size == 1:
            name = requirement(NAME_FIELD, Operator.IN, [view.names[rows[0]]])
            return rows, {"matchFields": [name]}
        rows = rows[hostnames.listable(rows)]
    return rows, {"matchExpressions": [requirement(HOSTNAME, Operator.IN, values)]}
