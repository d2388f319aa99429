"""Scores of nodes with more pods of one template, computed for many nodes at once."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np

from engine.batch.ahead_table import AheadTable
from engine.batch.node_states import judge_states
from engine.batch.placements import Placements
from engine.batch.ranking import Ranking
from engine.batch.template_rules import TemplateRules
from engine.model.pod import Pod

_LEAST_ROWS: Final = 16
_MOST_ROWS: Final = 512
_FIRST_DEPTH: Final = 3


class LookAhead:
    """What becomes of nodes that take one pod of a template after the other.

    When a node is not known, others that are likely to be needed are computed with it.

    Args:
        rules: of the template.
        ranking: by these.
        pods: of the template, more or less: as many rows are computed at first.
    """

    def __init__(self, rules: TemplateRules, ranking: Ranking, pods: int) -> None:
        self._rules = rules
        self._ranking = ranking
        self._known: dict[int, tuple[AheadTable, int, int]] = {}  # the next states
        self._depths: dict[int, int] = {}  # to compute next time
        self._most = min(pods, _MOST_ROWS)
        self._pods = pods  # that are still to come

    def forget(self, rows: Sequence[int]) -> None:
        """Drop what is known of rows that took other pods."""
        if self._known:
            for row in rows:
                self._known.pop(row, None)

    def take_up(self, row: int, pod: Pod, placements: Placements) -> bool:
        """Bring the ranking up to date for a row that took one more pod of the template.

        Args:
            row: the row.
            pod: of the template; no report knows it.
            placements: with the pod.

        Returns:
            Whether that is possible; see `Ranking.update`.

        Raises:
            UnevenError: some score could not be evaluated.
        """
        self._pods -= 1
        known = self._known.get(row)
        if known is None:
            self._compute(row, pod, placements)
            known = self._known[row]
        table, at, end = known
        if at + 1 < end:
            self._known[row] = table, at + 1, end
        else:
            del self._known[row]
        return self._ranking.follow(row, table, at)

    def _compute(self, row: int, pod: Pod, placements: Placements) -> None:
        """Compute a row as it is, and with more pods; and the best others with more pods."""
        likely = max(_LEAST_ROWS, min(self._pods, self._most))
        best = self._ranking.best_rows(likely).tolist()
        self._most = min(2 * self._most, _MOST_ROWS)
        known = self._known.keys() | {row}
        nodes = [row, *[other for other in best if other not in known]]
        # The best of them are likely to take several pods before the last ones take any.
        depths = _FIRST_DEPTH - np.arange(len(nodes)) * _FIRST_DEPTH // len(nodes)
        if self._depths:
            usual = depths.tolist()
            depths[:] = [self._depths.get(*each) for each in zip(nodes, usual, strict=True)]
        ends = np.cumsum(depths)
        firsts = ends - depths
        rows = np.repeat(np.array(nodes, np.intp), depths)
        counts = np.arange(rows.size) - np.repeat(firsts, depths) + 1
        counts[: depths[0]] -= 1  # the row itself has taken its pod already
        view = placements.ahead(pod, self._rules, rows, counts)
        states = judge_states(self._rules, view)
        table = AheadTable(rows, firsts, states.passes, states.raw)
        self._depths[row] = 2 * int(depths[0])
        for node, first, end in zip(nodes, firsts.tolist(), ends.tolist(), strict=True):
            self._known[node] = table, first, end
