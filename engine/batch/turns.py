"""Templates whose turns come next, judged together before it is known where their pods go."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import count

import numpy as np

from engine.batch.node_states import Judged, judge_states
from engine.batch.placements import Placements
from engine.batch.template import Template
from engine.model.pod import Pod


class Turns:
    """What templates say, each at its turn, of the nodes that took pods since its last one.

    It is foretold where pods will go: to the nodes that were the best at the last turns of their
    templates, but for those that took pods since, or will. INVARIANT: so no node is foretold twice,
    and its state is right if the pod has gone there. Once a pod has gone elsewhere, no more is
    known.

    Args:
        coming: templates, all different, with the next pod of each; at least one.
        placements: the pods placed so far.
        position: that of the first of these pods in the batch; the others follow it.

    Attributes:
        used: how many turns it was asked for.
    """

    def __init__(
        self, coming: Sequence[tuple[Template, Pod]], placements: Placements, position: int
    ) -> None:
        self.used = 0
        self._position = position
        self._placed = placements.rows
        self._base = len(placements.rows)
        self._foretold: list[int] = []
        for template, pod in coming[:-1]:
            row = template.ranking.best_but(self._placed[template.seen :] + self._foretold, pod)
            if row is None or pod.pod_anti_affinity:  # which changes more than the node it is on
                break
            self._foretold.append(row)
        turns = coming[: len(self._foretold) + 1]
        known = {*self._placed[min(template.seen for template, _ in turns) :]}
        self._columns = {row: column for column, row in enumerate(known)}
        self._known = len(known)
        view = placements.what_if.part_with(
            np.array([*known, *self._foretold], np.intp), [pod for _, pod in turns[:-1]]
        )
        self._states = judge_states([template.rules for template, _ in turns], view)

    def reach(self, position: int) -> bool:
        """Return whether the pod at a position is among them, and those before it went as foretold.

        Where a pod was not placed, those after it did not.
        """
        placed, turn = self._placed[self._base :], position - self._position
        return len(placed) == turn < len(self._states) and placed == self._foretold[:turn]

    def judged(self, position: int, rows: Sequence[int]) -> Judged:
        """Return what the template of a turn says of rows, as they are by then.

        Args:
            position: of the pod, which it reaches.
            rows: that took pods since the last turn of the template.

        Raises:
            UnevenError: some score could not be evaluated.
        """
        self.used += 1
        turn = position - self._position
        self._columns.update(zip(self._foretold[:turn], count(self._known), strict=False))
        return self._states[turn].at(np.array([self._columns[row] for row in rows]))
