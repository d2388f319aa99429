"""What one evaluation, or a set of them, may cost: steps, result sizes and time."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from itertools import islice
from typing import Final

from engine.cel.errors import BudgetExhaustedError

MAX_ITERATIONS: Final = 10_000
MAX_TEXT: Final = 65_536  # characters of a string, or bytes
MAX_ITEMS: Final = 10_000  # elements of a list, or entries of a map

_CHARACTERS_PER_STEP: Final = 1024  # so that a budget also bounds the memory of all results
_ITEMS_PER_STEP: Final = 64
_STEPS_BETWEEN_LOOKS: Final = 100  # at the clock; Kubernetes looks as often


class Budget:
    """A mutable account of work; share one among evaluations that have to fit in it together.

    Functions whose work or result grows beyond their arguments charge it first: `spend` for steps,
    `check_text` and `check_items` before a result of that size is built; large results also cost
    steps. `expired` is asked now and then whether the time is up; without it there is no limit.
    """

    __slots__ = ("_expired", "_look_at", "_max_items", "_max_text", "_steps_left")

    def __init__(
        self,
        iterations: int = MAX_ITERATIONS,
        *,
        max_text: int = MAX_TEXT,
        max_items: int = MAX_ITEMS,
        expired: Callable[[], bool] | None = None,
    ) -> None:
        self._steps_left = iterations
        self._max_text = max_text
        self._max_items = max_items
        self._expired = expired
        self._look_at = iterations - _STEPS_BETWEEN_LOOKS

    @property
    def steps_left(self) -> int:
        """How many more iterations are paid for."""
        return max(self._steps_left, 0)

    def spend(self, steps: int = 1) -> None:
        """Pay for `steps` iterations of a loop.

        Raises:
            BudgetExhaustedError: the budget does not cover them, or the time is up.
        """
        self._steps_left -= steps
        if self._steps_left < 0:
            raise BudgetExhaustedError("the expression needs more iterations than it may use")
        if self._expired is not None and self._steps_left <= self._look_at:
            self._look_at = self._steps_left - _STEPS_BETWEEN_LOOKS
            if self._expired():
                raise BudgetExhaustedError("the expression ran out of time")

    def check_text(self, length: int) -> None:
        """Refuse a string or bytes result longer than allowed, or pay for it.

        Raises:
            BudgetExhaustedError: `length` is over the cap, or the budget does not cover it.
        """
        if length > self._max_text:
            raise BudgetExhaustedError(f"a text of {length} characters is over {self._max_text}")
        if length >= _CHARACTERS_PER_STEP:
            self.spend(length // _CHARACTERS_PER_STEP)

    def check_items(self, count: int) -> None:
        """Refuse a list or map result with more entries than allowed, or pay for it.

        Raises:
            BudgetExhaustedError: `count` is over the cap, or the budget does not cover it.
        """
        if count > self._max_items:
            raise BudgetExhaustedError(f"a result of {count} items is over {self._max_items}")
        if count >= _ITEMS_PER_STEP:
            self.spend(count // _ITEMS_PER_STEP)

    def join(self, pieces: Iterable[str]) -> str:
        """Return the pieces as one text, stopping as soon as it is too long.

        Raises:
            BudgetExhaustedError: see `check_text`.
        """
        taken: list[str] = []
        length = 0
        for piece in pieces:
            taken.append(piece)
            length += len(piece)
            if length > self._max_text:
                break
        self.check_text(length)
        return "".join(taken)

    def collect(self, items: Iterable[object]) -> list[object]:
        """Return the items as a list, stopping as soon as there are too many.

        Raises:
            BudgetExhaustedError: see `check_items`.
        """
        taken = list(islice(items, self._max_items + 1))
        self.check_items(len(taken))
        return taken
