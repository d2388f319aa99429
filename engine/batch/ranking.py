"""The ranking of nodes for a template, brought up to date for the nodes that took pods."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np
from numpy.typing import NDArray

from engine.batch.ahead_table import AheadTable
from engine.batch.score_column import ScoreColumn
from engine.batch.template_rules import RawScores, TemplateRules
from engine.batch.tied_places import TiedPlaces, tied_places
from engine.model.pod import Pod
from engine.view import BoolColumn, ClusterView, IntColumn, name_hashes

_NEVER: Final = -1
"""The place of a row that was no candidate from the start; the total of one that is none now."""


class Ranking:
    """The candidates of a template with their totals.

    Where filters depend on other nodes, all that would be candidates without these are known.

    Args:
        rules: of the template.
        view: the cluster.

    Raises:
        UnevenError: some score could not be evaluated.

    Attributes:
        decision: the one for the first pod of the template.
        count: the number of candidates.
        moving: the scores that pods change.
        ends_version: grows when candidates that took no pod get other points.
        place_of: of each row among the candidates, _NEVER for one that was none from the start.
        may_pass: which rows pass the filters that no pod changes.
        is_in: which candidates are in by now.
        still_points: of candidates, by the scores that no pod changes.
        totals: of candidates.

    All but `ends_version` and what `best` knows is right but for scores that are in doubt, until
    the next `settle`. INVARIANT: columns are written in place, for they may be rows of matrices.
    """

    def __init__(self, rules: TemplateRules, view: ClusterView) -> None:
        self.decision, self.may_pass = rules.decide(view)
        self._rows, scored = rules.contenders(self.decision, view)
        self._columns = [
            ScoreColumn(rule, score) for rule, score in zip(rules.scores, scored, strict=True)
        ]
        self.moving: Sequence[ScoreColumn] = [self._columns[i] for i in rules.moving_positions]
        self.place_of = np.full(len(view), _NEVER, np.intp)
        self.place_of[self._rows] = np.arange(self._rows.size)
        self.is_in = np.ones(self._rows.size, np.bool_)
        self._inside: NDArray[np.intp] | None = None  # of the candidates; None while all are
        self._hashes = name_hashes(view).take(self._rows)
        self._tied: TiedPlaces | None = None  # as the totals are
        self._still = [column for column in self._columns if column not in self.moving]
        self.still_points = self._points_by(self._still)
        self.totals = self.still_points + self._points_by(self.moving)
        self.count = self._rows.size
        self.ends_version = 0
        self._passes = self.is_in.copy() if rules.is_coupled else None  # before `confine`
        self._unread: list[tuple[NDArray[np.intp], RawScores]] = []  # of places, till then
        self._followed: AheadTable | None = None  # whose states may not be written yet
        self._coupled = [self._columns[i] for i in rules.coupled_positions]
        if not rules.is_local:
            self.look_around(rules, view)

    def look_around(self, rules: TemplateRules, view: ClusterView) -> None:
        """Take up what rules say of nodes that depends on other nodes.

        Args:
            rules: of the template.
            view: the cluster with all pods placed so far.

        Raises:
            UnevenError: some score could not be evaluated.
        """
        if rules.is_coupled:
            self.confine(rules.allowed(view))
        if not self._coupled or not self.count:
            return
        rows = self._rows if self._inside is None else self._rows.take(self._inside)
        scored = rules.coupled_scores(view, rows)
        changed = [
            column.replace(score, self._inside)
            for column, score in zip(self._coupled, scored, strict=True)
        ]
        if any(changed):
            self._add_up(is_still_known=False)

    def confine(self, allowed: BoolColumn) -> None:
        """Take up which rows pass the filters that depend on other nodes, (n,).

        Raises:
            UnevenError: some score could not be evaluated.
        """
        assert self._passes is not None  # noqa: S101 - INVARIANT: there are such filters
        is_in = self._passes & allowed.take(self._rows)
        unread, self._unread = self._unread, []
        only_leave = not (is_in > self.is_in).any() and not any(
            is_in.take(places).any() for places, _ in unread
        )
        stale = self._leave((is_in < self.is_in).nonzero()[0]) if only_leave else self._columns
        for places, raw in unread:  # after they have left, with the scores that they had
            for column, new in zip(self.moving, raw, strict=True):
                column.raw[places] = new
        self._tied = None
        if not only_leave:
            self.is_in[:] = is_in
            self._inside = is_in.nonzero()[0]
            self.count = self._inside.size
        if stale or not only_leave:  # those that come need totals, even by no score at all
            self._rank(stale)

    def note(self) -> None:
        """Note that totals were written."""
        self._tied = None

    def counts_at_ends(self, column: ScoreColumn) -> list[int]:
        """Return how many candidates are at each end of a score that is in no doubt."""
        if column.at_ends is None:
            self.write_followed()
            column.at_ends = column.count_at_ends(self._inside)
        return column.at_ends

    def settle(self) -> None:
        """Give candidates points anew by scores whose ends have moved, of those in doubt."""
        doubtful = [column for column in self.moving if column.is_in_doubt]
        if doubtful and self.count:
            self.write_followed()
            moved = [column for column in doubtful if column.has_moved(self._inside)]
            if moved:
                self._rank(moved)

    def best(self, pods: Sequence[Pod], at: int) -> tuple[int, int]:
        """Return the row of the best candidate for a pod, and its total; there must be one.

        Args:
            pods: of the template, which come one after the other.
            at: the position of the pod among them.
        """
        tied = self._tied
        if tied is None:
            tied = self._tied = tied_places(self.totals, self._hashes, self.count)
        return self._rows.item(tied.first(pods, at)), tied.total

    def best_but(self, rows: Sequence[int], pod: Pod) -> tuple[int, int] | None:
        """Return the best candidate for a pod that is none of `rows`, None if there is none."""
        if not self.count:
            return None
        if not rows:
            return self.best([pod], 0)
        places = self.place_of.take(rows)
        places = places[places != _NEVER]
        totals = self.totals.take(places)
        self.totals[places] = _NEVER
        tied = tied_places(self.totals, self._hashes, self.count)
        self.totals[places] = totals
        if tied.total == _NEVER:
            return None
        return self._rows.item(tied.first([pod], 0)), tied.total

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
        """Take up what pods have changed.

        Args:
            rows: that took pods, each once.
            passes: which of them pass the filters that pods change.
            raw: the scores that pods change, of those that pass.

        Returns:
            Whether that is possible: it is not for a node that becomes a candidate by pods.
        """
        self.write_followed()
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
            for column, new in zip(self.moving, raw, strict=True):
                column.raw[stays] = new
            self._inside = self.is_in.nonzero()[0]
            self.count = self._inside.size
            self._rank(self._columns)
            return True
        stale = self._leave(places[passes < was_in])
        for column, new in zip(self.moving, raw, strict=True):
            if column.write(stays, new, self._inside) and column not in stale:
                stale.append(column)
        self.totals[stays] = sum(
            [column.points.take(stays) for column in self.moving],
            start=self.still_points.take(stays),
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
                if column in self.moving
                else column.renews(self._inside)
            )
        ]

    def follow(self, row: int, table: AheadTable, at: int) -> bool:
        """Take up the next state of a node that took one more pod.

        Args:
            row: of the node.
            table: that has the state.
            at: its place there.

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

    def _rate(self, table: AheadTable) -> None:
        self.write_followed()
        places = self.place_of.take(table.rows)
        table.rate(self.moving, places, self.still_points.take(places))
        table.ends_version = self.ends_version

    def _move(self, table: AheadTable, at: int) -> None:
        """Take up a state of a candidate that remains one, between the ends."""
        place, total = table.places[at], table.totals[at]
        self.totals[place] = total
        if self._tied is not None and not self._tied.keep(total):
            self._tied = None
        if self._followed is not table:
            self.write_followed()
            self._followed = table
        table.follow(at)
        if not table.is_quiet[at]:
            stale = [
                column
                for column, change in zip(self.moving, table.crossings(at), strict=True)
                if any(change) and self._crosses(column, change)
            ]
            if stale:
                self._rank(stale)

    def _crosses(self, column: ScoreColumn, change: Sequence[int]) -> bool:
        """Take up that so many more candidates are at the ends; return whether others change."""
        counts = column.at_ends
        if counts is None:
            self.write_followed()
            counts = column.count_at_ends(self._inside)
        else:
            counts = [sum(each) for each in zip(counts, change, strict=True)]
        column.at_ends = counts
        return 0 in counts

    def write_followed(self) -> None:
        """Write the scores of candidates that were moved."""
        if self._followed is not None:
            self._followed.write(self.moving)

    def _rank(self, columns: Sequence[ScoreColumn]) -> None:
        """Give all candidates points by some scores, and the totals of all scores."""
        self.write_followed()
        if self.count:
            for column in columns:
                column.normalize(self._inside)
        self._add_up(is_still_known=not any(column in self._still for column in columns))

    def _add_up(self, *, is_still_known: bool) -> None:
        """Give all candidates the totals of all scores.

        Args:
            is_still_known: whether the points by scores that no pod changes are what they were.
        """
        self.write_followed()
        self.ends_version += 1
        self._tied = None
        if not is_still_known:
            self.still_points[:] = self._points_by(self._still)
        np.add(self.still_points, self._points_by(self.moving), out=self.totals)
        if self._inside is not None:
            self.totals[~self.is_in] = _NEVER

    def _points_by(self, columns: Sequence[ScoreColumn]) -> IntColumn:
        """Return the points of all candidates by some scores together."""
        points = np.zeros(self._rows.size, np.int64)
        for column in columns:
            points += column.points
        return points
