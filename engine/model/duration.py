"""Go duration texts (`5m0s`, `1.5h`), as Kubernetes writes them in metav1.Duration fields."""

from __future__ import annotations

import re
from typing import Final

from engine.errors import StowplanError

SECOND: Final = 1_000_000_000  # nanoseconds
_UNITS: Final = {
    "h": 3600 * SECOND,
    "m": 60 * SECOND,
    "s": SECOND,
    "ms": 1_000_000,
    "us": 1_000,
    "µs": 1_000,  # micro sign
    "μs": 1_000,  # Greek mu, as common
    "ns": 1,
}
_PART: Final = re.compile(r"(?=\.?\d)(\d*)(?:\.(\d*))?(h|ms|m|s|us|µs|μs|ns)", re.ASCII)
_DURATION: Final = re.compile(rf"([+-]?)((?:{_PART.pattern})+|0)", re.ASCII)
_MOST: Final = 2**63 - 1
_LONGEST: Final = 128  # characters: more than 64 bits need, fewer than `int` would refuse


class DurationError(StowplanError, ValueError):
    """A text that is not a Go duration."""


def nanoseconds_in(text: str) -> int | None:
    """Nanoseconds of a duration text, which may exceed 64 bits; None if it is not one.

    Fractions of a nanosecond are dropped, part by part, as Go does.
    """
    match = _DURATION.fullmatch(text) if len(text) <= _LONGEST else None
    if match is None:
        return None
    nanos = 0
    for whole, fraction, unit in _PART.findall(text):
        scale = _UNITS[unit]
        nanos += int(whole or 0) * scale + int(fraction or 0) * scale // 10 ** len(fraction)
    return -nanos if match[1] == "-" else nanos


def parse_duration(text: str) -> int:
    """Nanoseconds of a Go duration; an empty text is zero, as an absent field is.

    Raises:
        DurationError: the text is not a duration, or it exceeds 64 bits.
    """
    nanos = nanoseconds_in(text) if text else 0
    if nanos is None or abs(nanos) > _MOST:
        raise DurationError(f"`{text[:_LONGEST]}` is not a duration such as `5m` or `1h30m`")
    return nanos
