"""What looks at nodes in a filter: a plugin or an expression."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from engine.model.decision import FilterResult
from engine.model.rule_input import RuleInputs
from engine.model.time import Micros
from engine.plugins import Filter, judged_by
from engine.policy.context import PolicyContext
from engine.policy.expressions import NodeExpression
from engine.view import ClusterView, Domain

_LONGEST_QUOTE = 120  # characters of an expression that are repeated in a reason


@dataclass(frozen=True, slots=True)
class PluginJudge:
    """A filter by a plugin."""

    plugin: Filter
    reads: tuple[Domain, ...]

    def judged(self, context: PolicyContext, view: ClusterView, now: Micros) -> FilterResult:
        """Return what the plugin says."""
        return self.plugin.filter(context.request.pod, view, now)

    def reason(self, context: PolicyContext, view: ClusterView, code: int) -> str:
        """Return the plugin's reasons in one line."""
        return ", ".join(self.plugin.reasons(code, context.request.pod, view))

    def fault(self, context: PolicyContext, view: ClusterView, row: int, now: Micros) -> str:  # noqa: ARG002 (protocol)
        """Return the plugin's word."""
        return self.plugin.fault(context.request.pod, view, row)

    def inputs(
        self, context: PolicyContext, view: ClusterView, row: int, now: Micros
    ) -> RuleInputs:
        """Return the values that the plugin used."""
        return self.plugin.inputs(context.request.pod, view, row, now)


@dataclass(frozen=True, slots=True)
class ExpressionJudge:
    """A filter by an expression, true for the nodes that pass.

    Attributes:
        message: why a node is turned away.
    """

    expression: NodeExpression
    message: str

    @classmethod
    def of(cls, expression: NodeExpression, message: str | None) -> ExpressionJudge:
        """Return the judge of an expression; without a message it is quoted."""
        if message:
            return cls(expression, message)
        text = " ".join(expression.program.source.split())
        cut = text if len(text) <= _LONGEST_QUOTE else f"{text[:_LONGEST_QUOTE]}..."
        return cls(expression, f"failed expression: {cut}")

    @property
    def reads(self) -> tuple[Domain, ...]:
        """What the expression reads."""
        return self.expression.reads

    def judged(self, context: PolicyContext, view: ClusterView, now: Micros) -> FilterResult:
        """Return PASS where the expression is true."""
        codes = self.expression.column(context, view, view.valid, now)
        if codes.dtype == np.bool_:
            return FilterResult(codes, codes.view(np.int8))
        return judged_by(codes)

    def reason(self, context: PolicyContext, view: ClusterView, code: int) -> str:  # noqa: ARG002 (protocol)
        """Return the message."""
        return self.message

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
