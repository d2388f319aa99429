"""The rules that apply to the pods of a template, on any rows of any view."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, TypeAlias

import numpy as np
from numpy.typing import NDArray

from engine.model.decision import and_not
from engine.model.request import PlacementRequest
from engine.model.time import Micros
from engine.policy import (
    MOST_ITERATIONS,
    SCHEDULER_FILTERS,
    CompiledPolicy,
    FilterRule,
    RuleContext,
    ScoreRule,
)
from engine.view import BoolColumn, ClusterView, Domain, Freshness

RawScores: TypeAlias = list[NDArray[Any]]
"""Scores of some rows before they are normalized, one array for each rule."""

_ENOUGH: Final = MOST_ITERATIONS // 2
"""Of the iterations that a policy may take: fewer nodes never take as many as all."""


class UnevenError(Exception):
    """Rules could not be evaluated for every node: then the nodes are not independent."""


class TemplateRules:
    """Filters and scores of all policies that apply to the pods of a template.

    Args:
        policies: they apply in Enforce mode, highest priority first; at least one.
        request: of any pod of the template.
        view: the cluster.
        now: the moment of the decisions.
        freshness: the domains of the view that are too old.

    Attributes:
        scores: the rules that do not abstain; those that pods change come first.
        moving: the number of these.
    """

    def __init__(
        self,
        policies: Sequence[CompiledPolicy],
        request: PlacementRequest,
        view: ClusterView,
        now: Micros,
        freshness: Freshness,
    ) -> None:
        self._contexts = [policy.context(request, view, now, freshness) for policy in policies]
        filters = [(rule, 0) for rule in SCHEDULER_FILTERS]
        filters += [(rule, i) for i, policy in enumerate(policies) for rule in policy.filters]
        scores = [
            (rule, i)
            for i, policy in enumerate(policies)
            for rule in policy.scores
            if not self._contexts[i].stale_among(rule.evaluator.reads)
        ]
        scores.sort(key=lambda bound: not _is_moving(bound[0]))
        self._still_filters = [bound for bound in filters if not _is_moving(bound[0])]
        self._moving_filters = [bound for bound in filters if _is_moving(bound[0])]
        self._scores = scores
        self.scores: Sequence[ScoreRule] = [rule for rule, _ in scores]
        self.moving = sum(map(_is_moving, self.scores))
        rules: list[FilterRule | ScoreRule] = [*(rule for rule, _ in filters), *self.scores]
        self.are_separable = not any(rule.evaluator.reads_other_nodes for rule in rules)
        """Whether a pod that comes to a node changes nothing for the others."""

    def evaluate(self, view: ClusterView) -> tuple[BoolColumn, NDArray[np.intp], RawScores]:
        """Evaluate all rules for all nodes.

        Returns:
            Which rows pass the filters that no pod changes, (n,); the rows of the candidates,
            ascending; and their scores by every rule.

        Raises:
            UnevenError: a score could not be evaluated for every candidate.
        """
        contexts = [context.on(view) for context in self._contexts]
        may_pass = _passing(view.valid, self._still_filters, contexts)
        (candidates,) = _passing(may_pass, self._moving_filters, contexts).nonzero()
        return may_pass, candidates, _raw(self._scores, contexts, candidates)

    def evaluate_moving(
        self, view: ClusterView, rows: NDArray[np.intp]
    ) -> tuple[BoolColumn, RawScores]:
        """Return which rows pass the filters that pods change, and the scores that pods change.

        Args:
            view: any, with the rows.
            rows: those that matter, which are nodes.

        Returns:
            Aligned with `rows`; aligned with those of them that pass.

        Raises:
            UnevenError: a score could not be evaluated for every row that passes.
        """
        contexts = [context.on(view) for context in self._contexts]
        passes = _passing(view.valid, self._moving_filters, contexts).take(rows)
        return passes, _raw(self._scores[: self.moving], contexts, rows[passes])


def _is_moving(rule: FilterRule | ScoreRule) -> bool:
    """Return whether pods that come to a node may change the result of a rule for it."""
    return Domain.PODS in rule.evaluator.reads


def _passing(
    passing: BoolColumn, filters: Sequence[tuple[FilterRule, int]], contexts: Sequence[RuleContext]
) -> BoolColumn:
    for rule, number in filters:
        passing = and_not(passing, rule.outcome(contexts[number]).rejects)
    return passing


def _raw(
    scores: Sequence[tuple[ScoreRule, int]],
    contexts: Sequence[RuleContext],
    rows: NDArray[np.intp],
) -> RawScores:
    raw = []
    for rule, number in scores:
        values = rule.raw(contexts[number], rows)
        if values is None:
            raise UnevenError
        raw.append(values)
    if any(context.budget.steps_left < _ENOUGH for context in contexts):
        raise UnevenError
    return raw
