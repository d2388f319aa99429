"""Rankings of many templates as rows of matrices: what pods change is taken up for all at once."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from engine.batch.node_states import StackedStates, Use
from engine.batch.ranking import Ranking
from engine.batch.score_column import ScoreColumn
from engine.plugins import BoolMatrix
from engine.policy import ScoreRule
from engine.view import BoolColumn, IntColumn

_Item = TypeVar("_Item", bound=np.generic)


class RankingStack:
    """Rankings by rules that look at each node alone.

    From now on columns of the rankings are rows of matrices: each goes on as before.

    Args:
        rankings: of the templates.
        scores: that pods change, each with the templates that it is for.
    """

    def __init__(self, rankings: Sequence[Ranking], scores: Sequence[Use[ScoreRule]]) -> None:
        self._rankings = rankings
        self._place_of = np.stack([ranking.place_of for ranking in rankings])
        self._may_pass = np.stack([ranking.may_pass for ranking in rankings])
        # INVARIANT: columns of numbers have items of eight bytes. One piece of memory for all
        # matrices of these is had in a tenth of the time.
        shape = len(rankings), max(1, *(ranking.totals.size for ranking in rankings))
        self._still_points, self._totals, *matrices = np.empty(
            (2 + 2 * len(scores), *shape), np.int64
        )
        self._is_in = np.empty(shape, np.bool_)
        for number, ranking in enumerate(rankings):
            ranking.is_in = _moved(ranking.is_in, self._is_in[number])
            ranking.still_points = _moved(ranking.still_points, self._still_points[number])
            ranking.totals = _moved(ranking.totals, self._totals[number])
        self._scores = [
            _StackedScore(use, rankings, *matrices[2 * i : 2 * i + 2])
            for i, use in enumerate(scores)
        ]
        self._starts = np.arange(0, self._totals.size, shape[1])[:, np.newaxis]

    def rate(self, rows: Sequence[int], states: StackedStates) -> RatedStates:
        """Give states points and totals by the ends as they are.

        Args:
            rows: of the states, all different.
            states: of all templates.
        """
        at = np.array(rows, np.intp)
        places = self._place_of.take(at, axis=1)
        cells = places + self._starts
        was_in = self._is_in.reshape(-1).take(cells) & (places >= 0)
        stays = states.passes & self._may_pass.take(at, axis=1)
        changes = stays != was_in
        stays &= was_in
        totals = self._still_points.reshape(-1).take(cells)
        disturbs: BoolMatrix = np.logical_or.accumulate(changes, axis=1)
        scores = []
        for ranking in self._rankings:
            ranking.write_followed()
        for score, raw in zip(self._scores, states.raw, strict=True):
            rated = score.rate(cells[score.users], stays[score.users], raw)
            totals[score.users] += rated.points
            disturbs[score.users] |= rated.moves
            scores.append(rated)
        versions = np.array([ranking.ends_version for ranking in self._rankings])
        return RatedStates(cells, stays, changes, disturbs, totals, scores, versions)

    def write(self, states: RatedStates, count: int, are_known: BoolColumn) -> list[int]:
        """Take up the first states, for templates whose ranking knows all before them.

        Args:
            states: as `rate` gave them.
            count: of them.
            are_known: whether they are, for each template.

        Returns:
            The templates that have to take them up by themselves.
        """
        versions = [ranking.ends_version for ranking in self._rankings]
        is_even: BoolColumn = are_known & ~states.changes[:, :count].any(axis=1)
        is_even &= np.array(versions) == states.versions
        is_written = states.stays[:, :count] & is_even[:, np.newaxis]
        cells = states.cells[:, :count]
        self._totals.reshape(-1)[cells[is_written]] = states.totals[:, :count][is_written]
        for score, rated in zip(self._scores, states.scores, strict=True):
            users = score.users
            score.write(rated, cells[users], is_written[users], is_even[users])
        for ranking in self._rankings:
            ranking.note()
        return np.flatnonzero(~is_even & are_known).tolist()


@dataclass(frozen=True)
class RatedScores:
    """Scores of states, with points by the ends as they are; see `RatedStates` for the axes.

    Attributes:
        raw: before they are normalized.
        points: times the weight.
        moves: whether the ends may be others once a state and those before it are there.
        crossings: how many more candidates are at the lower and the upper end by then,
            (2, n_templates, n_states).
    """

    raw: NDArray[Any]
    points: IntColumn
    moves: BoolMatrix
    crossings: NDArray[np.int16]


@dataclass(frozen=True)
class RatedStates:
    """States of nodes with their totals for each template, (n_templates, n_states).

    Attributes:
        cells: of the nodes in matrices of all templates.
        stays: whether a node is a candidate, as it was before; else the totals are anything.
        changes: whether it was and is none now, or the other way round.
        disturbs: whether other nodes may have another total, or the candidates be others, once a
            state and those before it are there.
        totals: by the ends as they were.
        scores: that pods change.
        versions: `Ranking.ends_version` of each template.
    """

    cells: NDArray[np.intp]
    stays: BoolMatrix
    changes: BoolMatrix
    disturbs: BoolMatrix
    totals: IntColumn
    scores: Sequence[RatedScores]
    versions: IntColumn


class _StackedScore:
    """A score that pods change, over the candidates of all templates that it is for.

    Args:
        use: the score and these.
        rankings: of all templates.
        raw: for its columns, of any type, each in the row of the template.
        points: the same.

    Attributes:
        users: the numbers of these.
    """

    def __init__(
        self,
        use: Use[ScoreRule],
        rankings: Sequence[Ranking],
        raw: NDArray[np.int64],
        points: IntColumn,
    ) -> None:
        self._rule = use.rule
        is_for_all = len(use.numbers) == len(rankings)
        self.users = slice(None) if is_for_all else np.array(use.numbers)
        self._rankings = [rankings[number] for number in use.numbers]
        self._columns: list[ScoreColumn] = [
            rankings[number].moving[position]
            for number, position in zip(use.numbers, use.positions, strict=True)
        ]
        self._raw: NDArray[Any] = raw.view(self._columns[0].raw.dtype)
        self._points = points
        for number, column in zip(use.numbers, self._columns, strict=True):
            column.raw = _moved(column.raw, self._raw[number])
            column.points = _moved(column.points, self._points[number])

    def rate(self, cells: NDArray[np.intp], stays: BoolMatrix, raw: NDArray[Any]) -> RatedScores:
        """Give states points; see `RatedStates` for the arguments."""
        ends: NDArray[Any] = np.array([column.ends for column in self._columns], raw.dtype)
        low, high = ends[:, :1], ends[:, 1:]
        old: NDArray[Any] = self._raw.reshape(-1).take(cells)
        new: Any = np.where(stays, raw, low)
        at_ends = np.array([(new == end).view(np.int8) - (old == end) for end in (low, high)])
        at_ends *= stays
        crossings = at_ends.cumsum(axis=2, dtype=np.int16)
        moves: BoolMatrix = (new < low) | (new > high)
        if moves.any():
            moves = np.logical_or.accumulate(moves, axis=1)
            np.clip(new, low, high, out=new)
        self._add_moves(moves, crossings)
        points = self._rule.points_between(new, low, high)
        return RatedScores(raw, points, moves, crossings)

    def _add_moves(self, moves: BoolMatrix, crossings: NDArray[np.int16]) -> None:
        """Mark where no candidate may be left at an end; see `RatedScores`."""
        for row, column in enumerate(self._columns):
            if column.is_in_doubt:
                moves[row] = True
        least = crossings.min(axis=2)  # per end and row
        rows = [
            row
            for row in (least < 0).any(axis=0).nonzero()[0].tolist()
            if not self._columns[row].is_in_doubt
        ]
        counts = [self._rankings[row].counts_at_ends(self._columns[row]) for row in rows]
        for row, count in zip(rows, counts, strict=True):
            if least[0, row] + count[0] <= 0 or least[1, row] + count[1] <= 0:
                moves[row] |= (crossings[:, row] <= -np.array(count)[:, np.newaxis]).any(axis=0)

    def write(
        self,
        rated: RatedScores,
        cells: NDArray[np.intp],
        is_written: BoolMatrix,
        is_even: BoolColumn,
    ) -> None:
        """Take up the scores and points of the first states.

        Args:
            rated: all of them.
            cells: of the first ones.
            is_written: the states of candidates that are taken up.
            is_even: the templates for which any are.
        """
        count, cells = is_written.shape[1], cells[is_written]
        self._raw.reshape(-1)[cells] = rated.raw[:, :count][is_written]
        self._points.reshape(-1)[cells] = rated.points[:, :count][is_written]
        moves, crossings = rated.moves[:, count - 1], rated.crossings[..., count - 1]
        for row in ((crossings.any(axis=0) | moves) & is_even).nonzero()[0].tolist():
            self._columns[row].note(crossings[:, row].tolist(), may_move=bool(moves[row]))


def _moved(column: NDArray[_Item], row: NDArray[_Item]) -> NDArray[_Item]:
    """Return the beginning of a row of a matrix, which is a column from now on."""
    moved = row[: column.size]
    moved[:] = column
    return moved
