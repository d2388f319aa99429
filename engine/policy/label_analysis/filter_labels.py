"""The requirements of one filter on node labels: analyzed at load, evaluated for every pod."""

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
from engine.policy.label_analysis.requirements import condition_of, precompute

_MOST_REMEMBERED = 256  # pods that differ in the values a filter reads


@dataclass(frozen=True, slots=True)
class FilterLabels:
    """The requirements of a filter on node labels.

    Attributes:
        predicate: the filter, taken apart.
        goal: the nodes that pass it.
        program: the expression, None for a plugin.
    """

    predicate: LabelPredicate
    goal: Goal = PASSES
    program: Program | None = None
    _for_all: LabelCondition | None = field(init=False, repr=False, compare=False)
    _remembered: dict[str, LabelCondition] = field(default_factory=dict, repr=False, compare=False)

    def __post_init__(self) -> None:
        is_for_all = self.program is None or isinstance(self.predicate, Precomputed)
        found = condition_of(self.predicate, self.goal, {}) if is_for_all else None
        object.__setattr__(self, "_for_all", found)

    def condition(self, context: PolicyContext) -> LabelCondition:
        """Return the labels that a node needs to pass, for the pod of a context."""
        if self._for_all is not None:
            return self._for_all
        program = self.program
        assert program is not None  # noqa: S101 - INVARIANT: otherwise it is for all pods
        key = context.key_of(program)
        if key is not None and key in self._remembered:
            return self._remembered[key]
        found = condition_of(self.predicate, self.goal, context.activation(program))
        if key is not None:
            if len(self._remembered) >= _MOST_REMEMBERED:
                self._remembered.clear()
            self._remembered[key] = found
        return found

    @property
    def summary(self) -> LabelSummary:
        """The requirements for any pod."""
        return summarize(self.predicate, self.goal)


def filter_labels(program: Program, *, errors_pass: bool) -> FilterLabels:
    """Return the requirements of an expression on node labels.

    Args:
        program: true for nodes that pass.
        errors_pass: whether a node passes where it cannot be evaluated.
    """
    goal = DOES_NOT_FAIL if errors_pass else PASSES
    return FilterLabels(analyze(program.root), goal, program)


PLUGIN_LABELS: Final = FilterLabels(precompute(Unknown("it is a plugin")))
"""Plugins require no labels."""
