"""Filters and scores of a policy, and what follows when one fails or abstains."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol, TypeAlias

import numpy as np
from numpy.typing import NDArray

from engine.model.decision import FilterOutcome, FilterResult, ScoreOutcome
from engine.model.label_condition import LabelCondition
from engine.model.rule_input import RuleInputs
from engine.model.time import Micros
from engine.plugins import FAULT
from engine.policy.context import PolicyContext
from engine.policy.label_analysis import PLUGIN_LABELS, FilterLabels
from engine.policy.schema import OnFilterError, OnScoreError
from engine.view import FRESH, BoolColumn, ClusterView, Domain, Freshness, IntColumn

Numbers: TypeAlias = NDArray[np.int64] | NDArray[np.float64]
"""Raw scores: whole numbers of a plugin, or what an expression gives."""

_NO_POINTS = "it gives no candidate any points"


class FilterEvaluator(Protocol):
    """The part of a filter that looks at nodes."""

    @property
    def reads(self) -> tuple[Domain, ...]:
        """What of the cluster its codes rest on."""

    def judged(self, context: PolicyContext, view: ClusterView, now: Micros) -> FilterResult:
        """Return what it says of each row, by the code PASS, FAULT, or a reason > 0."""

    def reason(self, context: PolicyContext, view: ClusterView, code: int) -> str:
        """Return the text of a code > 0."""

    def fault(self, context: PolicyContext, view: ClusterView, row: int, now: Micros) -> str:
        """Return why a row whose code is FAULT could not be evaluated."""

    def inputs(
        self, context: PolicyContext, view: ClusterView, row: int, now: Micros
    ) -> RuleInputs:
        """Return the values that were used for the row."""


class Scorer(Protocol):
    """The part of a score that looks at nodes."""

    @property
    def reads(self) -> tuple[Domain, ...]:
        """What of the cluster its scores rest on."""

    def raw(
        self, context: PolicyContext, view: ClusterView, rows: NDArray[np.intp], now: Micros
    ) -> tuple[Numbers, BoolColumn | None]:
        """Return raw scores of some valid rows, and where there are none.

        None for the second means nowhere, or that it is where they are not finite.
        """

    def normalize(self, raw: Numbers) -> IntColumn | None:
        """Return the scores of all candidates on 0..MAX_SCORE; there is at least one.

        None if some are not finite.
        """

    def fault(self, context: PolicyContext, view: ClusterView, row: int, now: Micros) -> str:
        """Return why a row could not be scored."""

    def inputs(
        self, context: PolicyContext, view: ClusterView, row: int, now: Micros
    ) -> RuleInputs:
        """Return the values that were used for the row."""


class _Teller:
    """Puts what a filter did into words when someone asks: few decisions are ever explained."""

    __slots__ = ("_context", "_now", "_rule", "_view", "fault")

    def __init__(
        self, rule: FilterRule, context: PolicyContext, view: ClusterView, now: Micros
    ) -> None:
        self._rule = rule
        self._context = context
        self._view = view
        self._now = now
        self.fault = ""  # why the first node that could not be evaluated could not

    @property
    def labels(self) -> LabelCondition:
        return self._rule.labels.condition(self._context)

    def reason(self, code: int) -> str:
        if code == FAULT:
            return self.fault
        return self._rule.judge.reason(self._context, self._view, code)

    def inputs(self, row: int) -> RuleInputs:
        return self._rule.judge.inputs(self._context, self._view, row, self._now)


@dataclass(frozen=True, slots=True, kw_only=True)
class FilterRule:
    """A filter.

    Attributes:
        policy: the name of its policy, SCHEDULER where it has none.
        name: its own.
        dynamic: whether it speaks of changing state rather than of node labels alone.
        on_error: what happens to a node that it cannot be evaluated for.
        judge: the plugin or expression.
        labels: what it says of node labels.
    """

    policy: str
    name: str
    dynamic: bool
    on_error: OnFilterError = OnFilterError.REJECT_NODE
    judge: FilterEvaluator
    labels: FilterLabels = PLUGIN_LABELS

    def outcome(
        self,
        context: PolicyContext,
        view: ClusterView,
        now: Micros,
        freshness: Freshness = FRESH,
    ) -> FilterOutcome:
        """Return what the filter says of every node; it passes all if what it reads is stale."""
        if freshness.stale and (stale := freshness.stale_among(self.judge.reads)):
            return self._abstention(context, view, now, stale)
        judged = self.judge.judged(context, view, now)
        teller = _Teller(self, context, view, now)
        rejects, faults = judged.rejects, 0
        if judged.has_faults:
            faulty = view.valid & (judged.codes == FAULT)
            faults = int(np.count_nonzero(faulty))
        if faults:
            teller.fault = self.judge.fault(context, view, int(faulty.argmax()), now)
            context.errors.append(_fault_line(self.policy, self.name, teller.fault, faults))
            if self.on_error is OnFilterError.IGNORE_RULE:
                rejects = rejects > faulty  # of bools: and not
        return FilterOutcome(
            policy=self.policy,
            rule=self.name,
            judged=judged,
            rejects=rejects,
            teller=teller,
            dynamic=self.dynamic,
            faults=faults,
        )

    def _abstention(
        self, context: PolicyContext, view: ClusterView, now: Micros, stale: Mapping[str, str]
    ) -> FilterOutcome:
        """Return that all nodes pass; what the filter says of labels holds as it is written."""
        passing = FilterResult.passing(len(view))
        return FilterOutcome(
            policy=self.policy,
            rule=self.name,
            judged=passing,
            rejects=passing.rejects,
            teller=_Teller(self, context, view, now),
            dynamic=self.dynamic,
            abstained=stale,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class ScoreRule:
    """A score.

    Attributes:
        policy: the name of its policy.
        name: its own.
        weight: what its points are multiplied by.
        on_error: what happens when a candidate cannot be scored.
        scorer: the plugin or expression.
    """

    policy: str
    name: str
    weight: int = 1
    on_error: OnScoreError = OnScoreError.ZERO_SCORE
    scorer: Scorer

    def outcome(
        self,
        context: PolicyContext,
        view: ClusterView,
        candidates: NDArray[np.intp],
        now: Micros,
        freshness: Freshness = FRESH,
    ) -> ScoreOutcome:
        """Return the scores of the candidates, in their order; no other node has a say in them.

        All get nothing if what the score reads is stale.
        """
        if freshness.stale and (stale := freshness.stale_among(self.scorer.reads)):
            return self._abstention(candidates.size, stale)
        raw, faulty = self.scorer.raw(context, view, candidates, now)
        normalized = None if faulty is not None else self._normalized(raw)
        faults, reason = 0, _NO_POINTS if raw.size else ""
        if normalized is None:
            faulty = ~np.isfinite(raw) if faulty is None else faulty
            raw, normalized = np.where(faulty, 0, raw), self._normalized_but(faulty, raw)
            faults = int(np.count_nonzero(faulty))
            reason = self.scorer.fault(context, view, int(candidates[faulty.argmax()]), now)
            context.errors.append(_fault_line(self.policy, self.name, reason, faults))
        # One that has some, as most often, then both ends: a fraction of the time of `any`.
        if normalized.size and (normalized[0] or normalized.max() or normalized.min()):
            reason = ""
        return ScoreOutcome(
            policy=self.policy,
            rule=self.name,
            weight=self.weight,
            raw=raw,
            normalized=normalized,
            reason=reason,
            faults=faults,
            inputs=lambda row: self.scorer.inputs(context, view, row, now),
        )

    def _normalized(self, raw: Numbers) -> IntColumn | None:
        return self.scorer.normalize(raw) if raw.size else np.zeros(0, np.int64)

    def _normalized_but(self, faulty: BoolColumn, raw: Numbers) -> IntColumn:
        """Return the normalized scores, 0 for candidates at fault, which have no say in others."""
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
    return f"{where}{rule} could not be evaluated for {count} nodes: {reason}"
