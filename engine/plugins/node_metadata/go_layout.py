"""Times in the layouts of Go's `time` package, in which an example stands for the format.

Source: pkg/time, Layout and Parse. A layout is the moment "Mon Jan 2 15:04:05 MST 2006" written as
times will be, so "2006-01-02" reads 2026-11-20.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import datetime, timedelta, timezone
from typing import Final

from engine.model.time import Micros, micros

RFC3339: Final = "2006-01-02T15:04:05Z07:00"

_MONTHS: Final = (
    *("January", "February", "March", "April", "May", "June"),
    *("July", "August", "September", "October", "November", "December"),
)
_SHORT_MONTHS: Final = tuple(month[:3] for month in _MONTHS)
_DAYS: Final = "Mon|Tue|Wed|Thu|Fri|Sat|Sun"
_FULL_DAYS: Final = "Monday|Tuesday|Wednesday|Thursday|Friday|Saturday|Sunday"
_DIAL: Final = 12  # hours
_MICRO_DIGITS: Final = 6
_FIRST_OF_1900S: Final = 69
"""Years of two digits from here on belong to the 20th century."""

_ELEMENTS: Final = {
    "January": rf"(?P<full_month>{'|'.join(_MONTHS)})",
    "Jan": rf"(?P<short_month>{'|'.join(_SHORT_MONTHS)})",
    "Monday": rf"(?:{_FULL_DAYS})",
    "Mon": rf"(?:{_DAYS})",
    "MST": r"(?P<zone>[A-Z]{3,4})",
    "2006": r"(?P<year>\d{4})",
    "-07:00:00": r"(?P<offset>[+-]\d\d:\d\d:\d\d)",
    "-07:00": r"(?P<offset>[+-]\d\d:\d\d)",
    "-070000": r"(?P<offset>[+-]\d{6})",
    "-0700": r"(?P<offset>[+-]\d{4})",
    "-07": r"(?P<offset>[+-]\d\d)",
    "Z07:00:00": r"(?P<offset>Z|[+-]\d\d:\d\d:\d\d)",
    "Z07:00": r"(?P<offset>Z|[+-]\d\d:\d\d)",
    "Z070000": r"(?P<offset>Z|[+-]\d{6})",
    "Z0700": r"(?P<offset>Z|[+-]\d{4})",
    "Z07": r"(?P<offset>Z|[+-]\d\d)",
    "002": r"(?P<day_of_year>\d{3})",
    "01": r"(?P<month>\d\d)",
    "02": r"(?P<day>\d\d)",
    "03": r"(?P<hour12>\d\d)",
    "04": r"(?P<minute>\d\d)",
    "05": r"(?P<second>\d\d)(?P<fraction>[.,]\d+)?",
    "06": r"(?P<year2>\d\d)",
    "15": r"(?P<hour>\d\d?)",
    "_2": r"(?P<day> ?\d\d?)",
    "PM": r"(?P<half>AM|PM)",
    "pm": r"(?P<half>am|pm)",
    "1": r"(?P<month>\d\d?)",
    "2": r"(?P<day>\d\d?)",
    "3": r"(?P<hour12>\d\d?)",
    "4": r"(?P<minute>\d\d?)",
    "5": r"(?P<second>\d\d?)(?P<fraction>[.,]\d+)?",
}
"""What each element of a layout reads; a fraction may follow any second, as in Go."""

_FRACTION: Final = r"(?:[.,](?:0+|9+)(?!\d))?"  # of a layout: it is read with or without
_AFTER: Final = {"05": _FRACTION, "5": _FRACTION, "_2": "(?!006)"}
_SPLIT: Final = re.compile(
    "|".join(
        f"({re.escape(one)}){_AFTER.get(one, '')}"
        for one in sorted(_ELEMENTS, key=len, reverse=True)
    )
)


class GoLayout:
    """Reads times of one layout.

    Raises:
        ValueError: the layout names an element twice, or none.
    """

    def __init__(self, layout: str) -> None:
        try:
            self._pattern = re.compile("".join(_parts(layout)), re.ASCII)
        except re.error:
            raise ValueError(f"layout `{layout}` names a part of the time twice") from None
        if not self._pattern.groups:
            raise ValueError(f"layout `{layout}` names no part of a time, as `2006-01-02` does")

    def read(self, text: str) -> Micros | None:
        """Return the moment that a text names, None if it names none; without a zone it is UTC."""
        match = self._pattern.fullmatch(text)
        if match is None:
            return None
        try:
            return micros(_moment(match.groupdict()))
        except (ValueError, OverflowError):
            return None


def _parts(layout: str) -> Iterator[str]:
    """Yield the pattern of each part of a layout."""
    at = 0
    for found in _SPLIT.finditer(layout):
        yield re.escape(layout[at : found.start()])
        yield _ELEMENTS[found[found.lastindex or 0]]
        at = found.end()
    yield re.escape(layout[at:])


def _moment(parts: dict[str, str | None]) -> datetime:
    """Return the moment that is made of parts; what is not named is the least that it can be.

    Raises:
        ValueError: there is no such moment.
        OverflowError: it lies out of range.
    """

    def number(name: str, default: int) -> int:
        text = parts.get(name)
        return default if text is None else int(text)

    year = number("year2", 1)
    if parts.get("year2"):
        year += 1900 if year >= _FIRST_OF_1900S else 2000
    year = number("year", year)
    fraction = (parts.get("fraction") or ".0")[1 : _MICRO_DIGITS + 1]
    moment = datetime(
        year,
        _month(parts) or number("month", 1),
        number("day", 1),
        _hour(parts),
        number("minute", 0),
        number("second", 0),
        int(fraction.ljust(_MICRO_DIGITS, "0")),
        timezone(_offset(parts.get("offset"))),
    )
    day = parts.get("day_of_year")
    if day is None:
        return moment
    counted = moment.replace(month=1, day=1) + timedelta(days=int(day) - 1)
    if counted.year != year:
        raise ValueError("no such day of the year")
    return counted


def _month(parts: dict[str, str | None]) -> int:
    """Return the month that is written by name, 0 if it is not."""
    full, short = parts.get("full_month"), parts.get("short_month")
    if full:
        return _MONTHS.index(full) + 1
    return _SHORT_MONTHS.index(short) + 1 if short else 0


def _hour(parts: dict[str, str | None]) -> int:
    """Return the hour of the day, which on a dial of twelve begins with 12."""
    if parts.get("hour12") is None:
        return int(parts.get("hour") or 0)
    hour, half = int(parts["hour12"] or 0), (parts.get("half") or "").upper()
    if hour > _DIAL:
        raise ValueError("no such hour")
    if not half:
        return hour
    return hour % _DIAL + (_DIAL if half == "PM" else 0)


def _offset(text: str | None) -> timedelta:
    """Return how far east of UTC an offset such as `+02:00`, `-0730` or `Z` is."""
    if not text or text == "Z":
        return timedelta(0)
    digits = text[1:].replace(":", "").ljust(6, "0")
    east = timedelta(hours=int(digits[:2]), minutes=int(digits[2:4]), seconds=int(digits[4:]))
    return -east if text[0] == "-" else east
