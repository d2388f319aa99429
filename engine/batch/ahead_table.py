"""What becomes of nodes with more pods of a template, known before they have them."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from engine.batch.score_column import ScoreColumn
from engine.batch.template_rules import RawScores
from engine.view import BoolColumn, IntColumn


class AheadTable:
    """States of nodes, computed together; those of one node follow each other, each a pod more.

    Args:
        rows: the row of each state.
        firsts: the places of the first states of nodes.
        passes: whether the node is still a candidate then.
        raw: the scores that pods change; anything where it is none.

    Attributes:
        is_between: whether it is one, and these are between the ends of all candidates.
        is_quiet: whether, besides, the node is no end of any of them, nor was one in the state
            before: no other node gets other points.
        points: of each of `raw`, where it is between the ends.
        totals: of the points of all scores, there.
        ends_version: that of the ranking for which these are right.
    """

    def __init__(
        self,
        rows: NDArray[np.intp],
        firsts: NDArray[np.intp],
        passes: BoolColumn,
        raw: RawScores,
    ) -> None:
        self.rows = rows
        self.passes = passes
        self.raw = raw
        self._firsts = firsts
        self.is_between = self.is_quiet = passes
        self.points: Sequence[IntColumn] = ()
        self.totals = np.zeros(rows.size, np.int64)
        self.ends_version = -1

    def rate(
        self, moving: Sequence[ScoreColumn], places: NDArray[np.intp], still_points: IntColumn
    ) -> None:
        """Give the states points by the ends as they are.

        Args:
            moving: the scores that pods change.
            places: of the candidate of each state.
            still_points: of it, by all other scores.
        """
        between = self.passes.copy()
        nodes = places.take(self._firsts)
        is_end, was_end = np.zeros((2, self.rows.size), np.bool_)
        are_ends = np.zeros(nodes.size, np.bool_)
        for column, raw in zip(moving, self.raw, strict=True):
            low, high = column.ends
            between &= (raw >= low) & (raw <= high)
            is_end |= column.is_end(raw)
            are_ends |= column.is_end(column.raw.take(nodes))
        was_end[1:] = is_end[:-1]
        was_end[self._firsts] = are_ends
        self.is_between, self.is_quiet = between, between & ~(is_end | was_end)
        self.points = [
            column.points_between_ends(np.where(between, raw, column.ends[0]))
            for column, raw in zip(moving, self.raw, strict=True)
        ]
        self.totals = sum(self.points, start=still_points)
