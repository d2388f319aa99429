"""What one filter says of node labels: found when it is loaded, told for every pod."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

from engine.cel import Program
from engine.model.label_condition import LabelCondition
from engine.policy.context import PolicyContext
from engine.policy.label_analysis.analyze import analyze
from engine.policy.label_analysis.label_predicate import (
    DOES_NOT_FAIL,
    PASSES,
    Goal,
    LabelPredicate,
    Precomputed,
    Unknown,
)
from engine.policy.label_analysis.label_summary import LabelSummary, summarize
from engine.policy.label_analysis.requirements import condition_of, settled

_MOST_REMEMBERED = 256  # pods that differ in what a filter reads of them


@dataclass(frozen=True, slots=True)
class FilterLabels:
    """What a filter says of node labels.

    Attributes:
        claim: what it is made of.
        question: which nodes pass it.
        program: the expression, None for a plugin.
    """

    claim: LabelPredicate
    question: Goal = PASSES
    program: Program | None = None
    _remembered: dict[str, LabelCondition] = field(default_factory=dict, repr=False, compare=False)

    def condition(self, context: PolicyContext) -> LabelCondition:
        """Return what labels a node needs to pass, for the pod of a context."""
        program = None if isinstance(self.claim, Precomputed) else self.program
        key = "" if program is None else context.key_of(program)  # without one pods have no say
        if key is not None and key in self._remembered:
            return self._remembered[key]
        activation = {} if program is None else context.activation(program)
        found = condition_of(self.claim, self.question, activation)
        if key is not None:
            if len(self._remembered) >= _MOST_REMEMBERED:
                self._remembered.clear()
            self._remembered[key] = found
        return found

    @property
    def summary(self) -> LabelSummary:
        """What it comes to for pods in general."""
        return summarize(self.claim, self.question)


def filter_labels(program: Program, *, errors_pass: bool) -> FilterLabels:
    """Return what an expression says of node labels.

    Args:
        program: true for nodes that pass.
        errors_pass: whether a node passes that it fails for.
    """
    question = DOES_NOT_FAIL if errors_pass else PASSES
    return FilterLabels(analyze(program.root), question, program)


PLUGIN_LABELS: Final = FilterLabels(settled(Unknown("it is a plugin")))
"""Plugins say nothing of labels."""
