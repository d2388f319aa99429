"""Additions to a pod's node affinity as JSON Patch (RFC 6902) operations.

They never change the meaning of the user's terms. The functions take objects as they stand in JSON,
with nulls, empty objects and unknown fields: Go writes a null for a missing value.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

from jsonpointer import escape

from engine.model import selectors
from engine.model.selectors import Operator

Operation: TypeAlias = dict[str, Any]
"""One JSON Patch operation, always an `add`."""

Requirement: TypeAlias = Mapping[str, Any]
"""A node selector requirement as it stands in JSON: key, operator, values."""

Alternatives: TypeAlias = Sequence[Sequence[Requirement]]
"""Terms of which one must hold as a whole; none is empty. Without any, nothing is required."""

REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
PREFERRED = "preferredDuringSchedulingIgnoredDuringExecution"


def requirement(key: str, operator: Operator, values: Sequence[str]) -> Requirement:
    """Return a node selector requirement; values come from nodes, and so are valid ones."""
    return {"key": key, "operator": str(operator), "values": values}


def json_of(requirement: selectors.Requirement) -> Requirement:
    """Return a requirement as it stands in JSON."""
    json = {"key": requirement.key, "operator": requirement.operator.value}
    if requirement.operator in {Operator.GT, Operator.LT}:
        return {**json, "values": [str(requirement.bound)]}
    return {**json, "values": sorted(requirement.values)} if requirement.values else json


def node_affinity_of(affinity: Mapping[str, Any] | None) -> Mapping[str, Any]:
    """Return the `nodeAffinity` of a pod's `spec.affinity`, empty when there is none."""
    return (affinity or {}).get("nodeAffinity") or {}


def required_terms(affinity: Mapping[str, Any] | None) -> Sequence[Mapping[str, Any] | None] | None:
    """Return the required terms of a pod's `spec.affinity`, None when nothing is required."""
    required = node_affinity_of(affinity).get(REQUIRED)
    return None if required is None else required.get("nodeSelectorTerms") or ()


def term_count(affinity: Mapping[str, Any] | None) -> int:
    """Return how many required terms a pod's `spec.affinity` has, without empty ones."""
    return sum(not _is_empty(term) for term in required_terms(affinity) or ())


def _is_empty(term: Mapping[str, Any] | None) -> bool:
    """Return whether a term has no requirement, and so matches nothing."""
    return not term or not (term.get("matchExpressions") or term.get("matchFields"))


def affinity_tree(
    affinity: Mapping[str, Any] | None,
    required: Alternatives,
    preferred: Sequence[Mapping[str, Any]],
) -> dict[str, Any]:
    """Return the tree for `graft` to add to `spec.affinity`: all but additions to existing terms.

    Requirements get a term of their own only where there is no required affinity at all: terms are
    alternatives, so one more would admit nodes that the user's terms exclude.
    """
    tree: dict[str, Any] = {}
    if required and required_terms(affinity) is None:
        terms = [{"matchExpressions": list(alternative)} for alternative in required]
        tree[REQUIRED] = {"nodeSelectorTerms": terms}
    if preferred:
        tree[PREFERRED] = list(preferred)
    return {"nodeAffinity": tree} if tree else {}


def and_into_required(
    affinity: Mapping[str, Any] | None, required: Alternatives
) -> list[Operation]:
    """Return operations that make every existing required term demand one of `required` too.

    A term gets the first alternative, and there is a copy of it with each of the others. Empty
    terms stay empty: they match nothing, and a requirement would make them match something.
    """
    operations: list[Operation] = []
    if not required:
        return operations
    place = f"/spec/affinity/nodeAffinity/{REQUIRED}/nodeSelectorTerms"
    for index, term in enumerate(required_terms(affinity) or ()):
        if term is None or _is_empty(term):
            continue
        first, *others = required
        operations += graft(term, {"matchExpressions": list(first)}, f"{place}/{index}")
        for other in others:
            expressions = [*(term.get("matchExpressions") or ()), *other]
            copy = {**term, "matchExpressions": expressions}
            operations.append(_add(f"{place}/-", copy))
    return operations


def graft(document: Mapping[str, Any], tree: Mapping[str, Any], place: str) -> list[Operation]:
    """Return operations that add `tree` to `document`, which stands at the JSON Pointer `place`.

    The lowest missing object is added whole, lists are appended to, and nothing that is there is
    touched, except that a leaf of `tree` replaces one of the same name.

    INVARIANT: no operation points into the value of another, so their order does not matter.
    """
    operations: list[Operation] = []
    for key, value in tree.items():
        there = document.get(key)
        path = f"{place}/{escape(key)}"
        if there is None or not isinstance(value, (dict, list)):
            operations.append(_add(path, value))
        elif isinstance(value, dict):
            operations += graft(there, value, path)
        else:
            operations += [_add(f"{path}/-", item) for item in value]
    return operations


def _add(path: str, value: object) -> Operation:
    return {"op": "add", "path": path, "value": value}
