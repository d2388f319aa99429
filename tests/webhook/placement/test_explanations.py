from __future__ import annotations

from collections.abc import Iterable
from itertools import repeat
from typing import Any

import msgspec

from engine.model.decision import Verdict
from engine.model.time import Micros
from engine.report import DecisionExcerpt, PodName
from webhook.placement.explanations import MOST_BYTES, PER_SECOND, Explanations


class Clock:
    """A clock that someone sets."""

    def __init__(self) -> None:
        self.seconds = 0.0

    def __call__(self) -> float:
        return self.seconds


def excerpt(name: str, namespace: str = "shop") -> DecisionExcerpt:
    return DecisionExcerpt(
        pod=PodName(namespace, name),
        verdict=Verdict.ABSTAIN,
        message="",
        policies=(),
        estimate={},
        nodes=0,
        candidates=0,
        ranked=(),
        totals=(),
        scores=(),
        rejected={},
        rejected_by=(),
        abstained=(),
        errors=(),
        decided_at=Micros(0),
        view_version=0,
        ages={},
        audit=None,
        held=False,
    )


def offer(explanations: Explanations, *names: str, always: bool = False) -> None:
    for name in names:
        explanations.offer(lambda name=name: excerpt(name), always=always)  # type: ignore[misc]


def kept(most: int, *names: str) -> Explanations:
    explanations = Explanations(most)
    offer(explanations, *names)
    return explanations


def crowded(clock: Clock) -> Explanations:
    """Return explanations of which there were as many at once as there may be."""
    explanations = Explanations(999, clock=clock)
    offer(explanations, *repeat("web", PER_SECOND))
    return explanations


def decoded(found: Iterable[msgspec.Raw]) -> list[dict[str, Any]]:
    return [msgspec.json.decode(text) for text in found]


def names(found: Iterable[msgspec.Raw]) -> list[str]:
    return [each["pod"]["name"] for each in decoded(found)]


def test_the_newest_come_first_and_the_oldest_are_dropped() -> None:
    assert names(kept(2, "a", "b", "c").latest()) == ["c", "b"]


def test_explanations_are_found_by_a_part_of_namespace_and_name() -> None:
    explanations = kept(9, "web-1", "db", "web-2")
    assert names(explanations.latest(pod="shop/web")) == ["web-2", "web-1"]
    assert names(explanations.latest(pod="other/")) == []


def test_a_limit_keeps_the_newest() -> None:
    assert names(kept(9, "a", "b", "c").latest(limit=1)) == ["c"]


def test_none_are_made_if_none_are_kept() -> None:
    made: list[str] = []
    explanations = Explanations(0)
    explanations.offer(lambda: made.append("a") or excerpt("a"), always=True)  # type: ignore[func-returns-value]
    assert names(explanations.latest()) == []
    assert made == []


def test_of_more_at_once_than_anyone_reads_the_first_are_kept() -> None:
    explanations = crowded(Clock())
    made: list[str] = []
    explanations.offer(lambda: made.append("late") or excerpt("late"))  # type: ignore[func-returns-value]
    assert len(explanations) == PER_SECOND
    assert made == []


def test_over_time_so_many_a_second_are_kept() -> None:
    clock = Clock()
    explanations = crowded(clock)
    for _ in range(1_000):  # 500 a second for two seconds
        clock.seconds += 1 / 500
        offer(explanations, "web")
    assert len(explanations) == 3 * PER_SECOND


def test_a_quiet_day_does_not_save_up_for_more_than_one_burst() -> None:
    clock = Clock()
    explanations = crowded(clock)
    clock.seconds += 86_400
    offer(explanations, *repeat("web", 10 * PER_SECOND))
    assert len(explanations) == 2 * PER_SECOND


def test_what_is_left_out_is_counted_until_the_next_that_is_kept() -> None:
    clock = Clock()
    explanations = crowded(clock)
    offer(explanations, "x", "y", "z")
    clock.seconds += 1
    offer(explanations, "first", "second")
    told = [each["leftOutBefore"] for each in decoded(explanations.latest(limit=3))]
    assert told == [0, 3, 0]


def test_what_has_to_be_kept_is_kept_however_many_there_are() -> None:
    explanations = crowded(Clock())
    offer(explanations, "left out", "left out")
    offer(explanations, "denied", always=True)
    (newest,) = decoded(explanations.latest(limit=1))
    assert newest == msgspec.json.decode(msgspec.json.encode(excerpt("denied").report())) | {
        "leftOutBefore": 2
    }


def test_explanations_of_pods_with_giant_names_push_out_others_but_take_no_more_memory() -> None:
    explanations = Explanations(256)
    offer(
        explanations, "small", *("x" * 100_000 + str(number) for number in range(200)), always=True
    )
    # Each takes its name twice: as the key, and in the text.
    assert len(explanations) == MOST_BYTES // 200_000
    offer(explanations, "x" * MOST_BYTES, always=True)
    assert len(explanations) == 0
    offer(explanations, "small", always=True)
    assert len(explanations) == 1
