"""The rules that apply to the pods of a template, on any rows of any view."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, TypeAlias

import numpy as np
from numpy.typing import NDArray

from engine.batch.judge import Judge
from engine.model.decision import Decision
from engine.model.request import PlacementRequest
from engine.model.rule_outcomes import ScoreOutcome, and_not
from engine.pipeline import decide_in
from engine.placement.stored_pod import contexts_of, is_kept_off
from engine.policy import (
    MOST_ITERATIONS,
    CompiledPolicy,
    FilterRule,
    RuleContext,
    ScoreRule,
    scheduler_filters,
    scheduler_scores,
)
from engine.view import BoolColumn, ClusterView, Domain

RawScores: TypeAlias = list[NDArray[Any]]
"""Scores of some rows before they are normalized, one array for each rule."""

_ENOUGH: Final = MOST_ITERATIONS // 2
"""Of the iterations that a policy may take: as many are left, so no pod more exhausts them."""


class UnevenError(Exception):
    """A score could not be evaluated, or other rules apply than at first."""


class TemplateRules:
    """Filters and scores of all policies that apply to the pods of a template.

    Args:
        policies: they apply in Enforce mode, highest priority first; at least one.
        request: of the first pod of the template.
        view: the cluster.
        judge: says when they decide, and among which nodes.

    Attributes:
        scores: all scores, in order.
        moving_filters: those that pods change and that look at the node alone, each with the
            number of its policy.
        moving_scores: those that pods change, the same; none that abstains.
        moving_positions: where among `scores` these are, ascending.
        coupled_positions: where among `scores` those are that depend on other nodes, ascending.
        is_coupled: whether what some filter says of a node depends on other nodes.
        is_local: whether neither a filter nor a score does.
    """

    def __init__(
        self,
        policies: Sequence[CompiledPolicy],
        request: PlacementRequest,
        view: ClusterView,
        judge: Judge,
    ) -> None:
        self._policies = policies
        self._nodes = judge.nodes
        now, freshness = judge.now, judge.freshness
        self._contexts = contexts_of(policies, request, view, now, freshness)
        if is_kept_off(self._contexts[0], policies[0].placement):
            raise UnevenError
        self._filters = self._filters_on(self._contexts)
        self._scores = self._scores_on(self._contexts)
        self._are_coupled = self._are_coupled_on(self._contexts)
        self.is_coupled = any(self._are_coupled)
        self.moving_filters = [
            bound
            for bound, is_coupled in zip(self._filters, self._are_coupled, strict=True)
            if not is_coupled and self._is_moving(*bound)
        ]
        self.coupled_positions = [
            i
            for i, (rule, number) in enumerate(self._scores)
            if rule.evaluator.reads_other_nodes(self._contexts[number])
        ]
        self.is_local = not (self.is_coupled or self.coupled_positions)
        self.moving_positions = [
            i
            for i, bound in enumerate(self._scores)
            if i not in self.coupled_positions and self._is_moving(*bound)
        ]
        self.moving_scores = [self._scores[i] for i in self.moving_positions]
        self.scores: Sequence[ScoreRule] = [rule for rule, _ in self._scores]

    def contexts_on(self, view: ClusterView) -> list[RuleContext]:
        """Return the context of each policy on a view."""
        return [context.on(view) for context in self._contexts]

    def check(self, view: ClusterView) -> None:
        """Do nothing if the same rules apply and depend on other nodes, as pods are on them now.

        Raises:
            UnevenError: they are others; a pod that wants others near or away may make them so.
        """
        contexts = self.contexts_on(view)
        if self._are_coupled_on(contexts) != self._are_coupled:
            raise UnevenError
        if self._scores_on(contexts) != self._scores:
            raise UnevenError

    def coupled_scores(self, view: ClusterView, rows: NDArray[np.intp]) -> Sequence[ScoreOutcome]:
        """Return the scores that depend on other nodes, of some rows that alone are candidates.

        Raises:
            UnevenError: some could not be evaluated.
        """
        contexts = self.contexts_on(view)
        bound = [self._scores[i] for i in self.coupled_positions]
        scored = [rule.outcome(contexts[number], rows) for rule, number in bound]
        if any(score.faults for score in scored):
            raise UnevenError
        return scored

    def contenders(
        self, decision: Decision, view: ClusterView
    ) -> tuple[NDArray[np.intp], Sequence[ScoreOutcome]]:
        """Return the nodes that pass all filters but those that depend on other nodes.

        Args:
            decision: for the first pod of the template.
            view: the cluster that it was made on.

        Returns:
            Their rows, ascending; and the scores of these.

        Raises:
            UnevenError: some score could not be evaluated.
        """
        if not self.is_coupled:
            return decision.ranking.rows, decision.scored
        passing = decision.valid
        for is_coupled, outcome in zip(self._are_coupled, decision.filters, strict=True):
            if not is_coupled:
                passing = and_not(passing, outcome.rejects)
        (rows,) = passing.nonzero()
        contexts = self.contexts_on(view)
        scored = [rule.outcome(contexts[i], rows) for rule, i in self._scores]
        if not have_budget(contexts) or any(score.faults for score in scored):
            raise UnevenError
        return rows, scored

    def allowed(self, view: ClusterView) -> BoolColumn:
        """Return the nodes that pass the filters that depend on other nodes, (n,)."""
        contexts = self.contexts_on(view)
        nodes = view.valid
        for (rule, number), is_coupled in zip(self._filters, self._are_coupled, strict=True):
            if is_coupled:
                nodes = and_not(nodes, rule.outcome(contexts[number]).rejects)
        return nodes

    def decide(self, view: ClusterView) -> tuple[Decision, BoolColumn]:
        """Decide for the first pod of the template.

        Returns:
            The decision, and which rows pass the filters that no pod changes, (n,).

        Raises:
            UnevenError: some score could not be evaluated.
        """
        contexts = self.contexts_on(view)
        decision = decide_in(contexts, self._policies, nodes=self._nodes)
        if not have_budget(contexts) or any(score.faults for score in decision.scored):
            raise UnevenError
        may_pass = decision.valid
        for bound, outcome in zip(self._filters, decision.filters, strict=True):
            if not self._is_moving(*bound):
                may_pass = and_not(may_pass, outcome.rejects)
        return decision, may_pass

    def _filters_on(self, contexts: Sequence[RuleContext]) -> list[tuple[FilterRule, int]]:
        """Return the filters that apply, each with the number of its policy."""
        of_scheduler = [(rule, 0) for rule in scheduler_filters(contexts[0])]
        of_policies = [(rule, i) for i, each in enumerate(self._policies) for rule in each.filters]
        return of_scheduler + of_policies

    def _scores_on(self, contexts: Sequence[RuleContext]) -> list[tuple[ScoreRule, int]]:
        """Return the scores that apply, in the order of a decision, each with its policy."""
        of_scheduler = [(rule, 0) for rule in scheduler_scores(contexts[0], self._policies)]
        of_policies = [(rule, i) for i, each in enumerate(self._policies) for rule in each.scores]
        return of_scheduler + of_policies

    def _are_coupled_on(self, contexts: Sequence[RuleContext]) -> list[bool]:
        """Return of each filter that applies whether it depends on other nodes."""
        filters = self._filters_on(contexts)
        return [rule.evaluator.reads_other_nodes(contexts[i]) for rule, i in filters]

    def _is_moving(self, rule: FilterRule | ScoreRule, policy: int) -> bool:
        """Return whether pods that come to a node may change what a rule says of it."""
        reads = rule.evaluator.reads
        return Domain.PODS in reads and not self._contexts[policy].stale_among(reads)


def have_budget(contexts: Sequence[RuleContext]) -> bool:
    """Return whether so much is left of what policies may cost that no pod more exhausts it."""
    return all(context.budget.steps_left >= _ENOUGH for context in contexts)
