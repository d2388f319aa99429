"""NodeAffinity: the node labels and names a pod requires, and those it prefers.

Source: pkg/scheduler/framework/plugins/nodeaffinity/node_affinity.go. A mistake in a required term
makes that term match nothing.

Differences from upstream:

- **Mistakes in preferred terms** are a fault of the score on every node. Upstream fails the whole
  scheduling attempt.
- **Many labels**: a pod that names more than 64 labels is a fault on every node.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Annotated, Final, TypeAlias

import msgspec
import numpy as np
from numpy.typing import NDArray
from pydantic import Field, ValidationError, field_validator
from pydantic_core import InitErrorDetails, PydanticCustomError

from engine.model import api
from engine.model.rule_outcomes import FilterResult, RuleInput, RuleInputs
from engine.model.selectors import (
    Mistakes,
    Term,
    parse_node_selector,
    parse_preferred_terms,
)
from engine.plugins.base import (
    FAULT,
    PASS,
    Args,
    Cycle,
    Filter,
    Plugin,
    ReadBy,
    Score,
    Scores,
    result_of,
)
from engine.plugins.lib.arithmetic import default_normalize
from engine.plugins.lib.constraints import (
    TOO_MANY_KEYS,
    matching,
    matching_any,
    matching_required,
    names_too_many,
)
from engine.view import ClusterView, Domain, IntColumn

_REQUIRED: Final = "requiredDuringSchedulingIgnoredDuringExecution"
_PREFERRED: Final = "preferredDuringSchedulingIgnoredDuringExecution"
_NODES = (Domain.NODES,)
_MOST_TOLD = 3  # mistakes in a message
_MOST_LABELS_TOLD = 8
_ENCODE = msgspec.json.Encoder().encode
_POD_MISMATCH = 1
_ADDED_MISMATCH = 2
_REASONS = {
    _POD_MISMATCH: "node(s) didn't match Pod's node affinity/selector",
    _ADDED_MISMATCH: "node(s) didn't match scheduler-enforced node affinity",
}


class RequirementArgs(Args):
    """One requirement on a label, or on `metadata.name`."""

    key: str
    operator: str
    values: tuple[str, ...] | None = None


class TermArgs(Args):
    """Requirements that must all hold."""

    match_expressions: tuple[RequirementArgs, ...] | None = None
    match_fields: tuple[RequirementArgs, ...] | None = None


class SelectorArgs(Args):
    """Terms of which one must match."""

    node_selector_terms: tuple[TermArgs, ...] | None


class PreferredTermArgs(Args):
    """A term, and what a node that matches it gains."""

    weight: Annotated[int, Field(strict=True)]
    preference: TermArgs


class AddedAffinityArgs(Args):
    """Node affinity in the form of a pod's."""

    required_during_scheduling_ignored_during_execution: Annotated[
        SelectorArgs | None, ReadBy.FILTER
    ] = None
    preferred_during_scheduling_ignored_during_execution: Annotated[
        tuple[PreferredTermArgs, ...] | None, ReadBy.SCORE
    ] = None


class NodeAffinityArgs(Args):
    """Node affinity that is added to that of each pod."""

    added_affinity: AddedAffinityArgs | None = None

    @field_validator("added_affinity")
    @classmethod
    def _is_right(cls, added: AddedAffinityArgs | None) -> AddedAffinityArgs | None:
        required, preferred = _sides(_wire(added))
        mistakes: Mistakes = ()
        if required is not None:
            mistakes += parse_node_selector(required, (_REQUIRED,))[1]
        mistakes += parse_preferred_terms(preferred, (_PREFERRED,))[1]
        if mistakes:
            raise ValidationError.from_exception_data(cls.__name__, _located(mistakes))
        return added


class NodeAffinityFilter(Filter):
    """Rejects nodes that the pod's selector, its required affinity or the added one excludes."""

    def __init__(self, args: NodeAffinityArgs) -> None:
        required, _ = _sides(_wire(args.added_affinity))
        self._added = None if required is None else parse_node_selector(required)[0]

    def filter(self, cycle: Cycle) -> FilterResult:
        """Return PASS, or the mismatch: of the added affinity before that of the pod."""
        pod = cycle.pod
        required, _ = _sides(pod.affinity)
        if self._added is None and required is None and not pod.node_selector:
            return FilterResult.passing(len(cycle.view))

        def codes(rows: ClusterView) -> NDArray[np.int8]:
            of_pod = None if required is None else parse_node_selector(required)[0]
            if names_too_many(of_pod.terms if of_pod else (), pod.node_selector):
                return np.full(len(rows), FAULT, np.int8)
            fits = matching_required(pod.node_selector, of_pod, rows)
            found = np.where(fits, np.int8(PASS), np.int8(_POD_MISMATCH))
            if self._added is not None:
                found[~matching_any(self._added, rows)] = _ADDED_MISMATCH
            return found

        key = (self, frozenset(pod.node_selector.items()), _ENCODE(required))
        return result_of(cycle.view.pod_column(key, _NODES, codes))

    def reasons(self, code: int, cycle: Cycle) -> tuple[str, ...]:
        return (_REASONS[code],)

    def fault(self, cycle: Cycle, row: int) -> str:
        return TOO_MANY_KEYS

    def inputs(self, cycle: Cycle, row: int) -> RuleInputs:
        required, _ = _sides(cycle.pod.affinity)
        of_pod = None if required is None else parse_node_selector(required)[0]
        selectors = (selector for selector in (of_pod, self._added) if selector is not None)
        terms = [term for selector in selectors for term in selector.terms]
        return _label_inputs(terms, cycle.pod.node_selector, cycle.view, row)


class NodeAffinityScore(Score):
    """Sums the weights of the preferred terms that match, the pod's and the added ones."""

    def __init__(self, args: NodeAffinityArgs) -> None:
        self._added, _ = parse_preferred_terms(_sides(_wire(args.added_affinity))[1])

    def score(self, cycle: Cycle) -> Scores:
        """Return the sums; a fault everywhere if a term of the pod's cannot be understood."""
        _, preferred = _sides(cycle.pod.affinity)
        if not self._added and not preferred:
            return Scores(np.zeros(len(cycle.view), np.int64))

        def sums(rows: ClusterView) -> IntColumn:
            of_pod, mistakes = parse_preferred_terms(preferred)
            if mistakes or names_too_many([weighted.term for weighted in of_pod], ()):
                return np.full(len(rows), FAULT)
            total = np.zeros(len(rows), np.int64)
            for weighted in (*self._added, *of_pod):
                total[matching(weighted.term, rows)] += weighted.weight
            return total

        total = cycle.view.pod_column((self, _ENCODE(preferred)), _NODES, sums)
        faults = total == FAULT
        return Scores(np.where(faults, 0, total), faults) if faults.any() else Scores(total)

    def normalize(self, scores: IntColumn) -> IntColumn:
        """Return the sums as percentages of the greatest one."""
        return default_normalize(scores)

    def fault(self, cycle: Cycle, row: int) -> str:
        """Return what is wrong with the pod's preferred terms."""
        _, mistakes = parse_preferred_terms(_sides(cycle.pod.affinity)[1], (_PREFERRED,))
        return "; ".join(str(mistake) for mistake in mistakes[:_MOST_TOLD]) or TOO_MANY_KEYS

    def inputs(self, cycle: Cycle, row: int) -> RuleInputs:
        of_pod, _ = parse_preferred_terms(_sides(cycle.pod.affinity)[1])
        return _label_inputs(
            [weighted.term for weighted in (*self._added, *of_pod)], (), cycle.view, row
        )


_Sides: TypeAlias = tuple[api.NodeSelector | None, Sequence[api.PreferredSchedulingTerm]]


def _sides(affinity: api.NodeAffinity | None) -> _Sides:
    """Return what an affinity requires, None if nothing, and what it prefers."""
    if affinity is None:
        return None, ()
    return (
        affinity.required_during_scheduling_ignored_during_execution,
        affinity.preferred_during_scheduling_ignored_during_execution or (),
    )


def _wire(added: AddedAffinityArgs | None) -> api.NodeAffinity | None:
    return None if added is None else msgspec.convert(added, api.NodeAffinity, from_attributes=True)


def _located(mistakes: Mistakes) -> list[InitErrorDetails]:
    """Return mistakes as pydantic's errors, each at its own place below the field."""
    return [
        InitErrorDetails(
            type=PydanticCustomError("value_error", "{error}", {"error": mistake.message}),
            loc=mistake.path,
            input=None,
        )
        for mistake in mistakes
    ]


def _label_inputs(
    terms: Iterable[Term], more: Iterable[str], view: ClusterView, row: int
) -> RuleInputs:
    """Return the labels of a node that terms and `more` ask about, the first few by name."""
    node = view.nodes[row]
    labels = node.labels if node else {}
    keys = sorted({requirement.key for term in terms for requirement in term.labels}.union(more))
    return tuple(
        RuleInput(f"label {key}", text=labels.get(key, "absent"))
        for key in keys[:_MOST_LABELS_TOLD]
    )


def _prefers(cycle: Cycle) -> bool:
    """Return whether a pod prefers any nodes."""
    return bool(_sides(cycle.pod.affinity)[1])


PLUGIN = Plugin(
    args=NodeAffinityArgs,
    filter=NodeAffinityFilter,
    score=NodeAffinityScore,
    reads=_NODES,
    ranks=_prefers,
)
