"""Templates that take up together what pods change."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from engine.batch.node_states import NodeStates, StackedRules, StackedStates
from engine.batch.placements import Placements
from engine.batch.ranking_stack import RankingStack, RatedStates
from engine.batch.template import Template
from engine.batch.template_rules import UnevenError
from engine.model.pod import Pod


@dataclass(frozen=True)
class ForetoldStates:
    """Nodes as they would be with one more pod each.

    Attributes:
        rows: of the nodes, all different.
        states: of all templates of a stack.
        rated: the same with totals.
    """

    rows: Sequence[int]
    states: StackedStates
    rated: RatedStates


class Stack:
    """Templates whose rankings are brought up to date together.

    Args:
        templates: all different, at least one, all local.
        placements: the pods placed so far.

    Attributes:
        turns: how many pods got a node by it.
    """

    def __init__(self, templates: Sequence[Template], placements: Placements) -> None:
        self.turns = 0
        self._placements = placements
        self._templates = templates
        self._numbers = {template: number for number, template in enumerate(templates)}
        self._is_in = [True] * len(templates)  # but for those that must see to themselves
        self._rules = StackedRules(
            [template.rules for template in templates], placements.what_if.view
        )
        self._rankings = RankingStack(
            [template.ranking for template in templates], self._rules.scores
        )

    @property
    def size(self) -> int:
        """The number of templates."""
        return len(self._templates)

    def __contains__(self, template: Template) -> bool:
        number = self._numbers.get(template)
        return number is not None and self._is_in[number]

    def catch_up(self) -> None:
        """Take up what pods have changed since the last time."""
        placed = self._placements.rows
        seen = [t.seen for t, is_in in zip(self._templates, self._is_in, strict=True) if is_in]
        rows = [*{*placed[min(seen, default=len(placed)) :]}]
        if rows:
            states = self._rules.judge(self._placements.what_if.part(np.array(rows, np.intp)))
            self._take_up(rows, states, self._rankings.rate(rows, states), len(placed))

    def foretell(self, rows: Sequence[int], pods: Sequence[Pod]) -> ForetoldStates:
        """Judge rows, all different, as each would be with one more pod."""
        view = self._placements.what_if.part_with(np.array(rows, np.intp), pods)
        states = self._rules.judge(view)
        return ForetoldStates(rows, states, self._rankings.rate(rows, states))

    def come_true(self, foretold: ForetoldStates, count: int, seen: int) -> None:
        """Take up the first of foretold states.

        Args:
            foretold: the states.
            count: of them.
            seen: how many pods were placed by then.
        """
        if count:
            self._take_up(foretold.rows[:count], foretold.states, foretold.rated, seen)

    def disturbed(
        self,
        foretold: ForetoldStates,
        templates: Sequence[Template],
        totals: Sequence[int],
        counts: Sequence[int],
    ) -> list[bool]:
        """Return where foretold states may be a better choice, or change which one is the best.

        Args:
            foretold: the states.
            templates: that are asked about.
            totals: of the best choice of each without them.
            counts: how many of the states are there, for each.
        """
        numbers = [self._numbers[template] for template in templates]
        rated, there = foretold.rated, np.array(counts)[:, np.newaxis]
        is_better = rated.stays[numbers] & (
            rated.totals[numbers] >= np.array(totals)[:, np.newaxis]
        )
        matters = (is_better & (np.arange(len(foretold.rows)) < there)).any(axis=1)
        matters |= rated.disturbs[numbers, there[:, 0] - 1]
        matters |= ~foretold.states.is_usable[numbers]
        disturbed: list[bool] = (matters & (there[:, 0] > 0)).tolist()
        return disturbed

    def take_up_alone(self, template: Template, foretold: ForetoldStates, count: int) -> bool:
        """Let one template take up the first of foretold states; return whether it could."""
        number = self._numbers[template]
        rows, seen = foretold.rows[:count], len(self._placements.rows)
        self._is_in[number] &= _can_take_up(template, rows, foretold.states.of(number), seen)
        return self._is_in[number]

    def _take_up(
        self, rows: Sequence[int], states: StackedStates, rated: RatedStates, seen: int
    ) -> None:
        are_in = states.is_usable & self._is_in
        alone = set(self._rankings.write(rated, len(rows), are_in))
        for number, template in enumerate(self._templates):
            if not are_in[number]:
                self._is_in[number] = False
            elif number not in alone:
                template.note(rows, seen)
            elif not _can_take_up(template, rows, states.of(number), seen):
                self._is_in[number] = False


def _can_take_up(template: Template, rows: Sequence[int], states: NodeStates, seen: int) -> bool:
    """Let a template take up states of rows; return whether it could."""
    try:
        return template.take_up(rows, states.first(len(rows)), seen)
    except UnevenError:
        return False
