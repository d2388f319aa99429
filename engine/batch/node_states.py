"""What pods change of nodes, judged for many templates and states of nodes at once."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias, TypeVar

import numpy as np
from numpy.typing import NDArray

from engine.batch.template_rules import RawScores, TemplateRules, UnevenError, have_budget
from engine.policy import FilterRule, RuleContext, ScoreRule
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

    def at(self, states: NDArray[np.intp]) -> Judged:
        """Return in which of some states nodes pass, and the scores of these.

        Raises:
            UnevenError: some score could not be evaluated.
        """
        passes = self.passes.take(states)
        passing = states[passes]
        return passes, [scores.take(passing) for scores in self.raw]


def judge_states(templates: Sequence[TemplateRules], view: ClusterView) -> list[NodeStates]:
    """Judge all rows of a view, which are nodes, by the rules of some templates that pods change.

    Each rule is evaluated at once for all templates that it is for, as far as it can be.

    Args:
        templates: the rules of each.
        view: the nodes.
    """
    contexts = [rules.contexts_on(view) for rules in templates]
    passes = np.ones((len(templates), len(view)), np.bool_)
    for rule, use in _uses([rules.moving_filters for rules in templates], contexts):
        passes[use.numbers] &= ~rule.rejects_each(use.contexts)
    raw: list[list[NDArray[Any] | None]] = [[None] * len(each.moving_scores) for each in templates]
    for score, use in _uses([rules.moving_scores for rules in templates], contexts):
        found = score.raw_each(use.contexts, passes[use.numbers])
        for number, position, scores in zip(use.numbers, use.positions, found, strict=True):
            raw[number][position] = scores
    return [NodeStates(*each) for each in zip(passes, map(_usable, raw, contexts), strict=True)]


@dataclass(frozen=True, slots=True)
class _Use:
    """Whom a rule is for.

    Attributes:
        numbers: of the templates.
        positions: of the rule among those of each.
        contexts: of its policy, for each.
    """

    numbers: list[int] = field(default_factory=list)
    positions: list[int] = field(default_factory=list)
    contexts: list[RuleContext] = field(default_factory=list)


def _uses(
    rules: Sequence[Sequence[tuple[_Rule, int]]], contexts: Sequence[Sequence[RuleContext]]
) -> Iterable[tuple[_Rule, _Use]]:
    """Return each rule once, with the templates that it is for.

    Args:
        rules: of each template, with the numbers of their policies.
        contexts: of each template and policy.
    """
    found: dict[int, tuple[_Rule, _Use]] = {}
    for number, (bound, of_policies) in enumerate(zip(rules, contexts, strict=True)):
        for position, (rule, policy) in enumerate(bound):
            _, use = found.setdefault(id(rule), (rule, _Use()))
            use.numbers.append(number)
            use.positions.append(position)
            use.contexts.append(of_policies[policy])
    return found.values()


def _usable(
    scores: Sequence[NDArray[Any] | None], contexts: Sequence[RuleContext]
) -> RawScores | None:
    """Return scores, None if some could not be evaluated or too little budget is left."""
    found = [each for each in scores if each is not None]
    return found if len(found) == len(scores) and have_budget(contexts) else None
