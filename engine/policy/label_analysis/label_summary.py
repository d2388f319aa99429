"""What a filter comes to on node labels for pods in general: how far it holds for nodes to come."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from engine.model.label_condition import ALWAYS, NEVER, Exactness, LabelCondition
from engine.model.well_known import HOSTNAME_LABEL
from engine.policy.label_analysis.label_predicate import (
    Comparison,
    Conditional,
    Constant,
    Goal,
    Junction,
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
    Exactness.EXACT: "by labels",
    Exactness.PARTIAL: "by labels in part",
    Exactness.NONE: "as advice",
}


@dataclass(frozen=True, slots=True)
class LabelSummary:
    """What follows for node labels, whatever the pod.

    Attributes:
        says_something: whether a node needs some labels, for pods at least of some kind.
        reasons: why this is not all that it needs; empty if it is.
        keys: those of the labels that are written in the filter.
        hopeless: whether no node can ever pass.
    """

    says_something: bool = False
    reasons: frozenset[str] = frozenset()
    keys: frozenset[str] = frozenset()
    hopeless: bool = False

    @property
    def exactness(self) -> Exactness:
        """How much of the filter requirements can carry, for pods for which it matters at all."""
        if not self.reasons:
            return Exactness.EXACT
        return Exactness.PARTIAL if self.says_something else Exactness.NONE

    @property
    def summary(self) -> str:
        """How nodes to come are kept to the filter, in a few words."""
        return _WORDS[self.exactness]

    @property
    def warnings(self) -> tuple[str, ...]:
        """What an author should think of, in a line each."""
        if self.hopeless:
            return ("no node can ever pass",)
        if HOSTNAME_LABEL in self.keys:
            return (f"no autoscaler adds a node for a requirement on `{HOSTNAME_LABEL}`",)
        return ()


_SETTLED: Final = LabelSummary()


def summarize(claim: LabelPredicate, question: Goal) -> LabelSummary:  # noqa: C901 (a case per kind of claim)
    """Return what follows from the answer to a question being yes."""
    match claim:
        case Constant():
            return _SETTLED
        case Negation(operand):
            return summarize(operand, question.of_opposite())
        case Junction(operands, of_all):
            parts = [summarize(operand, question) for operand in operands]
            return _joined(parts, needs_all=question.needs_all(of_all=of_all))
        case Conditional():
            return _choice(claim, question)
        case Quantifier():
            return summarize(claim.predicate, question)
        case Let():
            return summarize(claim.body, question)
        case Presence(key):
            return _on_labels((key,))
        case Comparison(key):
            unsayable = claim.numeric and question.negated
            return LabelSummary(reasons=frozenset({NO_NUMBER})) if unsayable else _on_labels((key,))
        case Unknown(reason, reads):
            return _on_labels(() if question.negated else reads, reason)
        case Precomputed(answers):
            return _of_condition(answers[question].bounded())


def _on_labels(keys: Iterable[Key], *reasons: str) -> LabelSummary:
    """Return that something is asked of some labels, and why that may not be all."""
    known = list(keys)
    texts = frozenset(key.text for key in known if key.text)
    return LabelSummary(bool(known), frozenset(reasons), texts)


def _of_condition(condition: LabelCondition) -> LabelSummary:
    """Return what follows from a condition that is the same for all pods."""
    if condition in (ALWAYS, NEVER):
        return LabelSummary(hopeless=condition == NEVER)
    return LabelSummary(
        says_something=condition.exactness is not Exactness.NONE,
        reasons=frozenset(condition.reasons),
        keys=frozenset(requirement.key for term in condition.terms for requirement in term),
    )


def _choice(claim: Conditional, question: Goal) -> LabelSummary:
    """Return what follows from either branch, each where the test leads to it."""
    branches = []
    for taken_on, part in ((True, claim.then), (False, claim.otherwise)):
        test = summarize(claim.test, Goal(taken_on, question.negated))
        branches.append(_joined((test, summarize(part, question)), needs_all=not question.negated))
    return _joined(branches, needs_all=question.negated)


def _joined(parts: Iterable[LabelSummary], *, needs_all: bool) -> LabelSummary:
    """Return what follows from all parts, or from one of those that do not depend on the pod."""
    open_parts = [part for part in parts if part.says_something or part.reasons]
    if not open_parts:
        return _SETTLED
    some = any if needs_all else all
    says_something = some(part.says_something for part in open_parts)
    return LabelSummary(
        says_something,
        frozenset().union(*(part.reasons for part in open_parts)),
        frozenset().union(*(part.keys for part in open_parts)) if says_something else frozenset(),
    )
