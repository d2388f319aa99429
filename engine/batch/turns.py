"""Turns of templates that come next, foretold together and then taken one by one."""

from __future__ import annotations

from collections.abc import Sequence

from engine.batch.placements import Placements
from engine.batch.stack import Stack
from engine.batch.template import Template
from engine.model.pod import Pod


class Turns:
    """Where the next pods will go, as far as each goes where it is foretold to.

    A pod is foretold to go to the node that is the best by now, but for those of the pods before
    it. INVARIANT: so no node is foretold twice, and its state is known if the pod goes there.

    Args:
        coming: templates of a stack, with their next pods in order; at least one. None but the last
            pod keeps others away.
        stack: up to date.
        placements: the pods placed so far.
        position: that of the first of these pods in the batch; the others follow it.

    Attributes:
        taken: how many turns are over.
    """

    def __init__(
        self,
        coming: Sequence[tuple[Template, Pod]],
        stack: Stack,
        placements: Placements,
        position: int,
    ) -> None:
        self.taken = 0
        self._stack = stack
        self._coming = coming
        self._placed = placements.rows
        self._base = len(placements.rows)
        self._position = position
        self._best: list[tuple[int, int] | None] = []  # of each turn
        self._before: list[int] = []  # how many pods before each have a node
        rows: list[int] = []
        pods: list[Pod] = []
        for template, pod in coming:
            template.ranking.settle()
            best = template.ranking.best_but(rows, pod)
            if best is None and template.ranking.count:  # each of its candidates takes a pod
                break
            self._best.append(best)
            self._before.append(len(rows))
            if best is not None and not pod.pod_anti_affinity:
                rows.append(best[0])
                pods.append(pod)
        self._foretold = stack.foretell(rows, pods) if rows else None
        self._is_disturbed = [False] * len(self._best)
        if self._foretold is not None:
            totals = [-1 if best is None else best[1] for best in self._best]
            templates = [template for template, _ in coming[: len(totals)]]
            self._is_disturbed = stack.disturbed(self._foretold, templates, totals, self._before)

    def reach(self, position: int) -> bool:
        """Return whether the pod at a position goes where it is foretold to.

        The ranking of its template is brought up to date where that is not sure otherwise: by then
        the node may have another total, and be the best all the same.
        """
        turn = self.taken
        if position - self._position != turn or turn >= len(self._best):
            return False
        if len(self._placed) - self._base != self._before[turn]:
            return False
        if self._foretold is None or not self._is_disturbed[turn]:
            return True
        template, pod = self._coming[turn]
        if not self._stack.take_up_alone(template, self._foretold, self._before[turn]):
            return False
        foretold, self._best[turn] = self._best[turn], template.best([pod], 0)
        return _row_of(self._best[turn]) == _row_of(foretold)

    def take(self) -> tuple[int, int] | None:
        """Return row and total for the pod that was reached last, None if no node can take it."""
        best = self._best[self.taken]
        self.taken += 1
        self._stack.turns += 1
        return best

    def end(self) -> None:
        """Let all templates take up what came true."""
        if self._foretold is not None:
            placed = len(self._placed) - self._base
            count = min(placed, len(self._foretold.rows))
            self._stack.come_true(self._foretold, count, self._base + count)


def _row_of(best: tuple[int, int] | None) -> int | None:
    return None if best is None else best[0]
