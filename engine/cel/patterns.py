"""Regular expressions: always RE2, so that matching time is linear in the text.

There is no fallback to Python's `re`: its backtracking would let a policy stop the process.
"""

from __future__ import annotations

from typing import Final

import re2

from engine.cel.errors import CelError

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

    def occurs_in(self, text: str) -> bool:
        """Return whether the pattern matches anywhere in `text`."""
        return self.regex.search(encode(text)) is not None


def encode(text: str) -> bytes:
    """Return `text` as the UTF-8 that patterns search.

    Raises:
        CelError: half a surrogate pair, which JSON can smuggle into a string.
    """
    try:
        return text.encode()
    except UnicodeEncodeError as error:
        raise CelError("a string that is not valid Unicode") from error


def _reason(error: Exception) -> str:
    reason = error.args[0] if error.args else error
    return reason.decode(errors="replace") if isinstance(reason, bytes) else str(reason)
