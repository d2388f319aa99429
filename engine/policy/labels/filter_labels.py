"""What one filter says of node labels: found when it is loaded, told for every pod."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from engine.cel import Program
from engine.model.label_condition import LabelCondition
from engine.policy.context import PolicyContext
from engine.policy.labels.claims import DOES_NOT_FAIL, PASSES, Claim, Question, Unknown
from engine.policy.labels.finder import claim_of
from engine.policy.labels.outlook import Outlook, outlook_of, outlook_of_condition
from engine.policy.labels.requirements import condition_of


@dataclass(frozen=True, slots=True)
class FilterLabels:
    """What a filter says of node labels.

    Attributes:
        claim: what it is made of.
        question: which nodes pass it.
        program: the expression, None for a plugin.
        settled: the condition, if no pod has a say in it.
    """

    claim: Claim
    question: Question
    program: Program | None
    settled: LabelCondition | None

    def condition(self, context: PolicyContext) -> LabelCondition:
        """Return what labels a node needs to pass, for the pod of a context."""
        if self.settled is not None:
            return self.settled
        assert self.program is not None  # noqa: S101 - INVARIANT: a plugin is settled
        return condition_of(self.claim, self.question, context.activation(self.program))

    @property
    def outlook(self) -> Outlook:
        """What it comes to for pods in general."""
        if self.settled is not None:
            return outlook_of_condition(self.settled)
        return outlook_of(self.claim, self.question)


def filter_labels(program: Program, *, errors_pass: bool) -> FilterLabels:
    """Return what an expression says of node labels.

    Args:
        program: true for nodes that pass.
        errors_pass: whether a node passes that it fails for.
    """
    claim = claim_of(program.root)
    question = DOES_NOT_FAIL if errors_pass else PASSES
    reads_pod = any(root != "node" for root, *_ in program.references)
    settled = None if reads_pod else condition_of(claim, question, {})
    return FilterLabels(claim, question, program, settled)


_PLUGIN: Final = Unknown("it is a plugin")

PLUGIN_LABELS: Final = FilterLabels(_PLUGIN, PASSES, None, condition_of(_PLUGIN, PASSES, {}))
"""Plugins say nothing of labels."""
