"""Scores of nodes with more pods of one template, computed for many nodes at once."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from engine.batch.ranking import Ranking
from engine.batch.template_rules import TemplateRules
from engine.model.pod import Pod
from engine.view import BoolColumn, IntColumn, WhatIf

_FIRST_ROWS: Final = 64
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

    Each time that a node is not known, more nodes are computed together than the last time.
    """

    def __init__(self, rules: TemplateRules, ranking: Ranking) -> None:
        self._rules = rules
        self._ranking = ranking
        self._known: dict[int, deque[tuple[_Table, int]]] = {}
        self._most = _FIRST_ROWS
        self._depth: dict[int, int] = {}

    def forget(self, rows: list[int]) -> None:
        """Drop what is known of rows that took other pods."""
        for row in rows:
            self._known.pop(row, None)

    def take_up(self, row: int, pod: Pod, what_if: WhatIf) -> bool:
        """Bring the ranking up to date for a row that took one more pod of the template.

        Args:
            row: the row.
            pod: of the template; no report knows it.
            what_if: the cluster with the pod.

        Returns:
            Whether that is possible; see `Ranking.update`.

        Raises:
            UnevenError: some score could not be evaluated.
        """
        if not self._known.get(row):
            self._compute(row, pod, what_if)
        table, at = self._known[row].popleft()
        table.fit(self._ranking)
        raw = [each[at] for each in table.raw]
        if table.is_between[at]:
            self._ranking.update_one(row, raw, table.points[at], table.totals[at])
            return True
        passes = table.passes[at : at + 1]
        scores = [each[at : at + 1][passes] for each in table.raw]
        return self._ranking.update(np.array([row]), passes, scores)

    def _compute(self, row: int, pod: Pod, what_if: WhatIf) -> None:
        """Compute a row for its next pods, and the best other rows for the next one."""
        depth = self._depth[row] = 2 * self._depth.get(row, _FIRST_DEPTH // 2)
        best = self._ranking.best_rows(self._most).tolist()
        others = [other for other in best if not self._known.get(other) and other != row]
        self._most *= 2
        rows = np.array([row] * depth + others, np.intp)
        counts = np.array([*range(depth), *(1 for _ in others)], np.int64)
        view = what_if.ahead(pod, rows, counts)
        passes, scores = self._rules.evaluate_moving(view, np.arange(rows.size))
        raw = [np.zeros(rows.size, each.dtype) for each in scores]
        for column, each in zip(raw, scores, strict=True):
            column[passes] = each
        table = _Table(rows, passes, raw)
        for at, each_row in enumerate(rows.tolist()):
            self._known.setdefault(each_row, deque()).append((table, at))
