"""Bounds of an expression: its size when it is read, its work and results when it is evaluated."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from itertools import islice
from typing import Final

from engine.errors import BudgetExhaustedError


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """Size limits of one expression, enforced while it is parsed and checked.

    Attributes:
        source: characters of source text.
        depth: levels of the syntax tree, and of brackets in the source.
        nodes: nodes of the syntax tree other than literals, which `source` bounds.
        nesting: loops within loops; a chain (`a.filter(..).map(..)`) is not nested.
        elements: elements of a list literal, or entries of a map literal.
    """

    source: int = 8192
    depth: int = 50
    nodes: int = 500
    nesting: int = 2
    elements: int = 1000


DEFAULT_LIMITS: Final = Limits()

MAX_ITERATIONS: Final = 10_000
MAX_TEXT: Final = 65_536  # characters of a string, or bytes
MAX_ITEMS: Final = 10_000  # elements of a list, or entries of a map

_CHARACTERS_PER_STEP: Final = 1024  # so that a budget also bounds the memory of all results
_ITEMS_PER_STEP: Final = 64
_STEPS_BETWEEN_CHECKS: Final = 100  # of the clock; as often as Kubernetes


class Budget:
    """A mutable allowance of work, shared by evaluations that must fit in it together.

    A function whose work or result outgrows its arguments charges it first: `spend` for steps,
    `check_text` and `check_items` before it builds a result of that size. Large results cost steps
    too. `expired` is polled for the end of the time; without it time is unlimited. Operations on
    columns have an allowance of their own, `column_steps`, without which they are free: one takes a
    hundred times as long as an iteration, and how many there are is known before.
    """

    __slots__ = (
        "_check_at",
        "_column_steps_left",
        "_expired",
        "_iterations",
        "_max_items",
        "_max_text",
        "_steps_left",
    )

    def __init__(
        self,
        iterations: int = MAX_ITERATIONS,
        *,
        max_text: int = MAX_TEXT,
        max_items: int = MAX_ITEMS,
        column_steps: int | None = None,
        expired: Callable[[], bool] | None = None,
    ) -> None:
        self._iterations = self._steps_left = iterations
        self._max_text = max_text
        self._max_items = max_items
        self._column_steps_left = column_steps
        self._expired = expired
        self._check_at = iterations - _STEPS_BETWEEN_CHECKS

    @property
    def is_charged(self) -> bool:
        """Whether any step was charged."""
        return self._steps_left != self._iterations

    @property
    def limits_columns(self) -> bool:
        """Whether operations on columns are charged at all."""
        return self._column_steps_left is not None

    @property
    def steps_left(self) -> int:
        """Iterations that are left."""
        return max(self._steps_left, 0)

    def spend(self, steps: int = 1) -> None:
        """Charge `steps` iterations of a loop.

        Raises:
            BudgetExhaustedError: the budget does not cover them, or the time is up.
        """
        self._steps_left -= steps
        if self._steps_left < 0:
            raise BudgetExhaustedError("the expression needs more iterations than it may use")
        if self._expired is not None and self._steps_left <= self._check_at:
            self._check_at = self._steps_left - _STEPS_BETWEEN_CHECKS
            if self._expired():
                raise BudgetExhaustedError("the expression ran out of time")

    def spend_on_columns(self, steps: int) -> None:
        """Charge an operation on columns, about a microsecond a step.

        Raises:
            BudgetExhaustedError: the allowance does not cover it.
        """
        if self._column_steps_left is None:
            return
        self._column_steps_left -= steps
        if self._column_steps_left < 0:
            raise BudgetExhaustedError("the expressions take longer for all nodes than they may")

    def check_text(self, length: int) -> None:
        """Refuse a string or bytes result longer than allowed, or charge for it.

        Raises:
            BudgetExhaustedError: `length` is over the cap, or the budget does not cover it.
        """
        if length > self._max_text:
            raise BudgetExhaustedError(f"a text of {length} characters is over {self._max_text}")
        if length >= _CHARACTERS_PER_STEP:
            self.spend(length // _CHARACTERS_PER_STEP)

    def check_items(self, count: int) -> None:
        """Refuse a list or map result with more entries than allowed, or charge for it.

        Raises:
            BudgetExhaustedError: `count` is over the cap, or the budget does not cover it.
        """
        if count > self._max_items:
            raise BudgetExhaustedError(f"a result of {count} items is over {self._max_items}")
        if count >= _ITEMS_PER_STEP:
            self.spend(count // _ITEMS_PER_STEP)

    def join(self, pieces: Iterable[str]) -> str:
        """Concatenate the pieces, stopping as soon as the text is too long.

        Raises:
            BudgetExhaustedError: see `check_text`.
        """
        joined: list[str] = []
        length = 0
        for piece in pieces:
            joined.append(piece)
            length += len(piece)
            if length > self._max_text:
                break
        self.check_text(length)
        return "".join(joined)

    def collect(self, items: Iterable[object]) -> list[object]:
        """Collect the items in a list, stopping as soon as there are too many.

        Raises:
            BudgetExhaustedError: see `check_items`.
        """
        collected = list(islice(items, self._max_items + 1))
        self.check_items(len(collected))
        return collected
