"""Text forms of timestamps and durations, and the calendar in any time zone."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta, timezone, tzinfo
from typing import Final
from zoneinfo import ZoneInfo

from engine.cel.errors import CelError
from engine.cel.values import Duration, Timestamp, to_duration, to_timestamp
from engine.model.duration import SECOND, nanoseconds_in

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)

_TIMESTAMP: Final = re.compile(
    r"(\d{4}-\d\d-\d\d)[Tt](\d\d:\d\d:\d\d)(?:\.(\d+))?(?:[Zz]|([+-])(\d\d):(\d\d))", re.ASCII
)


def parse_timestamp(text: str) -> Timestamp:
    """Parse an RFC 3339 text; digits beyond nanoseconds are dropped.

    Raises:
        CelError: it is not in that format, is no date or time, or is out of range.
    """
    match = _TIMESTAMP.fullmatch(text)
    if match is None:
        raise CelError(f"`{text}` is not an RFC 3339 timestamp")
    day, time, fraction, sign, hours, minutes = match.groups()
    try:
        moment = datetime.fromisoformat(f"{day}T{time}+00:00")
    except ValueError:
        raise CelError(f"`{text}` is not a moment in years 1..9999") from None
    if sign and (int(hours) > 23 or int(minutes) > 59):  # noqa: PLR2004 (a clock's bounds)
        raise CelError(f"`{text}` has no valid offset")
    minutes_east = int(f"{sign}1") * (int(hours) * 60 + int(minutes)) if sign else 0
    seconds = (moment - _EPOCH) // timedelta(seconds=1) - minutes_east * 60
    return to_timestamp(seconds * SECOND + int((fraction or "")[:9].ljust(9, "0")), minutes_east)


def format_timestamp(timestamp: Timestamp) -> str:
    """Return the RFC 3339 text with the offset of the timestamp, and as few decimals as needed."""
    local, year = civil(timestamp, timezone(timedelta(minutes=timestamp.offset)))
    hours, minutes = divmod(abs(timestamp.offset), 60)
    sign = "-" if timestamp.offset < 0 else "+"
    offset = f"{sign}{hours:02d}:{minutes:02d}" if timestamp.offset else "Z"
    fraction = _fraction(timestamp.nanos % SECOND)
    return f"{year:04d}{local:-%m-%dT%H:%M:%S}{fraction}{offset}"


def parse_duration(text: str) -> Duration:
    """Return the span that a text such as `1h30m`, `-1.5s` or `0` names.

    Raises:
        CelError: it is not in that format, or out of range.
    """
    nanos = nanoseconds_in(text)
    if nanos is None:
        raise CelError(f"`{text}` is not a duration, such as `1h30m` or `1.5s`")
    return to_duration(nanos)


def format_duration(duration: Duration) -> str:
    """Return the text in seconds, with as few decimals as needed."""
    seconds, nanos = divmod(abs(duration.nanos), SECOND)
    sign = "-" if duration.nanos < 0 else ""
    return f"{sign}{seconds}{_fraction(nanos)}s"


def _fraction(nanos: int) -> str:
    return f".{nanos:09d}".rstrip("0") if nanos else ""


_OFFSET: Final = re.compile(r"([+-]?)(\d{1,2}):(\d\d)", re.ASCII)
_FOUR_CENTURIES: Final = 146_097 * 86_400  # seconds; dates and weekdays repeat after it
_MAX_SHIFT: Final = timedelta(days=1)  # more than any zone shifts a clock
_SOONEST: Final = datetime.min.replace(tzinfo=UTC) + _MAX_SHIFT
_LATEST: Final = datetime.max.replace(tzinfo=UTC) - _MAX_SHIFT


def zone(name: str) -> tzinfo:
    """Return a time zone by its IANA name, or by an offset such as `+05:30`.

    Raises:
        CelError: there is no such zone.
    """
    match = _OFFSET.fullmatch(name)
    try:
        if match is not None:
            east = timedelta(hours=int(match[2]), minutes=int(match[3]))
            return timezone(-east if match[1] == "-" else east)
        return ZoneInfo(name) if name else UTC
    except (ValueError, LookupError, OSError):
        raise CelError(f"unknown time zone `{name}`") from None


def civil(timestamp: Timestamp, at: tzinfo) -> tuple[datetime, int]:
    """Return the local date and time in a zone, and the year.

    A zone may shift the first and last hours of the range into years 0 and 10000, which `datetime`
    does not support: its year is then a different one with the same calendar.
    """
    utc = _EPOCH + timedelta(seconds=timestamp.nanos // SECOND)
    shift = 1 if utc < _SOONEST else -1 if utc > _LATEST else 0
    moment = (utc + shift * timedelta(seconds=_FOUR_CENTURIES)).astimezone(at)
    return moment, moment.year - shift * 400
