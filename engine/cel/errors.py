"""Errors of expressions: mistakes found at load, and failures of an evaluation."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from engine.errors import StowplanError


@dataclass(frozen=True, slots=True, order=True)
class CelProblem:
    """A mistake in an expression, found at load.

    `offset` counts characters of the source from 0; `hint` may be empty.
    """

    offset: int
    message: str
    hint: str = ""

    def __str__(self) -> str:
        """Return the mistake on one line."""
        hint = f" ({self.hint})" if self.hint else ""
        return f"{self.message} at offset {self.offset}{hint}"


class CelProblemsError(StowplanError):
    """An expression that cannot be used, with every mistake found in it."""

    def __init__(self, problems: Sequence[CelProblem]) -> None:
        super().__init__("; ".join(str(problem) for problem in problems))
        self.problems = tuple(problems)


class CelSyntaxError(CelProblemsError):
    """A text that is not CEL, or is beyond the limits; it reports a single mistake."""

    def __init__(self, offset: int, message: str, hint: str = "") -> None:
        super().__init__((CelProblem(offset, message, hint),))


class CelError(StowplanError):
    """A failure that the language defines; `&&`, `||`, `all` and `exists` absorb it."""


class BudgetExhaustedError(CelError):
    """An evaluation that exceeded its budget; no operator absorbs it."""
