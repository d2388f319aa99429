"""What pods change of nodes, judged by the rules of a template, or of many at once."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Generic, TypeAlias, TypeVar

import numpy as np
from numpy.typing import NDArray

from engine.batch.template_rules import RawScores, TemplateRules, UnevenError, have_budget
from engine.plugins import BoolMatrix
from engine.policy import FilterRule, OnView, RuleContext, ScoreRule
from engine.view import BoolColumn, ClusterView

Judged: TypeAlias = tuple[BoolColumn, RawScores]
"""Whether nodes pass the filters that pods change, and the scores that these change of those."""

_Rule = TypeVar("_Rule", FilterRule, ScoreRule)


class NodeStates:
    """States of nodes, judged by the rules of a template that pods change.

    Args:
        passes: whether a node passes the filters in each state.
        raw: the scores, aligned; anything where it does not pass. None if some could not be
            evaluated.
    """

    def __init__(self, passes: BoolColumn, raw: RawScores | None) -> None:
        self.passes = passes
        self._raw = raw

    @property
    def raw(self) -> RawScores:
        """The scores in each state; anything where the node does not pass.

        Raises:
            UnevenError: some could not be evaluated.
        """
        if self._raw is None:
            raise UnevenError
        return self._raw

    def first(self, states: int) -> Judged:
        """Return in which of the first states nodes pass, and the scores of these.

        Raises:
            UnevenError: some score could not be evaluated.
        """
        passes = self.passes[:states]
        return passes, [scores[:states][passes] for scores in self.raw]


@dataclass(frozen=True)
class StackedStates:
    """States of nodes, judged by the rules of many templates that pods change.

    Attributes:
        passes: whether a node passes the filters of a template, (n_templates, n_states).
        raw: of each rule the scores for the templates that it is for, (n_users, n_states);
            anything where the node does not pass.
        is_usable: the templates of which all scores could be evaluated, (n_templates,).
        places: of each template the positions of its scores among `raw`, and of its row there.
    """

    passes: BoolMatrix
    raw: Sequence[NDArray[Any]]
    is_usable: BoolColumn
    places: Sequence[Sequence[tuple[int, int]]]

    def of(self, number: int) -> NodeStates:
        """Return the states for a template."""
        raw = [self.raw[rule][row] for rule, row in self.places[number]]
        return NodeStates(self.passes[number], raw if self.is_usable[number] else None)


@dataclass(frozen=True, slots=True)
class Use(Generic[_Rule]):
    """Whom a rule is for.

    Attributes:
        rule: the rule.
        numbers: of the templates, ascending.
        positions: of the rule among those of each.
        contexts: of its policy, for each.
    """

    rule: _Rule
    numbers: list[int] = field(default_factory=list)
    positions: list[int] = field(default_factory=list)
    contexts: list[RuleContext] = field(default_factory=list)


class StackedRules:
    """Rules of some templates that pods change, prepared to judge nodes for all of them at once.

    Each rule is evaluated at once for all templates that it is for, as far as it can be.

    Args:
        templates: the rules of each, at least one.
        view: any view of the cluster.

    Attributes:
        scores: all scores of these, and which of them they are for.
    """

    def __init__(self, templates: Sequence[TemplateRules], view: ClusterView) -> None:
        self._contexts = [rules.contexts_on(view) for rules in templates]
        filters = _uses([rules.moving_filters for rules in templates], self._contexts)
        self.scores = _uses([rules.moving_scores for rules in templates], self._contexts)
        self._filters = [(use.numbers, use.rule.rejects_for(use.contexts)) for use in filters]
        self._raw = [use.rule.raw_for(use.contexts) for use in self.scores]
        self._had_budget: BoolColumn | None = None  # each template, after the first view
        self._places: list[list[tuple[int, int]]] = [
            [(0, 0)] * len(rules.moving_scores) for rules in templates
        ]
        for i, use in enumerate(self.scores):
            for row, (number, position) in enumerate(zip(use.numbers, use.positions, strict=True)):
                self._places[number][position] = i, row

    def judge(self, view: ClusterView) -> StackedStates:
        """Judge all rows of a view, which are nodes."""
        on = OnView(view)
        passes = np.ones((len(self._contexts), len(view)), np.bool_)
        for numbers, rejects in self._filters:
            passes[numbers] &= ~rejects(on)
        is_usable = np.ones(len(self._contexts), np.bool_)
        scores: list[NDArray[Any]] = []
        for use, raw in zip(self.scores, self._raw, strict=True):
            found = raw(on, passes[use.numbers])
            if not isinstance(found, np.ndarray):
                is_usable[[n for n, row in zip(use.numbers, found, strict=True) if row is None]] = 0
                nothing = np.zeros(len(view), np.int64)
                found = np.stack([nothing if row is None else row for row in found])
            scores.append(found)
        if self._had_budget is None:  # nothing but what is the same for all views uses it up
            self._had_budget = np.array([*map(have_budget, self._contexts)])
        is_usable &= self._had_budget
        if on.has_contexts:
            is_usable &= [have_budget(on.known(contexts)) for contexts in self._contexts]
        return StackedStates(passes, scores, is_usable, self._places)


def judge_states(rules: TemplateRules, view: ClusterView) -> NodeStates:
    """Judge all rows of a view, which are nodes, by the rules of a template that pods change."""
    contexts = rules.contexts_on(view)
    passes = np.ones(len(view), np.bool_)
    for rule, policy in rules.moving_filters:
        passes &= ~rule.rejects(contexts[policy])
    raw = [rule.raw(contexts[policy], passes) for rule, policy in rules.moving_scores]
    found = [each for each in raw if each is not None]
    is_usable = len(found) == len(raw) and have_budget(contexts)
    return NodeStates(passes, found if is_usable else None)


def _uses(
    rules: Sequence[Sequence[tuple[_Rule, int]]], contexts: Sequence[Sequence[RuleContext]]
) -> list[Use[_Rule]]:
    """Return each rule once, with the templates that it is for.

    Args:
        rules: of each template, with the numbers of their policies.
        contexts: of each template and policy.
    """
    found: dict[int, Use[_Rule]] = {}
    for number, (bound, of_policies) in enumerate(zip(rules, contexts, strict=True)):
        for position, (rule, policy) in enumerate(bound):
            use = found.setdefault(id(rule), Use(rule))
            use.numbers.append(number)
            use.positions.append(position)
            use.contexts.append(of_policies[policy])
    return list(found.values())
