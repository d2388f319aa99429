from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.cel.values import (
    ABSENT,
    INT_MAX,
    INT_MIN,
    TIMESTAMP_MAX,
    TIMESTAMP_MIN,
    BoolKey,
    CelType,
    Duration,
    Timestamp,
    UInt,
    civil,
    equal,
    format_duration,
    format_timestamp,
    key_value,
    lookup_key,
    map_key,
    parse_duration,
    parse_timestamp,
    present,
    to_duration,
    to_int,
    to_timestamp,
    to_uint,
    type_of,
    zone,
)
from engine.errors import CelError
from engine.model.time import NANOSECONDS_PER_SECOND

SCALARS = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-3, 3),
    st.integers(0, 3).map(UInt),
    st.sampled_from([0.0, 1.0, 2.5]),
    st.sampled_from(["", "a"]),
    st.sampled_from([b"", b"a"]),
    st.integers(0, 2).map(Timestamp),
    st.integers(0, 2).map(Duration),
)
VALUES = st.recursive(
    SCALARS,
    lambda inner: (
        st.lists(inner, max_size=2)
        | st.dictionaries(st.sampled_from(["a", 1, BoolKey.TRUE]), inner, max_size=2)
        | inner.map(present)
    ),
    max_leaves=4,
)


@pytest.mark.parametrize(
    ("left", "right"),
    [(1, UInt(1)), (1, 1.0), (UInt(1), 1.0), ([1, 2], (1.0, UInt(2))), ({1: 1}, {UInt(1): 1.0})],
)
def test_numbers_of_unlike_types_may_be_equal(left: object, right: object) -> None:
    assert equal(left, right)
    assert equal(right, left)


@pytest.mark.parametrize(
    ("left", "right"),
    [
        (1, True),
        (0, False),
        (0, None),
        ("a", b"a"),
        ([1], [True]),
        ({"a": 1}, {"a": True}),
        ({1: 1}, {BoolKey.TRUE: 1}),
        ([], {}),
        (Timestamp(0), Duration(0)),
        (present(1), ABSENT),
        (present(None), None),
        (math.nan, math.nan),
        ([math.nan], [math.nan]),
    ],
)
def test_these_are_different_and_no_error(left: object, right: object) -> None:
    assert not equal(left, right)
    assert not equal(right, left)


@given(VALUES, VALUES)
def test_equality_is_symmetric_and_never_fails(left: object, right: object) -> None:
    assert equal(left, left)
    assert equal(left, right) is equal(right, left)


def test_an_integer_beside_a_double_is_rounded_to_one() -> None:
    # 2**53 + 1 has no double of its own; its nearest is 2**53
    assert equal(2**53 + 1, 2.0**53)
    assert not equal(2**53 + 1, UInt(2**53))


def test_the_keys_of_a_map_tell_true_from_one() -> None:
    entries = {map_key(key): key for key in (1, True, "1")}
    assert len(entries) == 3
    assert entries[lookup_key(True)] is True  # noqa: FBT003 (a key)
    assert type(entries[lookup_key(1.0)]) is int
    assert type(entries[lookup_key(UInt(1))]) is int
    assert [key_value(key) for key in entries] == [1, True, "1"]


@pytest.mark.parametrize("value", [None, 1.5, b"a", [], {}])
def test_only_bools_integers_and_strings_are_keys(value: object) -> None:
    with pytest.raises(CelError):
        map_key(value)


def test_integers_and_times_have_bounds() -> None:
    assert to_int(2**63 - 1) == 2**63 - 1
    assert type(to_uint(2**64 - 1)) is UInt
    year_10000 = 253_402_300_800 * 10**9
    assert to_timestamp(year_10000 - 1) == Timestamp(year_10000 - 1)
    for beyond in (
        lambda: to_int(2**63),
        lambda: to_int(-(2**63) - 1),
        lambda: to_uint(-1),
        lambda: to_uint(2**64),
        lambda: to_timestamp(year_10000),
        lambda: to_duration(2**63),
    ):
        with pytest.raises(CelError):
            beyond()


def test_every_value_has_a_type() -> None:
    values: list[object] = [None, True, 1, UInt(1), 1.0, "", b"", [], (), {}]
    assert [type_of(value).name for value in values] == [
        "null_type", "bool", "int", "uint", "double", "string", "bytes", "list", "list", "map",
    ]  # fmt: skip
    assert type_of(CelType("int")) == CelType("type")
    with pytest.raises(CelError):
        type_of(object())


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
    assert parse_timestamp(text) == Timestamp(int(seconds * NANOSECONDS_PER_SECOND))


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
        ("1h30m", 5400 * NANOSECONDS_PER_SECOND),
        ("-1.5s", -1_500_000_000),
        ("+.5s", 500_000_000),
        ("1.s", NANOSECONDS_PER_SECOND),
        ("1m1h", 3660 * NANOSECONDS_PER_SECOND),
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
