"""The pods of one template: their rules, and the nodes as they rank by these."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from engine.batch.look_ahead import LookAhead
from engine.batch.node_states import Judged
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
        UnevenError: some score could not be evaluated, or other filters depend on other nodes than
            at first; so do the methods.

    Attributes:
        rules: of the template.
        decision: for the first pod.
        ranking: of the nodes, as of the last `refresh`.
        seen: how many pods were placed by then.
    """

    def __init__(self, rules: TemplateRules, placements: Placements, pods: int) -> None:
        self.rules = rules
        self._pods = pods
        self._placements = placements
        self._repelling = placements.repelling
        self._begin()
        self.decision = self.ranking.decision

    def _begin(self) -> None:
        view = self._placements.what_if.view
        self.ranking = Ranking(self.rules, view)
        self._ahead = LookAhead(self.rules, self.ranking, self._pods)
        self.seen = len(self._placements.rows)
        self._own = False  # whether the first pod placed since then is of this template

    def refresh(self, pod: Pod, judge: Callable[[Sequence[int]], Judged]) -> None:
        """Bring the ranking up to date.

        Args:
            pod: the next one of the template.
            judge: says what pods have changed of rows that took some since the last refresh.
        """
        placed = self._placements.rows
        new = len(placed) - self.seen
        if not new:
            return
        if self._repelling != self._placements.repelling:
            self._repelling = self._placements.repelling
            self.rules.check_filters(self._placements.what_if.view)
        is_alone, self._own = self._own and new == 1, False
        if is_alone:
            can = self._ahead.take_up(placed[-1], pod, self._placements)
        else:
            rows = [*set(placed[-new:])]
            self._ahead.forget(rows)
            can = self.ranking.update(np.array(rows), *judge(rows))
        self.seen = len(placed)
        if not can:
            self._begin()
        elif self.rules.is_coupled:
            self.ranking.confine(self.rules.allowed(self._placements.what_if.view))

    def place(self, pod: Pod, row: int) -> None:
        """Place the next pod of the template, right after a refresh."""
        if self._placements.add(pod, row, self.rules):
            self._ahead.forget([row])
        self._own = True
