from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from engine.model.time import SECOND, Micros, micros
from engine.plugins import Cycle
from engine.plugins.node_metadata import RFC3339, GoLayout, NodeMetadataArgs, NodeMetadataScore
from tests.engine.measured_cluster import NOW, cluster, node, pod

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


COST = {"metadataKey": "key", "metadataSource": "Label", "metadataType": "Number"}
BORN = COST | {"metadataType": "Timestamp"}


def raw_and_points(*said: str | None, **args: str) -> tuple[list[int], list[int]]:
    """Return raw scores and points of nodes that say this, None for nothing."""
    rule = NodeMetadataScore(NodeMetadataArgs.model_validate({**COST, **args}))
    view = cluster(
        replace(node(f"n{i}"), labels={} if text is None else {"key": text})
        for i, text in enumerate(said)
    )
    raw = rule.score(Cycle(pod(), view, NOW)).values
    return raw.tolist(), rule.normalize(raw).tolist()


def points(*said: str | None, **args: str) -> list[int]:
    return raw_and_points(*said, **args)[1]


def test_the_highest_number_gets_100_the_lowest_1_and_none_0() -> None:
    # (3 - 1) * 99 / (5 - 1) + 1 = 50.5.
    assert points("1", "3", "5", None, scoringStrategy="Highest") == [1, 50, 100, 0]
    assert points("1", "3", "5", None, scoringStrategy="Lowest") == [100, 50, 1, 0]


def test_equal_numbers_all_get_1() -> None:
    assert points("7", "7", None, scoringStrategy="Highest") == [1, 1, 0]
    assert points(None, scoringStrategy="Highest") == [0]


@pytest.mark.parametrize("text", ["", "x", "1,5", "1 ", "nan", "inf", "1e999"])
def test_what_is_no_number_counts_as_nothing(text: str) -> None:
    assert points("1", text, scoringStrategy="Lowest") == [1, 0]


def test_numbers_lose_their_fractions_and_may_be_of_any_size() -> None:
    raw, _ = raw_and_points("2.9", "-2.9", "1e3", ".5", scoringStrategy="Highest")
    assert raw == [2, -2, 1000, 0]
    assert points("1e300", "-1e300", "0", scoringStrategy="Highest") == [100, 1, 50]


def test_time_counts_by_its_age_in_whole_seconds() -> None:
    # NOW is 1,700,000,000 s after the epoch, 2023-11-14T22:13:20Z.
    said = ("2023-11-14T22:13:10Z", "2023-11-14T23:13:15+01:00", "2023-11-14T22:13:30.5Z", "today")
    oldest = BORN | {"scoringStrategy": "Oldest"}
    assert raw_and_points(*said, **oldest)[0][:3] == [10, 5, -10]
    # 20 s from the newest to the oldest: 15 * 99 / 20 + 1 = 75.25.
    assert points(*said, **oldest) == [100, 75, 1, 0]
    assert points(*said, **BORN, scoringStrategy="Newest") == [1, 25, 100, 0]


def test_time_is_read_as_the_format_says() -> None:
    layout = BORN | {"scoringStrategy": "Newest", "timestampFormat": "2006-01-02"}
    assert points("2026-01-01", "2026-01-03", "2026-01-01T00:00:00Z", **layout) == [1, 100, 0]


def test_ages_grow_but_points_stay() -> None:
    args = NodeMetadataArgs.model_validate(BORN | {"scoringStrategy": "Oldest"})
    rule, born = NodeMetadataScore(args), ("2023-11-14T22:13:10Z", "2023-11-14T22:13:15Z")
    view = cluster(replace(node(f"n{i}"), labels={"key": one}) for i, one in enumerate(born))
    later = Micros(NOW + 60 * SECOND)
    assert rule.score(Cycle(pod(), view, NOW)).values.tolist() == [10, 5]
    assert rule.score(Cycle(pod(), view, later)).values.tolist() == [70, 65]


def test_annotations_are_read_where_they_are_asked_for() -> None:
    args = COST | {"metadataSource": "Annotation", "scoringStrategy": "Highest"}
    rule = NodeMetadataScore(NodeMetadataArgs.model_validate(args))
    view = cluster([node("a", {"key": "4"}), replace(node("b"), labels={"key": "9"})])
    assert rule.normalize(rule.score(Cycle(pod(), view, NOW)).values).tolist() == [1, 0]


@pytest.mark.parametrize(
    ("args", "message"),
    [
        ({"metadataKey": ""}, "metadataKey cannot be empty"),
        ({"metadataSource": "Spec"}, "'Label' or 'Annotation'"),
        ({"metadataType": "Text"}, "'Number' or 'Timestamp'"),
        ({"scoringStrategy": "Best"}, "'Highest', 'Lowest', 'Newest' or 'Oldest'"),
        ({"scoringStrategy": "Newest"}, "only valid for `metadataType` `Timestamp`"),
        ({"metadataType": "Timestamp"}, "only valid for `metadataType` `Number`"),
        ({"timestampFormat": "yyyy-mm-dd"}, "names no part of a time"),
        ({"timestampFormat": "2006 2006"}, "names a part of the time twice"),
    ],
)
def test_mistakes_are_told(args: dict[str, Any], message: str) -> None:
    right = COST | {"scoringStrategy": "Highest"}
    NodeMetadataArgs.model_validate(right)
    with pytest.raises(ValidationError, match=message):
        NodeMetadataArgs.model_validate(right | args)


@pytest.mark.parametrize(
    "name", ["metadataKey", "metadataSource", "metadataType", "scoringStrategy"]
)
def test_all_but_the_format_must_be_given(name: str) -> None:
    args = {key: value for key, value in COST.items() if key != name}
    right = args if name == "scoringStrategy" else args | {"scoringStrategy": "Highest"}
    with pytest.raises(ValidationError, match="required"):
        NodeMetadataArgs.model_validate(right)
