"""Plugins as rules evaluate them: `PluginFilter` and `PluginScore`.

They have the same methods as `engine.policy.expressions.FilterExpression` and `ScoreExpression`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Generic, TypeVar

import numpy as np
from numpy.typing import NDArray

from engine.model.rule_input import RuleInputs
from engine.model.rule_outcomes import FilterResult
from engine.plugins import (
    Filter,
    Plugin,
    ReadsAllNodes,
    Score,
    ScoreAmong,
)
from engine.policy.context import RuleContext
from engine.view import BoolColumn, Domain, IntColumn

_P = TypeVar("_P", bound=Filter | Score)


@dataclass(frozen=True, slots=True)
class _PluginEvaluator(Generic[_P]):
    """A plugin by its args, and the entry of the registry that it is built from."""

    plugin: _P
    entry: Plugin

    @property
    def reads(self) -> tuple[Domain, ...]:
        """The domains of the cluster that its answers rest on."""
        return self.entry.reads

    def reads_other_nodes(self, context: RuleContext) -> bool:
        """Return whether an answer for a node rests on more than its row; see `Plugin`."""
        return self.entry.reads_other_nodes(context.pod, context.view)

    def fault(self, context: RuleContext, row: int) -> str:
        """Return why a row could not be evaluated."""
        return self.plugin.fault(context.pod, context.view, row)

    def inputs(self, context: RuleContext, row: int) -> RuleInputs:
        """Return the values that the formula used for a row."""
        return self.plugin.inputs(context.pod, context.view, row, context.now)


class PluginFilter(_PluginEvaluator[Filter]):
    """A filter by a plugin."""

    __slots__ = ()

    def filter(self, context: RuleContext) -> FilterResult:
        """Return the code of each row."""
        return self.plugin.filter(context.pod, context.view, context.now)

    def may_relent(self, context: RuleContext) -> bool:
        """Return whether more pods, on any nodes, may make it pass a node that it rejects."""
        return self.reads_other_nodes(context)

    def reason(self, context: RuleContext, code: int) -> str:
        """Return the plugin's texts for a code > 0, in one line."""
        return ", ".join(self.plugin.reasons(code, context.pod, context.view))


class PluginScore(_PluginEvaluator[Score]):
    """A score by a plugin."""

    __slots__ = ()

    def reads_other_nodes(self, context: RuleContext) -> bool:
        """Return whether a score of a node rests on more than its row; see `Plugin`."""
        reads = self.entry.score_reads_other_nodes or self.entry.reads_other_nodes
        return isinstance(self.plugin, ReadsAllNodes) or reads(context.pod, context.view)

    def score(
        self, context: RuleContext, rows: NDArray[np.intp]
    ) -> tuple[NDArray[np.int64], BoolColumn | None]:
        """Return raw scores of `rows`, and which of them have none; None where all have."""
        pod, view, now = context.pod, context.view, context.now
        if isinstance(self.plugin, ScoreAmong):
            among = self.plugin.score_among(pod, view, now, rows)
            return among.values, among.faults
        scores = self.plugin.score(pod, view, now)
        faulty = None if scores.faults is None else scores.faults.take(rows)
        return scores.values[rows], None if faulty is None or not faulty.any() else faulty

    def normalize(self, raw: NDArray[np.int64] | NDArray[np.float64]) -> IntColumn:
        """Return the scores on 0..MAX_SCORE by the plugin's own rule."""
        return self.plugin.normalize(raw.astype(np.int64, copy=False))
