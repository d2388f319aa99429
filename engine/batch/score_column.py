"""One score over the candidates of a template."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from engine.batch.template_rules import UnevenError
from engine.model.rule_outcomes import ScoreOutcome
from engine.policy import ScoreRule
from engine.view import IntColumn, extremes


class ScoreColumn:
    """One score over the candidates, some of which may be out by now.

    Its points follow from it and its ends (see `Score.normalize`), so that other nodes keep theirs
    when a pod changes a score between the ends.

    Args:
        rule: the score.
        score: its outcome.

    Attributes:
        raw: before it is normalized, (n_candidates,).
        points: times the weight, (n_candidates,); anything for those that are out.
        ends: the least and the greatest of `raw` over those that are in.
        at_ends: how many of them have each; None for unknown.
        is_in_doubt: whether they may be others by now.
    """

    def __init__(self, rule: ScoreRule, score: ScoreOutcome) -> None:
        self._rule = rule
        self._counts = not score.abstained
        self.raw = score.raw.copy()
        self.points = score.normalized * rule.weight
        self.at_ends: list[int] | None = None
        self.ends: tuple[float, float] = (0, 0)
        self.is_in_doubt = False
        if self.raw.size:
            self.ends = extremes(self.raw)

    def normalize(self, inside: NDArray[np.intp] | None) -> None:
        """Give all candidates points.

        Args:
            inside: those that are in, at least one; None for all.

        Raises:
            UnevenError: that is not possible.
        """
        raw = self.raw if inside is None else self.raw.take(inside)
        self.at_ends, self.ends = None, extremes(raw)
        if inside is None:
            self.points[:] = self._points_of(raw)
        else:
            self.points[inside] = self._points_of(raw)

    def replace(self, score: ScoreOutcome, inside: NDArray[np.intp] | None) -> bool:
        """Take up a score of candidates that depends on other nodes; return whether points differ.

        Args:
            score: its outcome for those that are in, in order.
            inside: these; None for all.
        """
        points = score.normalized * self._rule.weight
        old = self.points if inside is None else self.points.take(inside)
        if np.array_equal(old, points):
            return False
        self.points[slice(None) if inside is None else inside] = points
        return True

    def points_between_ends(self, raw: NDArray[Any]) -> IntColumn:
        """Return the points of raw scores none of which is beyond the ends."""
        return self._points_of(np.concatenate([raw, np.array(self.ends, raw.dtype)]))[:-2]

    def write(
        self, places: NDArray[np.intp], raw: NDArray[Any], inside: NDArray[np.intp] | None
    ) -> bool:
        """Replace the scores of candidates that are in; return whether others need new points."""
        if not places.size:
            return False
        old, (low, high) = self.raw.take(places), self.ends
        self.raw[places], self.at_ends = raw, None
        least, greatest = extremes(np.concatenate([old, raw]))
        if (least <= low or greatest >= high) and self._ends_of(inside) != self.ends:
            return True
        self.points[places] = self.points_between_ends(raw)
        return False

    def note(self, crossings: Sequence[int], *, may_move: bool) -> None:
        """Note that scores and points were written.

        Args:
            crossings: how many more candidates are at each end.
            may_move: whether the ends may be others now.
        """
        self.is_in_doubt |= may_move
        if may_move or self.at_ends is None:
            self.at_ends = None
        else:
            self.at_ends = [sum(each) for each in zip(self.at_ends, crossings, strict=True)]

    def has_moved(self, inside: NDArray[np.intp] | None) -> bool:
        """Return whether the ends are others than the points are by; they are in no doubt then."""
        self.is_in_doubt = False
        return self._ends_of(inside) != self.ends

    def loses(self, places: NDArray[np.intp], inside: NDArray[np.intp]) -> bool:
        """Return whether others need new points when candidates are not in any more.

        Of a score that pods change: what points of others depend on is more than their ends.
        """
        self.at_ends = None
        raw, (low, high) = self.raw.take(places), self.ends
        least, greatest = extremes(raw)
        return (least <= low or greatest >= high) and self._ends_of(inside) != self.ends

    def renews(self, inside: NDArray[np.intp]) -> bool:
        """Give points anew to those that are in; return whether any of them has others now."""
        before = self.points.take(inside)
        self.normalize(inside)
        return not np.array_equal(before, self.points.take(inside))

    def mark_ends(self, raw: NDArray[Any], at_ends: NDArray[np.bool_]) -> None:
        """Write which of some scores are at each end or beyond it, shape (2, len(raw))."""
        np.less_equal(raw, self.ends[0], out=at_ends[0])
        np.greater_equal(raw, self.ends[1], out=at_ends[1])

    def count_at_ends(self, inside: NDArray[np.intp] | None) -> list[int]:
        """Return how many candidates are at each end; `inside` as for `normalize`."""
        raw = self.raw if inside is None else self.raw.take(inside)
        return [int(np.count_nonzero(raw == end)) for end in self.ends]

    def _ends_of(self, inside: NDArray[np.intp] | None) -> tuple[float, float]:
        raw = self.raw if inside is None else self.raw.take(inside)
        return extremes(raw)

    def _points_of(self, raw: NDArray[Any]) -> IntColumn:
        if not self._counts:
            return np.zeros(raw.size, np.int64)
        points = self._rule.evaluator.normalize(raw)
        if points is None:
            raise UnevenError
        return points * self._rule.weight
