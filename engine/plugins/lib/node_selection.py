"""Which nodes the selector and the node affinity of a pod select."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Final

import numpy as np

from engine.model.pod import Pod
from engine.model.selectors import (
    NAME_FIELD,
    NodeSelector,
    Operator,
    Requirement,
    Term,
    parse_node_selector,
)
from engine.view import BoolColumn, ClusterView, integer_label_column, label_column

_MOST_KEYS: Final = 64  # a column per label costs half a millisecond, and anyone may create a pod
TOO_MANY_KEYS: Final = f"node affinity names more than {_MOST_KEYS} labels"
"""Why a pod could not be judged; see `names_too_many`."""


def names_too_many(terms: Sequence[Term], more: Collection[str]) -> bool:
    """Return whether more label columns are needed than a pod may ask for."""
    keys = {label.key for term in terms if term.only_name is None for label in term.labels}
    return len(keys.union(more)) > _MOST_KEYS


def matching_required(
    labels: Mapping[str, str], required: NodeSelector | None, view: ClusterView
) -> BoolColumn:
    """Return which nodes a pod allows by its node selector and its required affinity, (n,)."""
    found = np.ones(len(view), np.bool_)
    for key, value in labels.items():
        found &= label_column(view, key).isin((value,))
    if required is not None:
        found &= matching_any(required, view)
    return found


def allowed_by_labels(pod: Pod, view: ClusterView) -> BoolColumn:
    """Return which nodes the pod's node selector and the affinity it will have allow, (n,)."""
    required = None
    if pod.affinity is not None:
        required = pod.affinity.required_during_scheduling_ignored_during_execution
    selector = None if required is None else parse_node_selector(required)[0]
    if names_too_many(selector.terms if selector else (), pod.node_selector):
        return np.zeros(len(view), np.bool_)  # NodeAffinity rejects all of them
    allowed = matching_required(pod.node_selector, selector, view)
    return allowed & matching_promised(pod.promised, view) if pod.promised else allowed


def matching_promised(
    alternatives: Sequence[Sequence[Requirement]], view: ClusterView
) -> BoolColumn:
    """Return which nodes meet one of some alternatives of requirements on labels, (n,).

    All of them if there is none.
    """
    if not alternatives:
        return np.ones(len(view), np.bool_)
    found = np.zeros(len(view), np.bool_)
    for requirements in alternatives:
        term = np.ones(len(view), np.bool_)
        for requirement in requirements:
            term &= _holds(requirement, view)
        found |= term
    return found


def matching_any(selector: NodeSelector, view: ClusterView) -> BoolColumn:
    """Return which nodes a selector picks, shape (n,)."""
    found = np.zeros(len(view), np.bool_)
    for term in selector.terms:
        found[matching(term, view)] = True
    return found


def matching(term: Term, view: ClusterView) -> BoolColumn | list[int]:
    """Return which nodes a term matches: a mask of shape (n,), or rows where it names one node."""
    name = term.only_name
    if name is not None:
        row = view.rows.get(name)
        node = None if row is None else view.nodes[row]
        if row is None or node is None or not term.matches(node.labels, name):
            return []
        return [row]
    found = np.ones(len(view), np.bool_)
    for requirement in term.labels:
        found &= _holds(requirement, view)
    for requirement in term.fields:
        if requirement.key == NAME_FIELD:
            excluded = [view.rows[value] for value in requirement.values if value in view.rows]
            found[excluded] = False
        elif not requirement.matches(""):
            found[:] = False
    return found


def _holds(requirement: Requirement, view: ClusterView) -> BoolColumn:
    """Return on which nodes a label satisfies a requirement, shape (n,)."""
    match requirement.operator:
        case Operator.IN:
            return label_column(view, requirement.key).isin(requirement.values)
        case Operator.NOT_IN:
            return ~label_column(view, requirement.key).isin(requirement.values)
        case Operator.EXISTS:
            return label_column(view, requirement.key).present
        case Operator.DOES_NOT_EXIST:
            return ~label_column(view, requirement.key).present
        case Operator.GT:
            number, present = integer_label_column(view, requirement.key)
            return present & (number > requirement.bound)
        case Operator.LT:
            number, present = integer_label_column(view, requirement.key)
            return present & (number < requirement.bound)
