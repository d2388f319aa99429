"""Scores of nodes with more pods of one template, computed for many nodes at once."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from engine.batch.placements import Placements
from engine.batch.ranking import Ranking
from engine.batch.template_rules import TemplateRules
from engine.model.pod import Pod
from engine.view import BoolColumn, IntColumn

_LEAST_ROWS: Final = 16
_MOST_ROWS: Final = 512
_FIRST_DEPTH: Final = 2


@dataclass
class _Table:
    """What was computed at once.

    Attributes:
        rows: a row for each pod more that is on it.
        passes: whether it is still a candidate.
        raw: its scores that pods change; anything where it is none.
        is_between: whether it is one, and these are between the ends.
        points: for these scores, if so.
        totals: of all scores, if so.
        ends_version: that of the ranking for which the last three are right.
    """

    rows: NDArray[np.intp]
    passes: BoolColumn
    raw: list[NDArray[Any]]
    is_between: list[bool] = field(default_factory=list)
    points: list[tuple[int, ...]] = field(default_factory=list)
    totals: list[int] = field(default_factory=list)
    ends_version: int = -1

    def fit(self, ranking: Ranking) -> None:
        """Compute points anew if the ends have moved."""
        if self.ends_version == ranking.ends_version:
            return
        self.ends_version = ranking.ends_version
        between, totals = self.passes.copy(), np.zeros(self.rows.size, np.int64)
        points: list[IntColumn] = []
        for column, raw in zip(ranking.moving, self.raw, strict=True):
            between &= (raw >= column.ends[0]) & (raw <= column.ends[1])
        for column, raw in zip(ranking.moving, self.raw, strict=True):
            each = np.zeros(self.rows.size, np.int64)
            each[between] = column.points_between_ends(raw[between])
            totals += each
            points.append(each)
        totals += ranking.still_points(self.rows)
        self.is_between, self.totals = between.tolist(), totals.tolist()
        self.points = list(zip(*(each.tolist() for each in points), strict=True)) or [()] * len(
            self.rows
        )


class LookAhead:
    """What becomes of nodes that take one pod of a template after the other.

    When a node is not known, others that are likely to be needed are computed with it.

    Args:
        rules: of the template.
        ranking: by these.
        rows: the number of all rows.
        pods: of the template, more or less: as many rows are computed at first.
    """

    def __init__(self, rules: TemplateRules, ranking: Ranking, rows: int, pods: int) -> None:
        self._rules = rules
        self._ranking = ranking
        self._known: dict[int, tuple[_Table, int]] = {}  # what comes next
        self._left = np.zeros(rows, np.int64)  # of what is known
        self._depth = np.full(rows, _FIRST_DEPTH)  # to compute next time
        self._most = max(_LEAST_ROWS, min(pods, _MOST_ROWS))

    def forget(self, rows: NDArray[np.intp]) -> None:
        """Drop what is known of rows that took other pods."""
        self._left[rows] = 0

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
        if not self._left[row]:
            self._compute(row, pod, placements)
        table, at = self._known[row]
        self._known[row] = table, at + 1
        self._left[row] -= 1
        if not self._rules.is_coupled:  # else the ends move with most pods
            table.fit(self._ranking)
            if table.is_between[at]:
                raw = [each[at] for each in table.raw]
                self._ranking.update_one(row, raw, table.points[at], table.totals[at])
                return True
        passes = table.passes[at : at + 1]
        scores = [each[at : at + 1][passes] for each in table.raw]
        return self._ranking.update(np.array([row]), passes, scores)

    def _compute(self, row: int, pod: Pod, placements: Placements) -> None:
        """Compute a row as it is, and with more pods; and the best others with more pods."""
        best = self._ranking.best_rows(self._most)
        others = best[(self._left.take(best) == 0) & (best != row)]
        self._most = min(2 * self._most, _MOST_ROWS)
        each = np.concatenate([[row], others])
        depth = self._depth[each]
        first = np.cumsum(depth) - depth
        rows = np.repeat(each, depth)
        counts = np.arange(rows.size) - np.repeat(first, depth) + 1
        counts[: depth[0]] -= 1  # the row itself has taken its pod already
        view = placements.ahead(pod, self._rules, rows, counts)
        passes, scores = self._rules.evaluate_moving(view, np.arange(rows.size))
        raw = [np.zeros(rows.size, score.dtype) for score in scores]
        for column, score in zip(raw, scores, strict=True):
            column[passes] = score
        table = _Table(rows, passes, raw)
        self._left[each] = depth
        self._depth[row] = 2 * depth[0]
        for known, at in zip(each.tolist(), first.tolist(), strict=True):
            self._known[known] = table, at
