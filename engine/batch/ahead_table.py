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
        places: of the candidate of each state; the rest is as of the ends at the last `rate`.
        is_between: whether it is a candidate, and its scores are between the ends.
        is_quiet: whether, besides, as many candidates are at each end as in the state before: no
            other node gets other points.
        totals: of the points of all scores, where they are between the ends.
        ends_version: that of the ranking at the last `rate`.
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
        self._places = rows
        self._points: Sequence[IntColumn] = ()
        self._at_ends = np.zeros((2, 0, 2, rows.size), np.bool_)  # in the state, and before it
        self._followed: list[int] = []  # states that are not written
        self.places: Sequence[int] = ()
        self.is_between: Sequence[bool] = ()
        self.is_quiet: Sequence[bool] = ()
        self.totals: Sequence[int] = ()
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
        first_places = places.take(self._firsts)
        self._at_ends = np.empty((2, len(moving), 2, places.size), np.bool_)
        for column, raw, are, were in zip(moving, self.raw, *self._at_ends, strict=True):
            low, high = column.ends
            between &= (raw >= low) & (raw <= high)
            before = np.empty(raw.size, column.raw.dtype)
            before[1:], before[self._firsts] = raw[:-1], column.raw.take(first_places)
            column.mark_ends(raw, are)
            column.mark_ends(before, were)
        self._places = places
        self._points = [
            column.points_between_ends(np.where(between, raw, column.ends[0]))
            for column, raw in zip(moving, self.raw, strict=True)
        ]
        # Of single integers, Python's own are read in a fraction of the time.
        self.places, self.is_between = places.tolist(), between.tolist()
        are, were = self._at_ends
        self.is_quiet = (between & ~(are != were).any(axis=(0, 1))).tolist()
        self.totals = sum(self._points, start=still_points).tolist()

    def follow(self, at: int) -> None:
        """Note that a candidate is in a state that is between the ends."""
        self._followed.append(at)

    def crossings(self, at: int) -> list[list[int]]:
        """Return how many more candidates are at each end of each score than before a state."""
        are, were = self._at_ends[..., at].view(np.int8)
        changes: list[list[int]] = (are - were).tolist()
        return changes

    def write(self, moving: Sequence[ScoreColumn]) -> None:
        """Write the scores and points of the states that were followed since the last time."""
        if not self._followed:
            return
        states = np.array(self._followed, np.intp)
        self._followed.clear()
        places = self._places.take(states)  # of several states of a place, the last one is written
        for column, raw, points in zip(moving, self.raw, self._points, strict=True):
            column.raw[places], column.points[places] = raw.take(states), points.take(states)
