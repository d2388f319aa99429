from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.model.time import SECOND, micros
from engine.plugins.node_metadata.go_layout import RFC3339, GoLayout

THEN = datetime(2026, 11, 20, 9, 5, 7, tzinfo=UTC)


@pytest.mark.parametrize(
    ("layout", "text"),
    [
        (RFC3339, "2026-11-20T09:05:07Z"),
        (RFC3339, "2026-11-20T11:05:07+02:00"),
        ("2006-01-02T15:04:05.000Z0700", "2026-11-20T04:05:07-0500"),
        ("2006-01-02 15:04:05.999999999", "2026-11-20 09:05:07"),
        ("20060102-150405", "20261120-090507"),
        ("node_20060102T150405", "node_20261120T090507"),
        ("Mon, 02 Jan 2006 15:04:05 MST", "Fri, 20 Nov 2026 09:05:07 UTC"),
        ("Mon Jan _2 15:04:05 2006", "Fri Nov 20 09:05:07 2026"),
        ("Monday, January 2, 2006 at 3:04:05 PM", "Friday, November 20, 2026 at 9:05:07 AM"),
        ("02.01.06 03:04:05pm", "20.11.26 09:05:07am"),
        ("2006/002 15-04-05 Z07", "2026/324 10-05-07 +01"),
    ],
)
def test_times_are_read_as_the_example_is_written(layout: str, text: str) -> None:
    assert GoLayout(layout).read(text) == micros(THEN)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "2026-11-20",
        "2026-13-20T09:05:07Z",
        "2026-02-30T09:05:07Z",
        "2026-11-20T25:05:07Z",
        "2026-11-20T09:05:07",
        "2026-11-20T09:05:07Z ",
        "2026-11-20T09:05:07+99:00",
    ],
)
def test_what_is_written_otherwise_or_names_no_moment_is_not_read(text: str) -> None:
    assert GoLayout(RFC3339).read(text) is None


def test_a_fraction_may_follow_the_seconds_of_any_layout() -> None:
    read = GoLayout(RFC3339).read("2026-11-20T09:05:07.250999999Z")
    assert read == micros(THEN) + 250_999


@pytest.mark.parametrize(
    ("text", "hour"), [("12 AM", 0), ("1 AM", 1), ("12 PM", 12), ("11 PM", 23), ("13 PM", None)]
)
def test_noon_is_12_pm_and_midnight_12_am(text: str, hour: int | None) -> None:
    read = GoLayout("2006 3 PM").read(f"2026 {text}")
    day = micros(datetime(2026, 1, 1, tzinfo=UTC))
    assert read == (None if hour is None else day + hour * 3600 * SECOND)


def test_years_of_two_digits_turn_at_69() -> None:
    layout = GoLayout("06")
    assert layout.read("68") == micros(datetime(2068, 1, 1, tzinfo=UTC))
    assert layout.read("69") == micros(datetime(1969, 1, 1, tzinfo=UTC))


def test_a_year_has_366_days_at_most() -> None:
    assert GoLayout("2006-002").read("2024-366") == micros(datetime(2024, 12, 31, tzinfo=UTC))
    assert GoLayout("2006-002").read("2026-366") is None
    assert GoLayout("2006-002").read("2026-000") is None
    assert GoLayout("2006-002").read("9999-366") is None


@given(st.datetimes(min_value=datetime(1000, 1, 2), max_value=datetime(9999, 12, 30)))  # noqa: DTZ001 (hypothesis wants them so)
def test_every_moment_that_is_written_can_be_read(moment: datetime) -> None:
    text = moment.isoformat(timespec="microseconds")
    assert GoLayout("2006-01-02T15:04:05.000000").read(text) == micros(moment)
    east = moment + timedelta(hours=5, minutes=30)
    written = f"{east.isoformat(timespec='microseconds')}+05:30"
    assert GoLayout(RFC3339).read(written) == micros(moment)


@pytest.mark.parametrize("layout", ["", "yyyy-mm-dd", "2006-2006", "15 15"])
def test_a_layout_without_any_element_or_with_one_twice_is_refused(layout: str) -> None:
    with pytest.raises(ValueError, match="layout"):
        GoLayout(layout)
