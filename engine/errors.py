"""The error tree of the engine: every failure that a caller may handle differently.

Messages are lower case, without a full stop, with the user's text in backticks. A mistake in a file
is a `Diagnostic` with a place and, if known, a hint; all mistakes are reported together.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal


class StowplanError(Exception):
    """The root of every error raised by this project on purpose."""


class QuantityError(StowplanError, ValueError):
    """A text that is not a Kubernetes quantity, or one outside the accepted range.

    `kind` names the part at fault as Kubernetes does: the whole text (format), its number
    (numeric), or its suffix.
    """

    def __init__(self, message: str, *, kind: Literal["format", "numeric", "suffix"]) -> None:
        super().__init__(message)
        self.kind = kind


class QuotaUndecidedError(StowplanError):
    """It is unknown for now whether a pod fits its quotas, so it must not be admitted."""


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


@dataclass(frozen=True, slots=True, kw_only=True)
class Diagnostic:
    """One mistake in a file, with its place and a hint.

    `line` and `column` count from 1; 0 means "the file as a whole". `field` is the path of the
    value where the file is an object of the API, such as `spec.filters[0].expression`, else empty.
    """

    file: str
    message: str
    line: int = 0
    column: int = 0
    source: str = ""
    hint: str = ""
    field: str = ""

    def __str__(self) -> str:
        """Return the mistake as `file:line:column: field: message`, source line, caret, hint."""
        place = f"{self.file}:{self.line}:{self.column}" if self.line else self.file
        field = f"{self.field}: " if self.field else ""
        lines = [f"{place}: {field}{self.message}"]
        if self.source:
            lines += [f" | {self.source}", f" | {'.' * (self.column - 1)}^"]
        if self.hint:
            lines.append(f"hint: {self.hint}")
        return "\n".join(lines)


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """A place in a file.

    Attributes:
        file: the name of the file in diagnostics.
        line: from 1; 0 means "the file as a whole".
        column: from 1.
        source: the line itself.
        field: the path of the value in an object of the API, such as `spec.filters[0]`.
    """

    file: str
    line: int = 0
    column: int = 0
    source: str = ""
    field: str = ""

    def problem(self, message: str, hint: str = "") -> Diagnostic:
        """Return the diagnostic of a mistake at this place."""
        return Diagnostic(
            file=self.file,
            message=message,
            line=self.line,
            column=self.column,
            source=self.source,
            hint=hint,
            field=self.field,
        )


class InvalidFileError(StowplanError):
    """One or more files cannot be used; carries every mistake found in all of them."""

    def __init__(self, problems: Sequence[Diagnostic]) -> None:
        super().__init__("\n".join(str(problem) for problem in problems))
        self.problems = tuple(problems)


class PatchError(StowplanError):
    """A patch that must not be sent: it does not apply to the object."""


_CLOSE_WORDS = 3
_SHORTEST_BEGINNING = 3  # letters, of a word that is cut short
_ALIKE = 0.8  # of two words that begin differently, as `sage` and `usage`


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """Return a hint that names the known word most like `word`, "" when none is.

    Who mistypes a word rarely mistypes its first letter: words that begin differently must be more
    alike.
    """
    candidates = list(known)
    alike = [other for other in candidates if other.casefold() == word.casefold()]
    close = (
        other
        for other in difflib.get_close_matches(word, candidates, n=_CLOSE_WORDS)
        if other[:1].lower() == word[:1].lower()
        or difflib.SequenceMatcher(None, other, word).ratio() >= _ALIKE
    )
    begun = [other for other in candidates if other.casefold().startswith(word.casefold())]
    is_short = len(begun) == 1 and len(word) >= _SHORTEST_BEGINNING
    found = next(iter(alike), "") or next(close, "") or (begun[0] if is_short else "")
    return f"did you mean `{found}`?" if found else ""


def counted(number: int, name: str, plural: str = "") -> str:
    """Return a number of things: `1 pod`, `1,200 pods`, `2 policies`."""
    return f"{number:,} {name if number == 1 else plural or f'{name}s'}"
