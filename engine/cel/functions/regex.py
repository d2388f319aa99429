"""Regular expressions, always RE2, and Kubernetes' regex library: `find` and `findAll`.

RE2's matching time is linear in the text; there is no fallback to Python's `re`, whose backtracking
would let a policy stop the process. Source of the library: apiserver `pkg/cel/library/regex.go`;
matches are those of Go's `FindAllString`.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from typing import Final

import re2

from engine.cel.budget import Budget
from engine.cel.functions.registry import Overload, Preparation
from engine.cel.values import INT_MAX, LIST, STRING
from engine.errors import CelError

MAX_PATTERN: Final = 256  # characters
_MAX_MEMORY: Final = 4 << 20  # bytes for one compiled pattern and its automaton


def _options() -> re2.Options:
    options = re2.Options()
    options.max_mem = _MAX_MEMORY
    options.log_errors = False  # RE2 would write to standard error
    return options


_OPTIONS: Final = _options()


class Pattern:
    """A compiled regular expression over UTF-8."""

    __slots__ = ("regex",)

    def __init__(self, source: str) -> None:
        if len(source) > MAX_PATTERN:
            raise CelError(
                f"a regular expression of {len(source)} characters is over {MAX_PATTERN}"
            )
        try:
            # INVARIANT: the pattern is bytes. With text on both sides the binding maps every
            # offset back to characters, which takes three times as long as the search itself.
            self.regex: Final = re2.compile(source.encode(), _OPTIONS)
        except (re2.error, UnicodeEncodeError) as error:
            raise CelError(f"`{source}` is not a regular expression: {_reason(error)}") from error

    def occurs_in(self, text: str) -> bool:
        return self.regex.search(encode(text)) is not None


def encode(text: str) -> bytes:
    """Return `text` in UTF-8.

    Raises:
        CelError: it has a lone surrogate, which JSON allows in a string.
    """
    try:
        return text.encode()
    except UnicodeEncodeError as error:
        raise CelError("a string that is not valid Unicode") from error


def _reason(error: Exception) -> str:
    reason = error.args[0] if error.args else error
    return reason.decode(errors="replace") if isinstance(reason, bytes) else str(reason)


PATTERN: Final = Preparation(position=1, prepare=Pattern)
"""The second argument as a regular expression."""


def find(text: str, pattern: Pattern) -> str:
    """Return the leftmost match, or an empty string."""
    match = pattern.regex.search(encode(text))
    return match.group().decode(errors="replace") if match else ""


def find_all(budget: Budget, text: str, pattern: Pattern, limit: int = INT_MAX) -> list[object]:
    """Return the non-overlapping matches from left to right; a negative `limit` means all.

    An empty match counts only at a character boundary that does not touch the match before it.
    """
    # A match costs up to a scan of the whole text, so both factors are bounded.
    budget.check_text(len(text))
    matches = _matches(budget, encode(text), pattern)
    return budget.collect(islice(matches, limit if limit >= 0 else None))


def _matches(budget: Budget, data: bytes, pattern: Pattern) -> Iterator[str]:
    end = -1
    for match in pattern.regex.finditer(data):
        budget.spend()
        start, previous_end, end = match.start(), end, match.end()
        if start != end or (start != previous_end and not _inside_character(data, start)):
            yield match.group().decode(errors="replace")


def _inside_character(data: bytes, position: int) -> bool:
    """Return whether `position` is inside the bytes of a UTF-8 character."""
    return position < len(data) and data[position] & 0xC0 == 0x80  # noqa: PLR2004 (10xxxxxx)


FUNCTIONS: Final = (
    Overload("find", (str, str), find, member=True, result=STRING, preparation=PATTERN),
    Overload(
        "findAll",
        (str, str),
        find_all,
        member=True,
        result=LIST,
        budgeted=True,
        preparation=PATTERN,
    ),
    Overload(
        "findAll",
        (str, str, int),
        find_all,
        member=True,
        result=LIST,
        budgeted=True,
        preparation=PATTERN,
    ),
)
