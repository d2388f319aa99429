"""Regular expressions, always RE2, and Kubernetes' regex library: `find` and `findAll`.

RE2's matching time is linear in the text; there is no fallback to Python's `re`, whose backtracking
would let a policy stop the process. Source of the library: apiserver `pkg/cel/library/regex.go`;
matches are those of Go's `FindAllString`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from contextlib import suppress
from itertools import islice
from typing import Any, Final

import numpy as np
import re2
from numpy.typing import NDArray

from engine.cel.budget import Budget
from engine.cel.errors import CelError
from engine.cel.functions.byte_sequence import ByteSequence, byte_sequence
from engine.cel.functions.registry import Overload, Preparation
from engine.cel.values import INT_MAX, LIST, STRING

MAX_PATTERN: Final = 256  # characters
_MAX_MEMORY: Final = 4 << 20  # bytes for one compiled pattern and its automaton


def _options() -> re2.Options:
    options = re2.Options()
    options.max_mem = _MAX_MEMORY
    options.log_errors = False  # RE2 would write to standard error
    return options


_OPTIONS: Final = _options()
_LINE_OPTIONS: Final = _options()
_LINE_OPTIONS.never_capture = True  # of groups, which takes a slower engine than the DFA


_TOKEN: Final = re.compile(
    r"""(?P<same>
            [\w\-:/@, =%#~<>!&;'"]|[^\x00-\x7f]  # characters that stand for themselves
            |\\[.\-+*?()\[\]{}|^$/dwSbB]
            |[.*+?^$|)]
            |\((?!\?)|\(\?i?:|\(\?i\)|\(\?P?<[A-Za-z]\w*>
            |\{\d+(?:,\d*)?\}
        )
        |\\(?P<escape>[sDWAz])
        |\[(?P<negated>\^?)(?P<members>(?:
            [\w\-.:/@, =%#~<>!&;'"+*?(){}|$]|[^\x00-\x7f]
            |\\[.\-+*?()\[\]{}|^$/dws]
        )+)\]""",
    re.VERBOSE | re.ASCII,
)
"""What patterns are made of that can be made not to match a newline."""

_ESCAPES_WITHIN_LINE: Final = {
    "s": r"[\t\f\r ]",
    "D": r"[^0-9\n]",
    "W": r"[^0-9A-Za-z_\n]",
    "A": "^",
    "z": "$",
}

_MOST_JOINED: Final = 2 << 20  # characters of texts that are searched together


class Pattern:
    """A compiled regular expression over UTF-8."""

    __slots__ = ("_lines", "_source", "regex")

    def __init__(self, source: str) -> None:
        """Compile `source`.

        Raises:
            CelError: it is too long, or RE2 does not accept it.
        """
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
        self._source = source
        self._lines: Any = None  # finds lines that match, once it is needed

    def occurs_in(self, text: str) -> bool:
        """Return whether the pattern matches anywhere in `text`."""
        return self.regex.search(encode(text)) is not None

    def occurs_in_each(self, texts: Sequence[str]) -> NDArray[np.bool_] | None:
        """Return whether the pattern matches anywhere in each of some texts, shape (n,).

        All texts are searched in one go, as lines: a call for each takes longer than the search.
        None if that is not possible, because of the pattern or because of a text.
        """
        if not texts or sum(map(len, texts)) > _MOST_JOINED:
            return None
        lines = self._of_lines()
        if lines is None:
            return None
        try:
            data = "\n".join([*texts, ""]).encode()
        except UnicodeEncodeError:
            return None
        codes = np.frombuffer(data, np.uint8)
        ends = np.flatnonzero(codes == ord("\n"))
        if len(ends) != len(texts):
            return None
        if isinstance(lines, ByteSequence):
            return lines.matching_lines(codes, ends)
        runs = np.array([match.span() for match in lines.finditer(data)], np.int64).reshape(-1, 2)
        changes = np.zeros(len(texts) + 1, np.int64)
        changes[np.searchsorted(ends, runs[:, 0])] = 1
        changes[np.searchsorted(ends, runs[:, 1])] = -1  # no run touches the next
        return np.cumsum(changes[:-1]) > 0

    def _of_lines(self) -> Any:  # noqa: ANN401 (the binding has no types)
        """Return what finds the lines with a match, None if nothing does.

        It is a sequence of bytes, or the expression that matches runs of such lines.
        """
        if self._lines is None:
            self._lines = byte_sequence(self._source) or self._runs() or False
        return self._lines or None

    def _runs(self) -> Any:  # noqa: ANN401 (the binding has no types)
        pattern = _within_line(self._source)
        if pattern is not None:
            with suppress(re2.error):  # beyond the memory of one program
                return re2.compile(f"(?m)(?:^.*(?:{pattern}).*\n)+".encode(), _LINE_OPTIONS)
        return None


def _within_line(source: str) -> str | None:
    """Return a pattern that matches in a line of a text what `source` matches in that line alone.

    It has to be read with `(?m)`, as which its anchors are those of a line. None if there is none.
    """
    translated, at = [], 0
    while at < len(source):
        token = _TOKEN.match(source, at)
        if token is None:
            return None
        translated.append(_token_within_line(token))
        at = token.end()
    return "".join(translated)


def _token_within_line(token: re.Match[str]) -> str:
    if token["same"]:
        return token["same"]
    if token["escape"]:
        return _ESCAPES_WITHIN_LINE[token["escape"]]
    members = token["members"].replace(r"\s", r"\t\f\r ")
    return rf"[^{members}\n]" if token["negated"] else f"[{members}]"


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
