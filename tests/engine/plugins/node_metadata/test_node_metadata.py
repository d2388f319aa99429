from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from pydantic import ValidationError

from engine.model.time import SECOND, Micros
from engine.plugins.node_metadata.plugin import NodeMetadataArgs, NodeMetadataScore
from tests.engine.measured_cluster import NOW, cluster, node, pod

COST = {"metadataKey": "key", "metadataSource": "Label", "metadataType": "Number"}
BORN = COST | {"metadataType": "Timestamp"}


def raw_and_points(*said: str | None, **args: str) -> tuple[list[int], list[int]]:
    """Return raw scores and points of nodes that say this, None for nothing."""
    rule = NodeMetadataScore(NodeMetadataArgs.model_validate({**COST, **args}))
    view = cluster(
        replace(node(f"n{i}"), labels={} if text is None else {"key": text})
        for i, text in enumerate(said)
    )
    raw = rule.score(pod(), view, NOW).values
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
    assert rule.score(pod(), view, NOW).values.tolist() == [10, 5]
    assert rule.score(pod(), view, later).values.tolist() == [70, 65]


def test_annotations_are_read_where_they_are_asked_for() -> None:
    args = COST | {"metadataSource": "Annotation", "scoringStrategy": "Highest"}
    rule = NodeMetadataScore(NodeMetadataArgs.model_validate(args))
    view = cluster([node("a", {"key": "4"}), replace(node("b"), labels={"key": "9"})])
    assert rule.normalize(rule.score(pod(), view, NOW).values).tolist() == [1, 0]


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
