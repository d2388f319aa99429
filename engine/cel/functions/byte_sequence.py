"""Patterns of a few single characters in a row, such as `^gpu-` or `[05][.]`, sought by columns.

Most patterns on names and labels are of this kind. A search by RE2 costs a call for each run of
lines that match; here each character costs a few operations on the bytes of all texts.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import re2
from numpy.typing import NDArray

Bytes = NDArray[np.uint8]

_MOST: Final = 32  # characters in a row
_FEW: Final = 4  # bytes that are compared with one after the other
_ASCII: Final = bytes(range(128))
_NEWLINE: Final = ord("\n")

_CHARACTER: Final = re.compile(
    r"""[\w\-:/@, =%#~<>!&;'"]|\\[.\-+*?()\[\]{}|^$/dw\\]
        |\[(?:[\w\-.:/@, =%#~<>!&;'"+*?(){}|$]|\\[.\-+*?()\[\]{}|^$/dw\\])+\]""",
    re.VERBOSE | re.ASCII,
)
"""Expressions that match one character: always an ASCII one, and never a newline."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ByteSequence:
    """A pattern that matches so many bytes, each one of some ASCII characters.

    Attributes:
        sets: for each byte whether it is one of them, shape (m, 256); a newline never is.
        at_start: whether a match begins its line.
        at_end: whether a match ends it.
    """

    sets: NDArray[np.bool_]
    at_start: bool
    at_end: bool

    def matching_lines(self, data: Bytes, ends: NDArray[np.intp]) -> NDArray[np.bool_]:
        """Return whether each line has a match, shape (n,).

        Args:
            data: lines, each with a newline behind it.
            ends: the positions of the newlines.
        """
        at = self._candidates(data, ends)
        for offset, accepted in enumerate(self.sets):
            # INVARIANT: those left have matched up to here, so their newline is yet to come.
            at = at[accepted.take(data.take(at + offset))]
        if self.at_end:
            at = at[data.take(at + len(self.sets)) == _NEWLINE]
        return np.diff(np.searchsorted(at, ends), prepend=0) > 0

    def _candidates(self, data: Bytes, ends: NDArray[np.intp]) -> NDArray[np.intp]:
        """Return positions in order, all those of matches among them."""
        if self.at_start:
            return np.concatenate(([0], ends[:-1] + 1))
        if self.at_end:
            at = ends - len(self.sets)
        else:
            sizes = self.sets.sum(axis=1)
            rarest = int(sizes.argmin())
            at = np.flatnonzero(_are_in(data, self.sets[rarest])) - rarest
        return at[at >= 0]


def byte_sequence(source: str) -> ByteSequence | None:
    """Return a pattern as a sequence of bytes, None where it is not one.

    Args:
        source: a valid pattern of RE2, which is asked which characters each part of it accepts.
    """
    at = start = int(source.startswith("^"))
    sets: list[NDArray[np.bool_]] = []
    while at < len(source) and source[at:] != "$":
        character: Any = _CHARACTER.match(source, at)
        if character is None or len(sets) == _MOST:
            return None
        accepted = np.zeros(256, np.bool_)
        accepted[[found.start() for found in re2.finditer(character[0].encode(), _ASCII)]] = True
        sets.append(accepted)
        at = character.end()
    if not sets:
        return None
    return ByteSequence(sets=np.array(sets), at_start=bool(start), at_end=at < len(source))


def _are_in(data: Bytes, accepted: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """Return which bytes are accepted, shape of `data`."""
    members = np.flatnonzero(accepted).tolist()
    if len(members) > _FEW:
        return accepted.take(data)
    found = np.zeros(len(data), np.bool_)
    for member in members:
        found |= data == member
    return found
