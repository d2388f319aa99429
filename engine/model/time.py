"""Moments as microseconds since the Unix epoch, and durations as Kubernetes writes them."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from typing import Final, NewType

from engine.errors import StowplanError

Micros = NewType("Micros", int)
"""A moment, in microseconds since 1970-01-01T00:00:00Z."""

SECOND = 1_000_000
"""Microseconds in a second."""

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)


def micros(moment: datetime) -> Micros:
    """Return `moment` as microseconds since the epoch; a moment without a zone is UTC."""
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=UTC)
    since = moment - _EPOCH  # dividing it would take twice as long
    return Micros((since.days * 86_400 + since.seconds) * SECOND + since.microseconds)


def date(moment: Micros) -> datetime:
    """Return a moment as date and time in UTC, exactly."""
    return _EPOCH + moment * _MICROSECOND


NANOSECONDS_PER_SECOND: Final = 1_000_000_000  # nanoseconds
_UNITS: Final = {
    "h": 3600 * NANOSECONDS_PER_SECOND,
    "m": 60 * NANOSECONDS_PER_SECOND,
    "s": NANOSECONDS_PER_SECOND,
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
    """Nanoseconds of a Go duration; an empty text is zero, as an absent field is."""
    nanos = nanoseconds_in(text) if text else 0
    if nanos is None or abs(nanos) > _MOST:
        raise DurationError(f"`{text[:_LONGEST]}` is not a duration such as `5m` or `1h30m`")
    return nanos
