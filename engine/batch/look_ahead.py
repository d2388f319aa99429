"""The nodes for the pods of one template, as the pods placed so far leave them."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from engine.batch.template_rules import RawScores, TemplateRules, UnevenError, judge_states
from engine.model.decision import tie_mask
from engine.model.pod import Pod
from engine.model.rule_outcomes import ScoreOutcome
from engine.pipeline import tie_factor
from engine.policy import ScoreRule
from engine.view import BoolColumn, ClusterView, IntColumn, WhatIf, extremes, name_hashes


class ScoreColumn:
    """One score over the candidates, some of which may be out by now.

    Its points follow from it and its ends (see `Score.normalize`), so that other nodes keep theirs
    when a pod changes a score between the ends.
    """

    def __init__(self, rule: ScoreRule, score: ScoreOutcome) -> None:
        self._rule = rule
        self._counts = not score.abstained
        self.raw = score.raw.copy()  # before it is normalized, (n_candidates,)
        # times the weight, (n_candidates,); anything for those that are out
        self.points = score.normalized * rule.weight
        # the least and the greatest of `raw` over those that are in
        self.ends: tuple[float, float] = (0, 0)
        if self.raw.size:
            self.ends = extremes(self.raw)

    def normalize(self, inside: NDArray[np.intp] | None) -> None:
        raw = self.raw if inside is None else self.raw.take(inside)
        self.ends = extremes(raw)
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
        self.raw[places] = raw
        if self.has_other_ends(inside):
            return True
        self.points[places] = self.points_between_ends(raw)
        return False

    def renews(self, inside: NDArray[np.intp]) -> bool:
        """Give points again to those that are in; return whether any of them has others now."""
        before = self.points.take(inside)
        self.normalize(inside)
        return not np.array_equal(before, self.points.take(inside))

    def move(self, place: int, raw: np.generic, points: np.int64) -> bool:
        """Replace a score by one between the ends; return whether it was at an end."""
        was_at_end = self.raw[place] in self.ends
        self.raw[place], self.points[place] = raw, points
        return was_at_end

    def has_other_ends(self, inside: NDArray[np.intp] | None) -> bool:
        """Return whether the ends are not what they were; `inside` as for `normalize`."""
        raw = self.raw if inside is None else self.raw.take(inside)
        return extremes(raw) != self.ends

    def _points_of(self, raw: NDArray[Any]) -> IntColumn:
        if not self._counts:
            return np.zeros(raw.size, np.int64)
        points = self._rule.evaluator.normalize(raw)
        if points is None:
            raise UnevenError
        return points * self._rule.weight


class LookaheadTable:
    """States of nodes, computed together; those of one node follow each other, each a pod more."""

    def __init__(self, rows: NDArray[np.intp], passes: BoolColumn, raw: RawScores) -> None:
        self.rows = rows
        self.passes = passes
        self.raw = raw
        # of the candidate of each state; the rest is as of the ends at the last `rate`
        self.places: Sequence[int] = ()
        # whether it is a candidate, and its scores are between the ends
        self.is_between: Sequence[bool] = ()
        # by each score that pods change, where they are between the ends
        self.points: Sequence[IntColumn] = ()
        self.totals: Sequence[int] = ()  # of the points of all scores, likewise
        self.ends_version = -1  # that of the ranking at the last `rate`

    def rate(
        self, dynamic: Sequence[ScoreColumn], places: NDArray[np.intp], static_points: IntColumn
    ) -> None:
        """Give the states points by the ends as they are."""
        between = self.passes.copy()
        for column, raw in zip(dynamic, self.raw, strict=True):
            low, high = column.ends
            between &= (raw >= low) & (raw <= high)
        self.points = [
            column.points_between_ends(np.where(between, raw, column.ends[0]))
            for column, raw in zip(dynamic, self.raw, strict=True)
        ]
        # Of single integers, Python's own are read in a fraction of the time.
        self.places, self.is_between = places.tolist(), between.tolist()
        self.totals = sum(self.points, start=static_points).tolist()


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
        self._static = [column for column in self._columns if column not in self.dynamic]
        self.static_points = self._points_by(self._static)
        self.totals = self.static_points + self._points_by(self.dynamic)
        self.count = self._rows.size
        self.ends_version = 0
        self._passes = self.is_in.copy() if rules.is_coupled else None  # before `restrict_to`
        self._unread: list[tuple[NDArray[np.intp], RawScores]] = []  # of places, till then
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
        if not only_leave:
            self.is_in[:] = is_in
            self._inside = is_in.nonzero()[0]
            self.count = self._inside.size
        if stale or not only_leave:  # those that come need totals, even by no score at all
            self._rank(stale)

    def best(self, pod: Pod) -> tuple[int, int]:
        """Return the row of the best candidate for a pod, and its total; there must be one."""
        total: int = self.totals.item(self.totals.argmax())
        (tied,) = (self.totals == total).nonzero()
        keys = self._hashes.take(tied) * np.uint64(tie_factor(pod))
        keys &= np.uint64(tie_mask(total, self.count))
        return self._rows.item(tied[keys.argmin()]), total

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
            if (column.has_other_ends if column in self.dynamic else column.renews)(self._inside)
        ]

    def advance(self, row: int, table: LookaheadTable, at: int) -> bool:
        """Update a node that took one more pod by its next state.

        Returns:
            Whether that is possible; see `update`.
        """
        if self._passes is None and not self._coupled:  # else points move with most pods
            if table.ends_version != self.ends_version:
                places = self.place_of.take(table.rows)
                table.rate(self.dynamic, places, self.static_points.take(places))
                table.ends_version = self.ends_version
            if table.is_between[at]:
                self._move(table, at)
                return True
        passes = table.passes[at : at + 1]
        return self.update(np.array([row]), passes, [raw[at : at + 1][passes] for raw in table.raw])

    def _move(self, table: LookaheadTable, at: int) -> None:
        """Move a candidate that remains one to a state between the ends."""
        place = table.places[at]
        self.totals[place] = table.totals[at]
        states = zip(self.dynamic, table.raw, table.points, strict=True)
        left = [column for column, raw, points in states if column.move(place, raw[at], points[at])]
        stale = [column for column in left if column.has_other_ends(self._inside)]
        if stale:
            self._rank(stale)

    def _rank(self, columns: Sequence[ScoreColumn]) -> None:
        """Give all candidates points by some scores, and the totals of all scores."""
        if self.count:
            for column in columns:
                column.normalize(self._inside)
        self._add_up(is_static_known=not any(column in self._static for column in columns))

    def _add_up(self, *, is_static_known: bool) -> None:
        """Give all candidates the totals of all scores."""
        self.ends_version += 1
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


class Placements:
    """The cluster with the pods of a batch.

    Pods are counted when somebody looks.
    """

    def __init__(self, view: ClusterView) -> None:
        self.rows: list[int] = []  # of the pods, in order
        self.sociable = 0  # how many of them want others near or away
        self._pods: list[Pod] = []
        self._whole = WhatIf(view)
        self._in_whole = 0  # pods that are counted there
        self._waiting_for: set[Hashable] = set()  # templates of those that are not
        self._nodes = len(view)

    @property
    def what_if(self) -> WhatIf:
        """The whole cluster, right until the next pod is placed."""
        new, self._in_whole = slice(self._in_whole, None), len(self.rows)
        if self._pods[new]:
            self._whole.place_each(self._pods[new], self.rows[new])
            self._waiting_for.clear()
        return self._whole

    def add(self, pod: Pod, row: int, template: Hashable | None = None) -> bool:
        """Place a pod.

        Returns:
            Whether it counts there unlike others of its template; see `WhatIf.is_reported`.
        """
        is_reported = self._whole.is_reported(pod, row)
        self.rows.append(row)
        if (
            pod.pod_anti_affinity
            or pod.pod_affinity
            or pod.preferred_pod_affinity
            or pod.preferred_pod_anti_affinity
        ):
            self.sociable += 1
        self._pods.append(pod)
        self._waiting_for.add(None if is_reported else template)
        return is_reported

    def ahead(
        self, pod: Pod, template: Hashable, rows: NDArray[np.intp], counts: IntColumn
    ) -> ClusterView:
        """Return rows as they would be if so many more pods of a template were on each.

        See `WhatIf.ahead`, also for what `counts` is. Pods of the template that are placed are not
        counted one by one for it.
        """
        if not self._waiting_for <= {template}:
            return self.what_if.ahead(pod, rows, counts)
        waiting = np.array(self.rows[self._in_whole :], np.intp)
        placed = np.bincount(waiting, minlength=self._nodes)
        return self._whole.ahead(pod, rows, counts + placed.take(rows))


_LEAST_ROWS: Final = 16
_MOST_ROWS: Final = 512
_FIRST_DEPTH: Final = 3


class LookAhead:
    """States of nodes that take one pod of a template after the other.

    When a node is not known, others that are likely to be needed are computed with it.
    """

    def __init__(self, rules: TemplateRules, ranking: Ranking, pods: int) -> None:
        self._rules = rules
        self._ranking = ranking
        self._known: dict[int, tuple[LookaheadTable, int, int]] = {}  # the next states
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

        Returns:
            Whether that is possible; see `Ranking.update`.
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
        return self._ranking.advance(row, table, at)

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
        table = LookaheadTable(rows, *judge_states(self._rules, view))
        self._depths[row] = 2 * int(depths[0])
        for node, first, end in zip(nodes, firsts.tolist(), ends.tolist(), strict=True):
            self._known[node] = table, first, end


class Template:
    """The nodes for the pods of one template, as the pods placed so far leave them.

    Attributes:
        decision: for the first pod.
        ranking: of the nodes, as of the last `best`.
    """

    def __init__(self, rules: TemplateRules, placements: Placements, pods: int) -> None:
        self._rules = rules
        self._pods = pods
        self._placements = placements
        self._sociable = placements.sociable
        self._begin()
        self.decision = self.ranking.decision

    def _begin(self) -> None:
        view = self._placements.what_if.view
        self.ranking = Ranking(self._rules, view)
        self._ahead = LookAhead(self._rules, self.ranking, self._pods)
        self._seen = len(self._placements.rows)
        self._own = False  # whether the first pod placed since then is of this template

    def _check_rules(self) -> None:
        """Do nothing if the same rules apply, and depend on other nodes, as at first."""
        if self._sociable != self._placements.sociable:
            self._rules.check(self._placements.what_if.view)
            self._sociable = self._placements.sociable

    def best(self, pod: Pod) -> tuple[int, int] | None:
        """Return row and total of the best node for a pod of the template, None for none."""
        self._refresh(pod)
        return self.ranking.best(pod) if self.ranking.count else None

    def _refresh(self, pod: Pod) -> None:
        """Bring the ranking up to date for the next pod."""
        self._check_rules()
        placed = self._placements.rows
        new = len(placed) - self._seen
        if not new:
            return
        if self._own and new == 1:  # nothing but the latest pod of the template was placed
            can = self._ahead.take_up(placed[-1], pod, self._placements)
        else:
            rows = [*set(placed[-new:])]
            part = self._placements.what_if.part(np.array(rows))
            passes, raw = judge_states(self._rules, part)
            self._ahead.forget(rows)
            can = self.ranking.update(np.array(rows), passes, [each[passes] for each in raw])
        self._own, self._seen = False, len(placed)
        if not can:
            self._begin()
        elif not self._rules.is_local:
            self.ranking.look_around(self._rules, self._placements.what_if.view)

    def place(self, pod: Pod, row: int) -> None:
        """Place the pod that `best` was asked for last."""
        if self._placements.add(pod, row, self._rules):
            self._ahead.forget([row])
        self._own = True
