"""What can go wrong with an expression: mistakes in its text, and failures of one evaluation."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from engine.errors import StowplanError


@dataclass(frozen=True, slots=True, order=True)
class CelProblem:
    """One mistake in an expression, found when it is loaded.

    `offset` counts characters of the source from 0; `hint` is empty when there is no advice.
    """

    offset: int
    message: str
    hint: str = ""

    def __str__(self) -> str:
        """Return the mistake on one line."""
        hint = f" ({self.hint})" if self.hint else ""
        return f"{self.message} at offset {self.offset}{hint}"


class CelProblemsError(StowplanError):
    """An expression that cannot be used; carries every mistake found in it."""

    def __init__(self, problems: Sequence[CelProblem]) -> None:
        super().__init__("; ".join(str(problem) for problem in problems))
        self.problems = tuple(problems)


class CelSyntaxError(CelProblemsError):
    """A text that is not CEL, or one beyond the limits of what we read; a single mistake."""

    def __init__(self, offset: int, message: str, hint: str = "") -> None:
        super().__init__((CelProblem(offset, message, hint),))


class CelError(StowplanError):
    """An evaluation that failed as the language says; `&&`, `||`, `all` and `exists` absorb it."""


class BudgetExhaustedError(CelError):
    """An evaluation that went beyond its budget; nothing in the expression can absorb it."""
