from __future__ import annotations

import pytest

from engine.cel.errors import CelError
from tests.engine.cel.functions.evaluating import evaluate

LEAP_DAY = "timestamp('2020-02-29T23:30:15.123456789Z')"  # a Saturday, the 60th day


@pytest.mark.parametrize(
    ("part", "value"),
    [
        ("getFullYear()", 2020),
        ("getMonth()", 1),
        ("getDate()", 29),
        ("getDayOfMonth()", 28),
        ("getDayOfWeek()", 6),
        ("getDayOfYear()", 59),
        ("getHours()", 23),
        ("getMinutes()", 30),
        ("getSeconds()", 15),
        ("getMilliseconds()", 123),
        ("getDate('+01:00')", 1),
        ("getMonth('Asia/Kathmandu')", 2),  # 05:45 later is March
        ("getMinutes('Asia/Kathmandu')", 15),
        ("getDayOfWeek('+01:00')", 0),
    ],
)
def test_the_parts_of_a_timestamp(part: str, value: int) -> None:
    assert evaluate(f"{LEAP_DAY}.{part}") == value


@pytest.mark.parametrize(
    ("source", "value"),
    [
        ("duration('3730.5s').getHours()", 1),
        ("duration('3730.5s').getMinutes()", 62),
        ("duration('3730.5s').getSeconds()", 3730),
        ("duration('3730.5s').getMilliseconds()", 500),  # of the fraction only
        ("duration('-3730.5s').getMinutes()", -62),
        ("duration('-3730.5s').getMilliseconds()", -500),
    ],
)
def test_the_parts_of_a_duration_are_truncated_toward_zero(source: str, value: int) -> None:
    assert evaluate(source) == value


def test_an_unknown_zone_is_an_error() -> None:
    with pytest.raises(CelError, match="unknown time zone `Nowhere`"):
        evaluate(f"{LEAP_DAY}.getHours('Nowhere')")
