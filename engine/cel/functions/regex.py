"""Kubernetes' regex library: `find` and `findAll`.

Source: apiserver `pkg/cel/library/regex.go`; matches are those of Go's `FindAllString`.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from typing import Final

from engine.cel.budget import Budget
from engine.cel.functions.registry import Overload
from engine.cel.functions.standard import pattern_at
from engine.cel.patterns import Pattern, encode
from engine.cel.values import INT_MAX, LIST, STRING


def find(text: str, pattern: Pattern) -> str:
    """Return the leftmost match, or an empty string."""
    match = pattern.regex.search(encode(text))
    return match.group().decode(errors="replace") if match else ""


def find_all(budget: Budget, text: str, pattern: Pattern, limit: int = INT_MAX) -> list[object]:
    """Return the non-overlapping matches from left to right; a negative `limit` means all.

    An empty match counts only at a character boundary that does not touch the match before it.

    Raises:
        BudgetExhaustedError: too long a text, or too many matches.
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


_PATTERN: Final = pattern_at(1)

FUNCTIONS: Final = (
    Overload("find", (str, str), find, member=True, result=STRING, preparation=_PATTERN),
    Overload(
        "findAll",
        (str, str),
        find_all,
        member=True,
        result=LIST,
        budgeted=True,
        preparation=_PATTERN,
    ),
    Overload(
        "findAll",
        (str, str, int),
        find_all,
        member=True,
        result=LIST,
        budgeted=True,
        preparation=_PATTERN,
    ),
)
