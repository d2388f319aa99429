"""The step of a plan that looks at the elements of a list in each row."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from engine.cel.ast import HowMany
from engine.cel.evaluate import new_frame
from engine.cel.vector.columns import Bools, Column, NotVectorizableError, Path
from engine.cel.vector.kernels import LoopAccumulator, as_bool
from engine.cel.vector.steps import EvalContext, Step

TURNS: Final = 8
"""Turns that are assumed for every loop when costs are estimated."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Loop(Step):
    """`all`, `exists` or `exists_one` over a list of each row; the predicate is `below`.

    It is evaluated for one element of every row at a time, so as often as the longest list is long.

    Attributes:
        path: the list.
        paths: the leaves that it reads, the list among them.
        variable: the name of an element.
        how_many: the elements that must satisfy the predicate.
        reads_request: whether the predicate depends on more than rows.
    """

    path: Path
    paths: tuple[Path, ...]
    variable: str
    how_many: HowMany
    reads_request: bool

    def _column(self, context: EvalContext, mask: Bools | None) -> Column:
        """Combine the predicate of all elements; taken from the cache if it reads rows alone."""
        if self.reads_request:
            return self._evaluate(context, mask)
        return context.table.remember(
            (type(self), self.text),
            self.paths,
            lambda rows: self._evaluate(EvalContext(rows, new_frame({}, None)), None),
            for_all_requests=True,
        )

    def steps(self, rows: int) -> int:
        """Return what it costs of a budget where lists are of usual length."""
        return self._own_steps(rows) + TURNS * sum(step.steps(rows) for step in self.below)

    def _evaluate(self, context: EvalContext, mask: Bools | None) -> Column:
        found = context.table.elements(self.path, self.variable)
        if found is None:
            raise NotVectorizableError
        (predicate,) = self.below
        count = LoopAccumulator(self.how_many, len(context.table))
        for table, present in found:
            rows = present if mask is None else present & mask
            count.add(as_bool(predicate.column(EvalContext(table, context.frame), rows)), present)
        return count.result()
