"""Filters and scores: how each comes to its outcome.

A rule abstains while the part of the cluster that it reads is too old to judge by.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Final, Generic, TypeAlias, TypeVar

import msgspec
import numpy as np
from numpy.typing import NDArray

from engine.errors import counted
from engine.model.label_condition import LabelCondition
from engine.model.rule_outcomes import (
    FilterOutcome,
    FilterResult,
    NodeThreshold,
    RuleInputs,
    ScoreOutcome,
    and_not,
)
from engine.plugins import (
    FAULT,
    Filter,
    Plugin,
    ReadsAllNodes,
    Score,
    ScoreAmong,
)
from engine.policy.context import RuleContext
from engine.policy.expressions import FilterExpression, ScoreExpression
from engine.policy.label_analysis import NO_LABELS, PLUGIN_LABELS, FilterLabels, ScoreLabels
from engine.policy.schema import OnFilterError, OnScoreError
from engine.view import BoolColumn, Domain, IntColumn, extremes

# Plugins as rules evaluate them: `PluginFilter` and `PluginScore`.
#
# They have the same methods as `engine.policy.expressions.FilterExpression` and `ScoreExpression`.


_P = TypeVar("_P", bound=Filter | Score)


@dataclass(frozen=True, slots=True)
class _PluginEvaluator(Generic[_P]):
    """A plugin by its args, and the entry of the registry that it is built from."""

    plugin: _P
    entry: Plugin

    @property
    def reads(self) -> tuple[Domain, ...]:
        return self.entry.reads

    def reads_other_nodes(self, context: RuleContext) -> bool:
        """Return whether an answer for a node rests on more than its row; see `Plugin`."""
        return self.entry.reads_other_nodes(context)

    def fault(self, context: RuleContext, row: int) -> str:
        return self.plugin.fault(context, row)

    def inputs(self, context: RuleContext, row: int) -> RuleInputs:
        return self.plugin.inputs(context, row)


class PluginFilter(_PluginEvaluator[Filter]):
    """A filter by a plugin."""

    __slots__ = ()

    def filter(self, context: RuleContext) -> FilterResult:
        """Return the code of each row."""
        return self.plugin.filter(context)

    def may_relent(self, context: RuleContext) -> bool:
        """Return whether more pods, on any nodes, may make it pass a node that it rejects."""
        return self.reads_other_nodes(context)

    def reason(self, context: RuleContext, code: int) -> str:
        """Return the plugin's texts for a code > 0, in one line."""
        return ", ".join(self.plugin.reasons(code, context))


class PluginScore(_PluginEvaluator[Score]):
    """A score by a plugin."""

    __slots__ = ()

    def reads_other_nodes(self, context: RuleContext) -> bool:
        """Return whether a score of a node rests on more than its row; see `Plugin`."""
        reads = self.entry.score_reads_other_nodes or self.entry.reads_other_nodes
        return isinstance(self.plugin, ReadsAllNodes) or reads(context)

    def score(
        self, context: RuleContext, rows: NDArray[np.intp]
    ) -> tuple[NDArray[np.int64], BoolColumn | None]:
        """Return raw scores of `rows`, and which of them have none; None where all have."""
        if isinstance(self.plugin, ScoreAmong):
            among = self.plugin.score_among(context, rows)
            return among.values, among.faults
        scores = self.plugin.score(context)
        faulty = None if scores.faults is None else scores.faults.take(rows)
        return scores.values[rows], None if faulty is None or not faulty.any() else faulty

    def normalize(self, raw: NDArray[np.int64] | NDArray[np.float64]) -> IntColumn:
        return self.plugin.normalize(raw.astype(np.int64, copy=False))


FilterEvaluator: TypeAlias = PluginFilter | FilterExpression
"""Gives each row a code: PASS, FAULT, or a reason > 0."""

ScoreEvaluator: TypeAlias = PluginScore | ScoreExpression
"""Gives rows raw scores, and normalizes those of all candidates to 0..MAX_SCORE."""

STATIC_PLUGINS: Final = frozenset({"NodeAffinity", "NodeUnschedulable", "TaintToleration"})
"""Plugins whose filters read labels, taints and cordons of a node, not its changing state."""

_FRESH: Final[Mapping[str, str]] = MappingProxyType({})
_NO_POINTS = "it gives no candidate any points"


class _RuleExplainer(msgspec.Struct, eq=False):
    """Explains the outcome of a filter on demand: few decisions are ever explained."""

    rule: FilterRule  # the filter
    context: RuleContext  # what it was evaluated in
    fault: str = ""  # why the first node that could not be evaluated could not
    reasons: dict[int, str] = {}  # texts by code, once read

    @property
    def labels(self) -> LabelCondition:
        return self.rule.labels.condition(self.context)

    def reason(self, code: int) -> str:
        if code == FAULT:
            return self.fault
        text = self.reasons.get(code)
        if text is None:
            text = self.reasons[code] = self.rule.evaluator.reason(self.context, code)
        return text

    def inputs(self, row: int) -> RuleInputs:
        return self.rule.evaluator.inputs(self.context, row)


@dataclass(frozen=True, slots=True, kw_only=True)
class FilterRule:
    """A filter.

    Attributes:
        policy: the name of its policy, SCHEDULER where it has none.
        name: its own.
        dynamic: whether it reads changing state rather than node labels alone.
        on_error: the fate of a node that it cannot be evaluated for.
        evaluator: the plugin or expression.
        labels: its requirements on node labels.
        thresholds: what it allows on nodes that do not say otherwise, for people.
    """

    policy: str
    name: str
    dynamic: bool
    on_error: OnFilterError = OnFilterError.REJECT_NODE
    evaluator: FilterEvaluator
    labels: FilterLabels = PLUGIN_LABELS
    thresholds: tuple[NodeThreshold, ...] = ()

    def outcome(self, context: RuleContext) -> FilterOutcome:
        """Return the outcome for every node; all pass if it abstains."""
        view, evaluator = context.view, self.evaluator
        stale = context.stale_among(evaluator.reads) if context.is_stale else _FRESH
        times = context.request.rule_times
        begun = 0 if times is None else times.clock()
        result = FilterResult.passing(len(view)) if stale else evaluator.filter(context)
        if times is not None and not stale:
            times.note(self.policy, self.name, begun)
        explainer = _RuleExplainer(self, context)
        rejects, faults = result.rejects, 0
        if result.has_faults:
            faulty = view.valid & (result.codes == FAULT)
            faults = int(np.count_nonzero(faulty))
        if faults:
            explainer.fault = evaluator.fault(context, int(faulty.argmax()))
            context.errors.append(_fault_line(self.policy, self.name, explainer.fault, faults))
            if self.on_error is OnFilterError.IGNORE_RULE:
                rejects = and_not(rejects, faulty)
        return FilterOutcome(
            policy=self.policy,
            rule=self.name,
            result=result,
            rejects=rejects,
            explainer=explainer,
            dynamic=self.dynamic,
            faults=faults,
            abstained=stale,
        )

    def rejects(self, context: RuleContext) -> BoolColumn:
        """Return the rejected nodes for a request, without reasons; it must not abstain."""
        result = self.evaluator.filter(context)
        return self.outcome(context).rejects if result.has_faults else result.rejects


@dataclass(frozen=True, slots=True, kw_only=True)
class ScoreRule:
    """A score.

    Attributes:
        policy: the name of its policy.
        name: its own.
        weight: the factor of its points.
        on_error: the consequence when a candidate cannot be scored.
        evaluator: the plugin or expression.
        labels: the labels of nodes that it reads.
    """

    policy: str
    name: str
    weight: int = 1
    on_error: OnScoreError = OnScoreError.ZERO_SCORE
    evaluator: ScoreEvaluator
    labels: ScoreLabels = NO_LABELS

    def raw(self, context: RuleContext, candidates: BoolColumn) -> NDArray[Any] | None:
        """Return the scores before `normalize` of candidates, (n,), anything for other nodes.

        None if some could not be evaluated. It must not abstain.
        """
        raw, faulty = self.evaluator.score(context, candidates.nonzero()[0])
        if faulty is not None or (raw.dtype.kind == "f" and not np.isfinite(raw).all()):
            return None
        scores = np.zeros(candidates.size, raw.dtype)
        scores[candidates] = raw
        return scores

    def outcome(self, context: RuleContext, candidates: NDArray[np.intp]) -> ScoreOutcome:
        """Return the scores of the candidates, in their order; no other node affects them.

        All get nothing if it abstains.
        """
        if context.is_stale:
            stale = context.stale_among(self.evaluator.reads)
            if stale:
                return self._abstention(candidates.size, stale)
        times = context.request.rule_times
        begun = 0 if times is None else times.clock()
        raw, faulty = self.evaluator.score(context, candidates)
        normalized = None if faulty is not None else self._normalized(raw)
        if times is not None:
            times.note(self.policy, self.name, begun)
        faults, reason = 0, _NO_POINTS if raw.size else ""
        if normalized is None:
            faulty = ~np.isfinite(raw) if faulty is None else faulty
            raw, normalized = np.where(faulty, 0, raw), self._normalized_but(faulty, raw)
            faults = int(np.count_nonzero(faulty))
            reason = self.evaluator.fault(context, int(candidates[faulty.argmax()]))
            context.errors.append(_fault_line(self.policy, self.name, reason, faults))
        # The first most often has points; else both ends: a fraction of the time of `any`.
        if normalized.size and (normalized.item(0) or any(extremes(normalized))):
            reason = ""
        return ScoreOutcome(
            policy=self.policy,
            rule=self.name,
            weight=self.weight,
            raw=raw,
            normalized=normalized,
            reason=reason,
            faults=faults,
            inputs=lambda row: self.evaluator.inputs(context, row),
            label_keys=self.labels.keys,
            preferred=self._preferred(context),
        )

    def _preferred(self, context: RuleContext) -> Callable[[], LabelCondition] | None:
        labels = self.labels.preferred
        return None if labels is None else lambda: labels.condition(context)

    def _normalized(self, raw: NDArray[Any]) -> IntColumn | None:
        return self.evaluator.normalize(raw) if raw.size else np.zeros(0, np.int64)

    def _normalized_but(self, faulty: BoolColumn, raw: NDArray[Any]) -> IntColumn:
        """Return the normalized scores; candidates at fault have 0 and do not affect others."""
        normalized = np.zeros(raw.size, np.int64)
        if self.on_error is not OnScoreError.IGNORE_RULE:
            sound = self._normalized(raw[~faulty])
            assert sound is not None  # noqa: S101 - INVARIANT: all of these are finite
            normalized[~faulty] = sound
        return normalized

    def _abstention(self, candidates: int, stale: Mapping[str, str]) -> ScoreOutcome:
        nothing = np.zeros(candidates, np.int64)
        return ScoreOutcome(
            policy=self.policy,
            rule=self.name,
            weight=self.weight,
            raw=nothing,
            normalized=nothing,
            reason=", ".join(stale.values()),
            abstained=stale,
        )


def _fault_line(policy: str, rule: str, reason: str, count: int) -> str:
    where = f"{policy}: " if policy else ""
    return f"{where}{rule} could not be evaluated for {counted(count, 'node')}: {reason}"
