"""Additions to a pod's node affinity as JSON Patch (RFC 6902) operations.

They never change the meaning of the user's terms. The functions take objects as they stand in JSON,
with nulls, empty objects and unknown fields: Go writes a null for a missing value.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from itertools import repeat
from typing import Any, Final, NamedTuple, TypeAlias, cast

import numpy as np
from jsonpointer import escape
from numpy.typing import NDArray

from engine.errors import counted
from engine.model import api, selectors
from engine.model.decision import Decision, Ranking
from engine.model.label_condition import ALWAYS, Alternative, Exactness, LabelCondition, LabelStates
from engine.model.rule_outcomes import SCHEDULER, FilterOutcome, and_not
from engine.model.selectors import Operator
from engine.model.well_known import HOSTNAME_LABEL
from engine.view import (
    MISSING,
    BoolColumn,
    ClusterView,
    Domain,
    LabelColumn,
    Sum,
    label_column,
    name_hashes,
)
from engine.view.axis import CPU, MEMORY

# The label by which a term can list nodes: `kubernetes.io/hostname`.
#
# A value that is missing or shared does not identify a node, so such a node cannot be listed.


NOT_LISTABLE = f"label {HOSTNAME_LABEL} is missing or not unique"
"""Why a node is not listed, for warnings."""


class Hostnames:
    """The hostname labels of a view."""

    def __init__(self, view: ClusterView) -> None:
        self._column = label_column(view, HOSTNAME_LABEL)

    def listable(self, rows: NDArray[np.intp]) -> BoolColumn:
        """Return which of `rows` have a unique hostname."""
        codes = self._column.codes[rows]
        listable: BoolColumn = (self._column.counts[codes] == 1) & (codes != MISSING)
        return listable

    def of(self, rows: NDArray[np.intp]) -> list[str | None]:
        """Return the hostname of each of `rows`, None where it is not listable."""
        codes = self._column.codes.take(rows)
        uses = self._column.counts.take(codes)
        values = self._column.values
        return [
            values[code] if used == 1 else None
            for code, used in zip(codes.tolist(), uses.tolist(), strict=True)
        ]


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


# Rejected nodes as one requirement, for policies whose dynamic filters are required.
#
# Always `NotIn`: future nodes still match, so the cluster autoscaler can add one.


@dataclass(frozen=True, slots=True)
class Exclusion:
    """The excluded nodes."""

    requirements: tuple[Requirement, ...] = ()  # at most one
    left_out: int = 0  # how many rejected nodes are not excluded: beyond the bound, or not listable

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
    """The rejected nodes of a decision, by who enforces the rejection; computed when read."""

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


MAX_VALUES = 8
"""The most values of a label in one requirement."""

_SAMPLE = 32
_SAMPLE_OF_ALL = 32


class Groups:
    """The parts of a ranking that a few values of one label describe exactly.

    A label may also include nodes that the scheduler itself rejects: one full or cordoned node in a
    zone does not make the zone a worse description.

    Hardly any part of a ranking is such a group, and a few nodes suffice to see it: if a node of a
    part shares a value with a node of another, that label does not describe the part.
    So all labels of a node are one value of one column, and the nodes that have a value are counted
    only for a label that the sample does not rule out.
    """

    def __init__(
        self,
        view: ClusterView,
        labels: Sequence[str],
        ranking: Ranking,
        rejections: Rejections,
    ) -> None:
        self._view, self._ranking, self._rejections = view, ranking, rejections
        self._keys = keys = tuple(labels)
        column = view.dictionary_column(
            ("labels", keys),
            (Domain.NODES,),
            lambda rows: (
                None if node is None else tuple(map(node.labels.get, keys)) for node in rows.nodes
            ),
        )
        stride = len(ranking) // _SAMPLE_OF_ALL + 1
        self._codes = column.codes
        # The only None among them is the value of MISSING, and whatever is ranked is a node.
        self._values = cast("Sequence[tuple[str | None, ...]]", column.values)
        self._sampled_codes = column.codes.take(ranking.rows[::stride]).tolist()
        self._sampled_totals = ranking.given_totals[::stride].tolist()
        self._labels: dict[str, _Label] = {}

    def describe(self, start: int, end: int) -> Requirement | None:
        """Return the requirement that just the nodes at positions `start` to `end` meet, if any."""
        totals = self._ranking.ranked_totals
        best, worst = totals.at(start), totals.at(end - 1)
        inside, others = set[int](), set[int]()
        for total, code in zip(self._sampled_totals, self._sampled_codes, strict=True):
            (inside if worst <= total <= best else others).add(code)
        if not inside.isdisjoint(others):
            return None  # nodes that are alike in every label
        of_inside = self._by_label(inside or {self._code_of_one(worst)})
        of_others = self._by_label(others) if others else repeat(())
        for key, found, known in zip(self._keys, of_inside, of_others, strict=False):
            if None in found or not set(found).isdisjoint(known):
                continue
            values = self._label(key).exactly(self._ranking.part(start, end))
            if values:
                return requirement(key, Operator.IN, values)
        return None

    def _by_label(self, codes: Iterable[int]) -> Iterator[tuple[str | None, ...]]:
        """Yield for each label the values that belong to codes, of which there is one at least."""
        return zip(*[self._values[code] for code in codes], strict=True)

    def _code_of_one(self, total: int) -> int:
        """Return the labels of a node that has a total."""
        place = (self._ranking.given_totals == total).argmax()
        return int(self._codes[self._ranking.rows[place]])

    def _label(self, key: str) -> _Label:
        label = self._labels.get(key)
        if label is None:
            column = label_column(self._view, key)
            label = self._labels[key] = _Label(column, self._others)
        return label

    @cached_property
    def _others(self) -> NDArray[np.intp]:
        """Rows of nodes that a label may also include."""
        return np.flatnonzero(self._rejections.unreachable & self._view.valid)


def preferred_by_score(
    decision: Decision, view: ClusterView, rejections: Rejections
) -> list[Requirement] | None:
    """Return the requirements of the one score that gives points, if labels express it.

    Unlike a label that describes the best nodes of today, they hold for nodes to come, too. None
    where a node that policies reject, and no label tells, meets them as well.
    """
    scores = [score for score in decision.scored if not score.reason]
    if not len(decision.ranking) or len(scores) != 1 or scores[0].preferred is None:
        return None
    condition = scores[0].preferred()
    if condition.exactness is not Exactness.EXACT or len(condition.terms) != 1:
        return None
    (term,) = condition.terms
    matching = view.valid
    for each in term:
        column = label_column(view, each.key)
        matches = np.array([each.matches(value) for value in column.values], np.bool_)
        matching = matching & matches[column.codes]
    totals = decision.ranking.ranked_totals
    best = decision.ranking.part(0, totals.count_from(totals.at(0)))
    if int(np.count_nonzero(matching & ~rejections.unreachable)) != best.size:
        return None
    return [*map(json_of, term)] if term and matching[best].all() else None


@dataclass(frozen=True)
class _Label:
    """A label of all nodes."""

    column: LabelColumn  # its values
    others: NDArray[np.intp]  # rows of nodes that it may also include

    @cached_property
    def _counts(self) -> NDArray[np.int64]:
        """How many nodes have each value, apart from `others`."""
        counts = self.column.counts
        if not self.others.size:
            return counts
        return counts - np.bincount(self.column.codes[self.others], minlength=counts.size)

    def exactly(self, rows: NDArray[np.intp]) -> list[str]:
        """Return the few values that all of `rows` have and no other node, or none.

        Most sets that are no group are ruled out by their first node, most others by a few.
        """
        codes, first = self.column.codes, self.column.codes[rows[0]]
        if first == MISSING or self._counts[first] > rows.size:
            return []
        for part in (rows[:_SAMPLE], rows):
            found = np.flatnonzero(np.bincount(codes[part]))
            if (
                found[0] == MISSING
                or found.size > MAX_VALUES
                or self._counts[found].sum() > rows.size  # never less over all of `rows`
            ):
                return []
        return sorted(self.column.values[code] or "" for code in found.tolist())


# Requirements of filters on node labels: the scheduler enforces them, on future nodes too.
#
# They do not depend on the state of any node. So they are written whenever a policy applies, also
# on a pod without candidates: it waits for the right node.


MOST_TERMS: Final = 16
"""The most required terms of a pod: its own times those of the filters."""

_LONGEST_RULE = 63


@dataclass(frozen=True, slots=True)
class RequiredLabels:
    required: Alternatives = ()  # alternatives of which one must hold; none if nothing is required
    # the filters that they express completely, so that the scheduler enforces them
    enforced: tuple[FilterOutcome, ...] = ()
    # the names of filters that constrain labels and are not expressed
    left_out: tuple[str, ...] = ()
    condition: LabelCondition = ALWAYS  # the same as `required`

    @property
    def warnings(self) -> list[str]:
        """A line for each filter left out, below the 120 characters that clients show."""
        return [
            f"filter {rule[:_LONGEST_RULE]} is not required of nodes: it takes too many terms"
            for rule in self.left_out
        ]

    def are_demanded_by(self, affinity: api.NodeAffinity | None) -> bool:
        """Return whether every node that a pod's own affinity allows meets them."""
        if not self.required:
            return True
        wire = affinity and affinity.required_during_scheduling_ignored_during_execution
        if not wire:
            return False
        terms = selectors.parse_node_selector(wire)[0].terms
        alternatives = self.condition.alternatives
        keys = {key for each in alternatives for key in each.labels}
        return all(
            any(each.covers(part) for each in alternatives)
            for term in map(Alternative.of, (term.labels for term in terms))
            if term is not None
            for part in _by_presence(term, keys)
        )


def _by_presence(term: Alternative, keys: Iterable[str]) -> list[Alternative]:
    """Split a term by whether each label is missing: several alternatives may cover it together."""
    parts = [term]
    for key in keys:
        parts = [
            part
            for whole in parts
            for states in (LabelStates(missing=True), LabelStates(others=True))
            if (part := whole & Alternative({key: states})) is not None
        ]
    return parts


def required_labels(filters: Sequence[FilterOutcome], user_terms: int) -> RequiredLabels:
    """Return the requirements of filters on labels, as far as `MOST_TERMS` allows.

    The more terms a filter takes, the sooner it is left out. If no node can pass, nothing is
    required: the decision reports it, and a pod that can never run helps nobody.
    """
    pairs = [(outcome, outcome.labels) for outcome in filters]
    pairs = [pair for pair in pairs if pair[1].exactness is not Exactness.NONE]
    if not pairs:
        return RequiredLabels()
    combined = _combined_of([labels for _, labels in pairs], user_terms)
    return RequiredLabels(
        combined.required,
        tuple([pairs[i][0] for i in combined.enforced]),
        tuple([pairs[i][0].rule for i in combined.left_out]),
        combined.condition,
    )


def promised_labels(
    filters: Iterable[tuple[str, LabelCondition]], user_terms: int
) -> RequiredLabels:
    """Return the same of filters that no node is judged by."""
    pairs = [pair for pair in filters if pair[1].exactness is not Exactness.NONE]
    if not pairs:
        return RequiredLabels()
    combined = _combined_of([labels for _, labels in pairs], user_terms)
    left_out = tuple([pairs[i][0] for i in combined.left_out])
    return RequiredLabels(combined.required, (), left_out, combined.condition)


def _combined_of(conditions: list[LabelCondition], user_terms: int) -> _Combined:
    return _combine(_Conditions(conditions), max(MOST_TERMS // max(user_terms, 1), 1))


class _Conditions(tuple[LabelCondition, ...]):
    """Conditions that are hashed by identity: policies remember those of similar pods.

    INVARIANT: the cache holds these, and so the conditions: no other object gets their identity.
    """

    __slots__ = ()

    def __hash__(self) -> int:
        return hash(tuple(map(id, self)))


class _Combined(NamedTuple):
    """`RequiredLabels` by the positions of filters. INVARIANT: shared by many pods, immutable."""

    required: Alternatives
    enforced: tuple[int, ...]
    left_out: tuple[int, ...]
    condition: LabelCondition


@lru_cache(maxsize=64)
def _combine(conditions: _Conditions, max_terms: int) -> _Combined:
    """Return the conjunction of conditions, in at most `max_terms` terms."""
    combined = ALWAYS
    enforced: list[int] = []
    left_out: list[int] = []
    for i in sorted(range(len(conditions)), key=lambda i: len(conditions[i].terms)):
        both = combined.meet(conditions[i])
        if both is None or len(both.terms) > max_terms or both.bounded() is not both:
            left_out.append(i)
            continue
        combined = both
        if conditions[i].exactness is Exactness.EXACT:
            enforced.append(i)
    required = tuple(tuple(map(json_of, term)) for term in combined.terms if term)
    return _Combined(required, tuple(enforced), tuple(left_out), combined)
