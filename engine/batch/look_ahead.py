"""The nodes for the pods of one template, as the pods placed so far leave them."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import Final

import numpy as np
from numpy.typing import NDArray

from engine.batch.ranking import LookaheadTable, Ranking
from engine.batch.template_rules import TemplateRules, judge_states
from engine.model.pod import Pod
from engine.view import ClusterView, IntColumn, WhatIf


class Placements:
    """The cluster with the pods of a batch.

    Pods are counted when somebody looks.

    Attributes:
        rows: of the pods, in order.
        sociable: how many of them want others near or away.
    """

    def __init__(self, view: ClusterView) -> None:
        self.rows: list[int] = []
        self.sociable = 0
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
