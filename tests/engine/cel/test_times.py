from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.cel.errors import CelError
from engine.cel.times import (
    civil,
    format_duration,
    format_timestamp,
    parse_duration,
    parse_timestamp,
    zone,
)
from engine.cel.values import INT_MAX, INT_MIN, TIMESTAMP_MAX, TIMESTAMP_MIN, Duration, Timestamp
from engine.model.duration import SECOND


@given(st.integers(TIMESTAMP_MIN, TIMESTAMP_MAX).map(Timestamp))
def test_the_text_of_a_timestamp_reads_back_the_same(timestamp: Timestamp) -> None:
    assert parse_timestamp(format_timestamp(timestamp)) == timestamp


@given(st.integers(INT_MIN, INT_MAX).map(Duration))
def test_the_text_of_a_duration_reads_back_the_same(duration: Duration) -> None:
    assert parse_duration(format_duration(duration)) == duration


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("1970-01-01T00:00:00Z", 0),
        ("1970-01-01t00:00:01z", 1),
        ("1970-01-01T01:30:00+01:30", 0),
        ("1969-12-31T23:00:00-01:00", 0),
        ("1970-01-01T00:00:00.5Z", 0.5),
    ],
)
def test_timestamps_are_rfc_3339(text: str, seconds: float) -> None:
    assert parse_timestamp(text) == Timestamp(int(seconds * SECOND))


@pytest.mark.parametrize(
    "text",
    [
        "",
        "2020-01-01",
        "2020-01-01 00:00:00Z",
        "2020-01-01T00:00:00",
        "2020-01-01T24:00:00Z",
        "2020-01-01T23:59:60Z",
        "2021-02-29T00:00:00Z",
        "0000-01-01T00:00:00Z",
        "10000-01-01T00:00:00Z",
        "2020-01-01T00:00:00+24:00",
        "0001-01-01T00:00:00+00:01",
        "２020-01-01T00:00:00Z",  # noqa: RUF001 (a full-width digit)
    ],
)
def test_these_are_no_timestamps(text: str) -> None:
    with pytest.raises(CelError):
        parse_timestamp(text)


@pytest.mark.parametrize(
    ("text", "nanos"),
    [
        ("0", 0),
        ("1h30m", 5400 * SECOND),
        ("-1.5s", -1_500_000_000),
        ("+.5s", 500_000_000),
        ("1.s", SECOND),
        ("1m1h", 3660 * SECOND),
        ("1ms1us1ns", 1_001_001),
        ("1µs", 1_000),
        ("0.1ns", 0),
        ("2562047h47m16.854775807s", INT_MAX),
        ("-2562047h47m16.854775808s", INT_MIN),
    ],
)
def test_durations_are_numbers_with_units(text: str, nanos: int) -> None:
    assert parse_duration(text) == Duration(nanos)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "1",
        "s",
        ".s",
        "1d",
        "1h -1m",
        " 1s",
        "1e3s",
        "-",
        "2562047h47m16.854775808s",
        "9" * 200 + "s",
    ],
)
def test_these_are_no_durations(text: str) -> None:
    with pytest.raises(CelError):
        parse_duration(text)


@pytest.mark.parametrize(
    ("text", "name", "local"),
    [
        ("2020-01-01T00:00:00Z", "", "2020-01-01T00:00"),
        ("2020-01-01T00:00:00Z", "+05:30", "2020-01-01T05:30"),
        ("2020-01-01T00:00:00Z", "5:30", "2020-01-01T05:30"),
        ("2020-01-01T00:00:00Z", "-02:00", "2019-12-31T22:00"),
        ("2020-07-01T00:00:00Z", "Europe/Paris", "2020-07-01T02:00"),
    ],
)
def test_a_moment_has_a_clock_in_each_zone(text: str, name: str, local: str) -> None:
    moment, year = civil(parse_timestamp(text), zone(name))
    assert moment.isoformat().startswith(local)
    assert year == moment.year


def test_a_zone_may_reach_years_0_and_10000() -> None:
    moment, year = civil(parse_timestamp("0001-01-01T00:00:00Z"), zone("-10:00"))
    assert (year, moment.month, moment.day, moment.hour) == (0, 12, 31, 14)
    moment, year = civil(parse_timestamp("9999-12-31T23:59:59Z"), zone("+10:00"))
    assert (year, moment.month, moment.day, moment.hour) == (10000, 1, 1, 9)


@pytest.mark.parametrize(
    "name", ["Europe/Nowhere", "../etc/passwd", "/etc/passwd", "Europe", "+25:00", "x\0"]
)
def test_these_are_no_zones(name: str) -> None:
    with pytest.raises(CelError):
        zone(name)
