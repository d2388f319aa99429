"""The pods of one template: their rules, and the nodes as they rank by these."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from engine.batch.look_ahead import LookAhead
from engine.batch.node_states import Judged, judge_states
from engine.batch.placements import Placements
from engine.batch.ranking import Ranking
from engine.batch.template_rules import TemplateRules
from engine.model.pod import Pod


class Template:
    """The nodes for the pods of one template, as the pods placed so far leave them.

    Args:
        rules: of the template.
        placements: the pods placed so far.
        pods: how many there are of the template.

    Raises:
        UnevenError: some score could not be evaluated, or other rules apply than at first; so do
            the methods.

    Attributes:
        rules: of the template.
        decision: for the first pod.
        ranking: of the nodes, as of the last update.
        seen: how many pods were placed by then.
    """

    def __init__(self, rules: TemplateRules, placements: Placements, pods: int) -> None:
        self.rules = rules
        self._pods = pods
        self._placements = placements
        self._sociable = placements.sociable
        self._begin()
        self.decision = self.ranking.decision

    def _begin(self) -> None:
        view = self._placements.what_if.view
        self.ranking = Ranking(self.rules, view)
        self._ahead = LookAhead(self.rules, self.ranking, self._pods)
        self.seen = len(self._placements.rows)
        self._own = False  # whether the first pod placed since then is of this template

    def check_rules(self) -> None:
        """Do nothing if the same rules apply, and depend on other nodes, as at first.

        Raises:
            UnevenError: they are others.
        """
        if self._sociable != self._placements.sociable:
            self.rules.check(self._placements.what_if.view)
            self._sociable = self._placements.sociable

    @property
    def is_alone(self) -> bool:
        """Whether nothing but the latest pod of the template was placed since the last update."""
        return self._own and len(self._placements.rows) == self.seen + 1

    def refresh(self, pod: Pod) -> None:
        """Bring the ranking up to date.

        Args:
            pod: the next one of the template.
        """
        self.ranking.settle()
        self.check_rules()
        placed = self._placements.rows
        new = len(placed) - self.seen
        if not new:
            return
        if self.is_alone:
            can = self._ahead.take_up(placed[-1], pod, self._placements)
            self.note((), len(placed))
        else:
            rows = [*set(placed[-new:])]
            view = self._placements.what_if.part(np.array(rows))
            can = self.take_up(rows, judge_states(self.rules, view).first(len(rows)), len(placed))
        if not can:
            self._begin()
        elif not self.rules.is_local:
            self.ranking.look_around(self.rules, self._placements.what_if.view)

    def take_up(self, rows: Sequence[int], judged: Judged, seen: int) -> bool:
        """Take up what pods have changed of rows; return whether that is possible.

        Args:
            rows: that took pods since the last update, all different.
            judged: what the rules say of them.
            seen: how many pods were placed by then.
        """
        self.ranking.settle()
        can = self.ranking.update(np.array(rows), *judged)
        if can:
            self.note(rows, seen)
        return can

    def note(self, rows: Sequence[int], seen: int) -> None:
        """Note that the ranking is up to date.

        Args:
            rows: that were brought up to date.
            seen: how many pods were placed by then.
        """
        self._ahead.forget(rows)
        self._own, self.seen = False, seen

    def best(self, pods: Sequence[Pod], at: int) -> tuple[int, int] | None:
        """Return row and total of the best node for a pod, None for none; right after an update.

        Args:
            pods: of the template, which come one after the other.
            at: the position of the pod among them.
        """
        self.ranking.settle()
        return self.ranking.best(pods, at) if self.ranking.count else None

    def place(self, pod: Pod, row: int) -> None:
        """Place the next pod of the template, right after a refresh."""
        if self._placements.add(pod, row, self.rules):
            self._ahead.forget([row])
        self._own = True
