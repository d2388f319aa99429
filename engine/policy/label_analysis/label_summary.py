"""The share of a filter that requirements on node labels express, for any pod.

Requirements also hold for nodes that do not exist yet.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from engine.model.label_condition import ALWAYS, NEVER, Exactness, LabelCondition
from engine.policy.label_analysis.label_predicate import (
    AllOf,
    AnyOf,
    Comparison,
    Conditional,
    Constant,
    Goal,
    Key,
    LabelPredicate,
    Let,
    Negation,
    Precomputed,
    Presence,
    Quantifier,
    Unknown,
)
from engine.policy.label_analysis.requirements import NO_NUMBER

_WORDS: Final = {
    Exactness.EXACT: "labels",
    Exactness.PARTIAL: "labels in part",
    Exactness.NONE: "advice only",
}


@dataclass(frozen=True, slots=True)
class LabelSummary:
    """The requirements of a filter on node labels, whatever the pod.

    Attributes:
        constrains_labels: whether it constrains labels, at least for some pods.
        reasons: why labels do not carry all of it; empty if they do.
        keys: those of the labels that are written in the filter.
        unsatisfiable: whether no node can ever pass.
    """

    constrains_labels: bool = False
    reasons: frozenset[str] = frozenset()
    keys: frozenset[str] = frozenset()
    unsatisfiable: bool = False

    @property
    def exactness(self) -> Exactness:
        """The share of the filter that requirements express, for pods that it constrains at all."""
        if not self.reasons:
            return Exactness.EXACT
        return Exactness.PARTIAL if self.constrains_labels else Exactness.NONE

    @property
    def summary(self) -> str:
        """The way the filter binds nodes that do not exist yet, in a few words."""
        return _WORDS[self.exactness]


_NO_CONSTRAINT: Final = LabelSummary()


def summarize(predicate: LabelPredicate, goal: Goal) -> LabelSummary:  # noqa: C901 (a case per class)
    """Return the constraints on the labels of a node that meets a goal."""
    match predicate:
        case Constant():
            return _NO_CONSTRAINT
        case Negation(operand):
            return summarize(operand, goal.opposite())
        case AllOf(operands) | AnyOf(operands):
            parts = [summarize(operand, goal) for operand in operands]
            needs_all = goal.needs_all(of_all=isinstance(predicate, AllOf))
            return _joined(parts, needs_all=needs_all)
        case Conditional():
            return _conditional(predicate, goal)
        case Quantifier(body=body) | Let(body=body):
            return summarize(body, goal)
        case Presence(key):
            return _on_labels((key,))
        case Comparison(key):
            if predicate.numeric and goal.negated:
                return LabelSummary(reasons=frozenset({NO_NUMBER}))
            return _on_labels((key,))
        case Unknown(reason, needs):
            return _on_labels(() if goal.negated else needs, reason)
        case Precomputed(conditions):
            return _of_condition(conditions[goal])


def _on_labels(keys: Iterable[Key], *reasons: str) -> LabelSummary:
    """Return that some labels are constrained, and why that may not be all."""
    known = list(keys)
    texts = frozenset(key.text for key in known if key.text)
    return LabelSummary(bool(known), frozenset(reasons), texts)


def _of_condition(condition: LabelCondition) -> LabelSummary:
    """Return the summary of a condition that is the same for all pods."""
    if condition in (ALWAYS, NEVER):
        return LabelSummary(unsatisfiable=condition == NEVER)
    return LabelSummary(
        constrains_labels=condition.exactness is not Exactness.NONE,
        reasons=frozenset(condition.reasons),
        keys=frozenset(requirement.key for term in condition.terms for requirement in term),
    )


def _conditional(predicate: Conditional, goal: Goal) -> LabelSummary:
    """Return the summary of both branches, each where the test selects it."""
    branches = []
    for taken_on, part in ((True, predicate.then), (False, predicate.otherwise)):
        test = summarize(predicate.test, Goal(taken_on, goal.negated))
        branches.append(_joined((test, summarize(part, goal)), needs_all=not goal.negated))
    return _joined(branches, needs_all=goal.negated)


def _joined(parts: Iterable[LabelSummary], *, needs_all: bool) -> LabelSummary:
    """Return the summary of all parts, or of any of those that do not depend on the pod."""
    open_parts = [part for part in parts if part.constrains_labels or part.reasons]
    if not open_parts:
        return _NO_CONSTRAINT
    quantifier = any if needs_all else all
    constrains_labels = quantifier(part.constrains_labels for part in open_parts)
    return LabelSummary(
        constrains_labels,
        frozenset().union(*(part.reasons for part in open_parts)),
        frozenset().union(*(part.keys for part in open_parts))
        if constrains_labels
        else frozenset(),
    )
