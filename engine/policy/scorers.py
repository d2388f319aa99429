"""What looks at nodes in a score: a plugin or an expression."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from engine.model.rule_input import RuleInputs
from engine.model.time import Micros
from engine.plugins import MAX_SCORE, Score
from engine.policy.context import PolicyContext
from engine.policy.expressions import NodeExpression
from engine.policy.rules import Numbers
from engine.view import BoolColumn, ClusterView, Domain, IntColumn


@dataclass(frozen=True, slots=True)
class PluginScorer:
    """A score by a plugin."""

    plugin: Score
    reads: tuple[Domain, ...]

    def raw(
        self, context: PolicyContext, view: ClusterView, rows: NDArray[np.intp], now: Micros
    ) -> tuple[Numbers, BoolColumn | None]:
        """Return the plugin's scores."""
        scores = self.plugin.score(context.request.pod, view, now)
        faulty = None if scores.faults is None else scores.faults.take(rows)
        return scores.values.take(rows), None if faulty is None or not faulty.any() else faulty

    def normalize(self, raw: Numbers) -> IntColumn:
        """Return the scores as the plugin puts them on the scale."""
        return self.plugin.normalize(raw.astype(np.int64, copy=False))

    def fault(self, context: PolicyContext, view: ClusterView, row: int, now: Micros) -> str:  # noqa: ARG002 (protocol)
        """Return the plugin's word."""
        return self.plugin.fault(context.request.pod, view, row)

    def inputs(
        self, context: PolicyContext, view: ClusterView, row: int, now: Micros
    ) -> RuleInputs:
        """Return the values that the plugin used."""
        return self.plugin.inputs(context.request.pod, view, row, now)


@dataclass(frozen=True, slots=True)
class ExpressionScorer:
    """A score by an expression, any finite number."""

    expression: NodeExpression

    @property
    def reads(self) -> tuple[Domain, ...]:
        """What the expression reads."""
        return self.expression.reads

    def raw(
        self, context: PolicyContext, view: ClusterView, rows: NDArray[np.intp], now: Micros
    ) -> tuple[Numbers, BoolColumn | None]:
        """Return the numbers that the expression gives, not finite where it gives none."""
        picks = self.expression.plan.benefits_from_mask
        wanted = context.mask_of(rows, len(view)) if picks else view.valid
        return self.expression.column(context, view, wanted, now).take(rows), None

    def normalize(self, raw: Numbers) -> IntColumn | None:
        """Return 0 for the lowest, MAX_SCORE for the highest, the others in proportion, rounded.

        Where all are equal they tell nothing apart, and all get 0. None if some are not finite: of
        NaN and others both ends are NaN.
        """
        low, high = float(raw.min()), float(raw.max())
        if not (math.isfinite(low) and math.isfinite(high)):
            return None
        if low == high:
            return np.zeros(raw.size, np.int64)
        if high - low == math.inf:  # the spread of doubles may be too much, that of halves is not
            raw, low, high = raw / 2, low / 2, high / 2
        points = np.asarray(raw - low, np.float64)
        points /= high - low
        points *= MAX_SCORE
        points += 0.5
        return points.astype(np.int64)

    def fault(self, context: PolicyContext, view: ClusterView, row: int, now: Micros) -> str:
        """Return the error of the evaluation."""
        return self.expression.fault(context, view, row, now)

    def inputs(
        self,
        context: PolicyContext,  # noqa: ARG002 (protocol)
        view: ClusterView,
        row: int,
        now: Micros,
    ) -> RuleInputs:
        """Return the fields of the node that the expression reads."""
        return self.expression.inputs(view, row, now)
