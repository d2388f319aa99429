"""JSON that nests deeper than Python can follow.

Nothing that we read is nested deeply, but who may create a pod may write `managedFields` of 10,000
levels, as many as the API server reads. One such object must not keep all others from being read.
"""

from __future__ import annotations

import re
from typing import Final

import msgspec

MOST_LEVELS: Final = 200
"""Levels that are kept; objects of the API have some 20."""

# The next bracket outside a string. Possessive throughout: linear in the length of the text.
_TEXT: Final = rb'"[^"\\]*+(?:\\.[^"\\]*+)*+"'
_BRACKET: Final = re.compile(rb'[^"\[\]{}]*+(?:' + _TEXT + rb'[^"\[\]{}]*+)*+([\[\]{}])', re.DOTALL)


def shallow(data: bytes | msgspec.Raw) -> bytes:
    """Return JSON with null in place of what is below `MOST_LEVELS`; what is malformed stays so.

    Takes up to 1 us a bracket, so it is for what has failed to be decoded otherwise.
    """
    data = bytes(data)
    kept, levels, begin = [], 0, 0
    for match in _BRACKET.finditer(data):
        position = match.start(1)
        if data[position] in b"[{":
            levels += 1
            if levels == MOST_LEVELS + 1:
                kept += [data[begin:position], b"null"]
        else:
            if levels == MOST_LEVELS + 1:
                begin = position + 1
            levels -= 1
    if levels <= MOST_LEVELS:
        kept.append(data[begin:])
    return b"".join(kept)
