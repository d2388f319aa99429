"""The ranking of nodes for a template, brought up to date for the nodes that took pods."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from engine.batch.template_rules import RawScores, TemplateRules, UnevenError
from engine.model.pod import Pod
from engine.model.ranking import tie_mask
from engine.model.rule_outcomes import ScoreOutcome
from engine.pipeline import tie_factor
from engine.policy import ScoreRule
from engine.view import BoolColumn, ClusterView, IntColumn, extremes, name_hashes


class ScoreColumn:
    """One score over the candidates, some of which may be out by now.

    Its points follow from it and its ends (see `Score.normalize`), so that other nodes keep theirs
    when a pod changes a score between the ends.

    Attributes:
        raw: before it is normalized, (n_candidates,).
        points: times the weight, (n_candidates,); anything for those that are out.
        ends: the least and the greatest of `raw` over those that are in.
        at_ends: how many of them have each; None for unknown.
    """

    def __init__(self, rule: ScoreRule, score: ScoreOutcome) -> None:
        self._rule = rule
        self._counts = not score.abstained
        self.raw = score.raw.copy()
        self.points = score.normalized * rule.weight
        self.at_ends: list[int] | None = None
        self.ends: tuple[float, float] = (0, 0)
        if self.raw.size:
            self.ends = extremes(self.raw)

    def normalize(self, inside: NDArray[np.intp] | None) -> None:
        """Give all candidates points."""
        raw = self.raw if inside is None else self.raw.take(inside)
        self.at_ends, self.ends = None, extremes(raw)
        if inside is None:
            self.points[:] = self._points_of(raw)
        else:
            self.points[inside] = self._points_of(raw)

    def replace(self, score: ScoreOutcome, inside: NDArray[np.intp] | None) -> bool:
        """Replace a score that depends on other nodes; return whether points differ."""
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

    def loses(self, places: NDArray[np.intp], inside: NDArray[np.intp]) -> bool:
        """Return whether others need new points when candidates are not in any more.

        Of a score that pods change: what points of others depend on is more than their ends.
        """
        self.at_ends = None
        raw, (low, high) = self.raw.take(places), self.ends
        least, greatest = extremes(raw)
        return (least <= low or greatest >= high) and self._ends_of(inside) != self.ends

    def renews(self, inside: NDArray[np.intp]) -> bool:
        """Give points again to those that are in; return whether any of them has others now."""
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


class TiedPlaces:
    """The places of the candidates that share the best total.

    Attributes:
        total: the best.
    """

    def __init__(self, totals: IntColumn, hashes: NDArray[np.uint64], candidates: int) -> None:
        self.total: int = totals.item(totals.argmax())
        self._places = (totals == self.total).nonzero()[0]
        self._hashes = hashes.take(self._places)
        self._mask = np.uint64(tie_mask(self.total, candidates))
        self._at = 0  # of the place that came first last

    def first(self, pod: Pod) -> int:
        """Return the place that comes first for a pod."""
        keys = self._hashes * np.uint64(tie_factor(pod))
        keys &= self._mask
        self._at = int(keys.argmin())
        return int(self._places[self._at])

    def keep(self, total: int) -> bool:
        """Take up a new total of the place that came first last; return whether that is possible.

        It is not where the best total is another one now.
        """
        if total >= self.total:
            return total == self.total
        for column in (self._places, self._hashes):
            column[self._at : -1] = column[self._at + 1 :]
        self._places, self._hashes = self._places[:-1], self._hashes[:-1]
        return len(self._places) > 0


class LookaheadTable:
    """States of nodes, computed together; those of one node follow each other, each a pod more.

    Attributes:
        places: of the candidate of each state; the rest is as of the ends at the last `rate`.
        is_between: whether it is a candidate, and its scores are between the ends.
        keeps_normalization: whether, besides, as many candidates are at each end as in the state
            before: no other node gets other points.
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
        self._advanced: list[int] = []  # states that are not written
        self.places: Sequence[int] = ()
        self.is_between: Sequence[bool] = ()
        self.keeps_normalization: Sequence[bool] = ()
        self.totals: Sequence[int] = ()
        self.ends_version = -1

    def rate(
        self, dynamic: Sequence[ScoreColumn], places: NDArray[np.intp], static_points: IntColumn
    ) -> None:
        """Give the states points by the ends as they are."""
        between = self.passes.copy()
        first_places = places.take(self._firsts)
        self._at_ends = np.empty((2, len(dynamic), 2, places.size), np.bool_)
        for column, raw, are, were in zip(dynamic, self.raw, *self._at_ends, strict=True):
            low, high = column.ends
            between &= (raw >= low) & (raw <= high)
            before = np.empty(raw.size, column.raw.dtype)
            before[1:], before[self._firsts] = raw[:-1], column.raw.take(first_places)
            column.mark_ends(raw, are)
            column.mark_ends(before, were)
        self._places = places
        self._points = [
            column.points_between_ends(np.where(between, raw, column.ends[0]))
            for column, raw in zip(dynamic, self.raw, strict=True)
        ]
        # Of single integers, Python's own are read in a fraction of the time.
        self.places, self.is_between = places.tolist(), between.tolist()
        are, were = self._at_ends
        self.keeps_normalization = (between & ~(are != were).any(axis=(0, 1))).tolist()
        self.totals = sum(self._points, start=static_points).tolist()

    def advance(self, at: int) -> None:
        """Note that a candidate is in a state that is between the ends."""
        self._advanced.append(at)

    def crossings(self, at: int) -> list[list[int]]:
        """Return how many more candidates are at each end of each score than before a state."""
        are, were = self._at_ends[..., at].view(np.int8)
        changes: list[list[int]] = (are - were).tolist()
        return changes

    def write(self, dynamic: Sequence[ScoreColumn]) -> None:
        """Write the scores and points of the states that were taken up since the last time."""
        if not self._advanced:
            return
        states = np.array(self._advanced, np.intp)
        self._advanced.clear()
        places = self._places.take(states)  # of several states of a place, the last one is written
        for column, raw, points in zip(dynamic, self.raw, self._points, strict=True):
            column.raw[places], column.points[places] = raw.take(states), points.take(states)


_NEVER: Final = -1
"""The place of a row that was no candidate from the start; the total of one that is none now."""


class Ranking:
    """The candidates of a template with their totals.

    Where filters depend on other nodes, all that would be candidates without these are known.

    Attributes:
        decision: the one for the first pod of the template.
        count: the number of candidates.
        dynamic: the scores that pods change.
        ends_version: grows when candidates that took no pod get other points.
        place_of: of each row among the candidates, _NEVER for one that was none from the start.
        may_pass: which rows pass the filters that no pod changes.
        is_in: which candidates are in by now.
        static_points: of candidates, by the scores that no pod changes.
        totals: of candidates.
    """

    def __init__(self, rules: TemplateRules, view: ClusterView) -> None:
        self.decision, self.may_pass = rules.decide(view)
        self._rows, scored = rules.contenders(self.decision, view)
        self._columns = [
            ScoreColumn(rule, score) for rule, score in zip(rules.scores, scored, strict=True)
        ]
        self.dynamic: Sequence[ScoreColumn] = [self._columns[i] for i in rules.dynamic_positions]
        self.place_of = np.full(len(view), _NEVER, np.intp)
        self.place_of[self._rows] = np.arange(self._rows.size)
        self.is_in = np.ones(self._rows.size, np.bool_)
        self._inside: NDArray[np.intp] | None = None  # of the candidates; None while all are
        self._hashes = name_hashes(view).take(self._rows)
        self._tied: TiedPlaces | None = None  # as the totals are
        self._static = [column for column in self._columns if column not in self.dynamic]
        self.static_points = self._points_by(self._static)
        self.totals = self.static_points + self._points_by(self.dynamic)
        self.count = self._rows.size
        self.ends_version = 0
        self._passes = self.is_in.copy() if rules.is_coupled else None  # before `restrict_to`
        self._unread: list[tuple[NDArray[np.intp], RawScores]] = []  # of places, till then
        self._advanced: LookaheadTable | None = None  # whose states may not be written yet
        self._coupled = [self._columns[i] for i in rules.coupled_positions]
        if not rules.is_local:
            self.look_around(rules, view)

    def look_around(self, rules: TemplateRules, view: ClusterView) -> None:
        """Update what rules say of nodes that depends on other nodes."""
        if rules.is_coupled:
            self.restrict_to(rules.allowed(view))
        if not self._coupled or not self.count:
            return
        rows = self._rows if self._inside is None else self._rows.take(self._inside)
        scored = rules.coupled_scores(view, rows)
        changed = [
            column.replace(score, self._inside)
            for column, score in zip(self._coupled, scored, strict=True)
        ]
        if any(changed):
            self._add_up(is_static_known=False)

    def restrict_to(self, allowed: BoolColumn) -> None:
        """Update which rows pass the filters that depend on other nodes, (n,)."""
        assert self._passes is not None  # noqa: S101 - INVARIANT: there are such filters
        is_in = self._passes & allowed.take(self._rows)
        unread, self._unread = self._unread, []
        only_leave = not (is_in > self.is_in).any() and not any(
            is_in.take(places).any() for places, _ in unread
        )
        stale = self._leave((is_in < self.is_in).nonzero()[0]) if only_leave else self._columns
        for places, raw in unread:  # after they have left, with the scores that they had
            for column, new in zip(self.dynamic, raw, strict=True):
                column.raw[places] = new
        self._tied = None
        if not only_leave:
            self.is_in[:] = is_in
            self._inside = is_in.nonzero()[0]
            self.count = self._inside.size
        if stale or not only_leave:  # those that come need totals, even by no score at all
            self._rank(stale)

    def best(self, pod: Pod) -> tuple[int, int]:
        """Return the row of the best candidate for a pod, and its total; there must be one."""
        tied = self._tied
        if tied is None:
            tied = self._tied = TiedPlaces(self.totals, self._hashes, self.count)
        return self._rows.item(tied.first(pod)), tied.total

    def best_rows(self, most: int) -> NDArray[np.intp]:
        """Return the rows of the best candidates, best first; more for ties, at most twice."""
        totals = self.totals
        if most >= self.count:
            (places,) = self.is_in.nonzero()
        else:
            last = np.partition(totals, -most)[-most]
            (above,), (tied,) = (totals > last).nonzero(), (totals == last).nonzero()
            places = np.concatenate([above, tied[: 2 * most - above.size]])
        return self._rows.take(places[(-totals.take(places)).argsort()])

    def update(self, rows: NDArray[np.intp], passes: BoolColumn, raw: RawScores) -> bool:
        """Update nodes that took pods.

        Returns:
            Whether that is possible: it is not for a node that becomes a candidate by pods.
        """
        self.write_advanced()
        places = self.place_of.take(rows)
        known = places != _NEVER
        if not known.all():
            if (passes & self.may_pass.take(rows))[~known].any():
                return False
            raw = [each[known[passes]] for each in raw]
            places, passes = places[known], passes[known]
        stays, was_in = places[passes], self.is_in.take(places)
        if self._passes is not None:
            self._passes[places] = passes
            self._unread.append((stays, raw))
            return True
        if (passes > was_in).any():  # they may be beyond the ends of any score
            self.is_in[places] = passes
            for column, new in zip(self.dynamic, raw, strict=True):
                column.raw[stays] = new
            self._inside = self.is_in.nonzero()[0]
            self.count = self._inside.size
            self._rank(self._columns)
            return True
        stale = self._leave(places[passes < was_in])
        for column, new in zip(self.dynamic, raw, strict=True):
            if column.write(stays, new, self._inside) and column not in stale:
                stale.append(column)
        self.totals[stays] = sum(
            [column.points.take(stays) for column in self.dynamic],
            start=self.static_points.take(stays),
        )
        self._tied = None
        if stale:
            self._rank(stale)
        return True

    def _leave(self, places: NDArray[np.intp]) -> list[ScoreColumn]:
        """Take candidates out; return the scores for which others need new points."""
        if not places.size:
            return []
        self.is_in[places] = False
        self._inside = self.is_in.nonzero()[0]
        self.count = self._inside.size
        self.totals[places] = _NEVER
        if not self.count:
            return []
        return [
            column
            for column in self._columns
            if (
                column.loses(places, self._inside)
                if column in self.dynamic
                else column.renews(self._inside)
            )
        ]

    def advance(self, row: int, table: LookaheadTable, at: int) -> bool:
        """Update a node that took one more pod by its next state.

        Returns:
            Whether that is possible; see `update`.
        """
        if self._passes is None and not self._coupled:  # else points move with most pods
            if table.ends_version != self.ends_version:
                self._rate(table)
            if table.is_between[at]:
                self._move(table, at)
                return True
        passes = table.passes[at : at + 1]
        return self.update(np.array([row]), passes, [raw[at : at + 1][passes] for raw in table.raw])

    def _rate(self, table: LookaheadTable) -> None:
        self.write_advanced()
        places = self.place_of.take(table.rows)
        table.rate(self.dynamic, places, self.static_points.take(places))
        table.ends_version = self.ends_version

    def _move(self, table: LookaheadTable, at: int) -> None:
        """Move a candidate that remains one to a state between the ends."""
        place, total = table.places[at], table.totals[at]
        self.totals[place] = total
        if self._tied is not None and not self._tied.keep(total):
            self._tied = None
        if self._advanced is not table:
            self.write_advanced()
            self._advanced = table
        table.advance(at)
        if not table.keeps_normalization[at]:
            stale = [
                column
                for column, change in zip(self.dynamic, table.crossings(at), strict=True)
                if any(change) and self._crosses(column, change)
            ]
            if stale:
                self._rank(stale)

    def _crosses(self, column: ScoreColumn, change: Sequence[int]) -> bool:
        """Count more or fewer candidates at the ends; return whether others change."""
        counts = column.at_ends
        if counts is None:
            self.write_advanced()
            counts = column.count_at_ends(self._inside)
        else:
            counts = [sum(each) for each in zip(counts, change, strict=True)]
        column.at_ends = counts
        return 0 in counts

    def write_advanced(self) -> None:
        """Write the scores of candidates that were moved."""
        if self._advanced is not None:
            self._advanced.write(self.dynamic)

    def _rank(self, columns: Sequence[ScoreColumn]) -> None:
        """Give all candidates points by some scores, and the totals of all scores."""
        self.write_advanced()
        if self.count:
            for column in columns:
                column.normalize(self._inside)
        self._add_up(is_static_known=not any(column in self._static for column in columns))

    def _add_up(self, *, is_static_known: bool) -> None:
        """Give all candidates the totals of all scores."""
        self.write_advanced()
        self.ends_version += 1
        self._tied = None
        if not is_static_known:
            self.static_points[:] = self._points_by(self._static)
        np.add(self.static_points, self._points_by(self.dynamic), out=self.totals)
        if self._inside is not None:
            self.totals[~self.is_in] = _NEVER

    def _points_by(self, columns: Sequence[ScoreColumn]) -> IntColumn:
        """Return the points of all candidates by some scores together."""
        points = np.zeros(self._rows.size, np.int64)
        for column in columns:
            points += column.points
        return points
