"""Components of timestamps and durations: `getFullYear`, `getHours`, ..."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, tzinfo
from typing import Final

from engine.cel.functions.registry import Overload
from engine.cel.times import civil, zone
from engine.cel.values import INT, Duration, Timestamp
from engine.model.duration import SECOND

_MILLISECOND: Final = SECOND // 1000


def _year(timestamp: Timestamp, at: tzinfo = UTC) -> int:
    return civil(timestamp, at)[1]


def _milliseconds(timestamp: Timestamp, _at: tzinfo = UTC) -> int:
    return timestamp.nanos % SECOND // _MILLISECOND


def _part(of: Callable[[datetime], int]) -> Callable[..., int]:
    def get(timestamp: Timestamp, at: tzinfo = UTC) -> int:
        return of(civil(timestamp, at)[0])

    return get


_PARTS: Final[dict[str, Callable[..., int]]] = {
    "getFullYear": _year,
    "getMonth": _part(lambda moment: moment.month - 1),
    "getDate": _part(lambda moment: moment.day),
    "getDayOfMonth": _part(lambda moment: moment.day - 1),
    "getDayOfWeek": _part(lambda moment: moment.isoweekday() % 7),  # Sunday is 0
    "getDayOfYear": _part(lambda moment: moment.timetuple().tm_yday - 1),
    "getHours": _part(lambda moment: moment.hour),
    "getMinutes": _part(lambda moment: moment.minute),
    "getSeconds": _part(lambda moment: moment.second),
    "getMilliseconds": _milliseconds,
}


def _in_zone(get: Callable[..., int]) -> Callable[[Timestamp, str], int]:
    return lambda timestamp, name: get(timestamp, zone(name))


def _whole(duration: Duration, unit: int) -> int:
    """Return the duration in units of `unit` nanoseconds, truncated toward zero."""
    count = abs(duration.nanos) // unit
    return -count if duration.nanos < 0 else count


def _duration_milliseconds(duration: Duration) -> int:
    """Return the milliseconds of the fraction of a second, unlike the other components."""
    return _whole(Duration(abs(duration.nanos) % SECOND), _MILLISECOND) * (
        -1 if duration.nanos < 0 else 1
    )


FUNCTIONS: Final = (
    *(Overload(name, (Timestamp,), get, member=True, result=INT) for name, get in _PARTS.items()),
    *(
        Overload(name, (Timestamp, str), _in_zone(get), member=True, result=INT)
        for name, get in _PARTS.items()
    ),
    *(
        Overload(name, (Duration,), get, member=True, result=INT)
        for name, get in {
            "getHours": lambda duration: _whole(duration, 3600 * SECOND),
            "getMinutes": lambda duration: _whole(duration, 60 * SECOND),
            "getSeconds": lambda duration: _whole(duration, SECOND),
            "getMilliseconds": _duration_milliseconds,
        }.items()
    ),
)
