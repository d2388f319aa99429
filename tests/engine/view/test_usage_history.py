from __future__ import annotations

from collections.abc import Sequence
from math import ceil
from statistics import pstdev

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.model.time import SECOND, Micros
from engine.view.usage_history import (
    DEVIATION_SECONDS,
    MOST_SAMPLES,
    USAGE_WINDOW_SECONDS,
    UsageHistory,
    UsageSummary,
)

MINUTE_NS = 60 * 10**9
Sample = tuple[int, int, int]
"""Second, millicores, bytes."""


def fed(samples: Sequence[Sample], history: UsageHistory | None = None) -> UsageHistory:
    """Return a history of one node, `a`."""
    history = UsageHistory(15) if history is None else history
    for second, cpu, memory in samples:
        history.add("a", Micros(second * SECOND), {"cpu": cpu, "memory": memory})
    return history


def summary(samples: Sequence[Sample]) -> UsageSummary:
    return fed(samples).summaries(["a"])[0]


def by_minutes(found: UsageSummary) -> dict[int, dict[str, tuple[int, int]]]:
    """Return the aggregated readings by the length of their window, cpu and memory."""
    return {
        window.duration_ns // MINUTE_NS: {
            kind: (amounts["cpu"], amounts["memory"]) for kind, amounts in window.by_type.items()
        }
        for window in found.aggregated
    }


def test_readings_of_a_window_are_average_and_nearest_ranks() -> None:
    # 20 samples of 100, 200, .. 2000 millicores in 5 minutes: the average is 1050, and ranks
    # 10 (50 %), 18 (90 %), 19 (95 %) and 20 (99 %, 19.8 rounded up) count.
    found = summary([(15 * i, 100 * i, 2000 - 100 * i) for i in range(1, 21)])
    assert by_minutes(found)[5] == {
        "avg": (1050, 950),
        "p50": (1000, 900),
        "p90": (1800, 1700),
        "p95": (1900, 1800),
        "p99": (2000, 1900),
    }


def test_an_average_is_rounded_down_and_a_deviation_to_the_nearest_unit() -> None:
    # (1 + 2 + 2) / 3 = 1.67; the deviation of 1, 2, 2 is sqrt(2 / 9) = 0.47, of 0, 0, 3 sqrt(2).
    found = summary([(0, 1, 0), (100, 2, 0), (200, 2, 3)])
    assert by_minutes(found)[5]["avg"] == (1, 1)
    assert found.average == {"cpu": 1, "memory": 1}
    assert found.deviation == {"cpu": 0, "memory": 1}


def test_the_deviation_is_that_of_the_population() -> None:
    # 2, 4, 4, 4, 5, 5, 7, 9: mean 5, squares add up to 32, 32 / 8 = 4, not 32 / 7.
    samples = [(60 * i, cpu, 0) for i, cpu in enumerate((2, 4, 4, 4, 5, 5, 7, 9))]
    found = summary(samples)
    assert (found.average, found.deviation) == ({"cpu": 5, "memory": 0}, {"cpu": 2, "memory": 0})


@pytest.mark.parametrize(
    ("span", "known"),
    [
        (149, []),
        (150, [5]),
        (299, [5]),
        (300, [5, 10]),
        (899, [5, 10]),
        (900, [5, 10, 30]),
    ],
)
def test_a_window_is_known_once_samples_span_half_of_it(span: int, known: list[int]) -> None:
    samples = [(second, 1, 1) for second in (*range(0, span, 15), span)]
    assert list(by_minutes(summary(samples))) == known


def test_a_node_of_one_sample_has_no_history() -> None:
    assert summary([(0, 1, 1)]) == UsageSummary((), {}, {})


def test_what_is_older_than_a_window_does_not_count() -> None:
    # The newest is at 600 s: a window of 300 s begins after 300 s.
    found = by_minutes(summary([(0, 9, 9), (300, 5, 5), (301, 1, 1), (600, 3, 3)]))
    assert found[5]["avg"] == (2, 2)
    assert found[5]["p99"] == (3, 3)
    assert found[10]["p99"] == (5, 5)  # and one of 600 s after 0 s


def test_the_deviation_is_over_a_quarter_of_an_hour_once_that_is_known() -> None:
    early = [(15 * i, 100, 0) for i in range(20)]  # to 285 s
    late = [(300 + 15 * i, 300, 0) for i in range(20)]  # to 585 s
    assert summary(early).average["cpu"] == 100
    # 585 s span half of 15 minutes: 20 samples of each kind.
    assert summary(early + late).average["cpu"] == 200
    assert summary(early + late).deviation["cpu"] == 100


def test_a_sample_that_is_not_newer_is_ignored() -> None:
    history = fed([(100, 1, 1)])
    assert not history.add("a", Micros(100 * SECOND), {"cpu": 9, "memory": 9})
    assert not history.add("a", Micros(99 * SECOND), {"cpu": 9, "memory": 9})
    assert history.add("a", Micros(250 * SECOND), {"cpu": 3, "memory": 3})
    assert by_minutes(history.summaries(["a"])[0])[5]["avg"] == (2, 2)


def test_what_a_node_used_is_forgotten_with_it() -> None:
    history = fed([(second, 900, 900) for second in range(0, 300, 15)])
    history.forget("a")
    history.forget("never seen")
    assert (len(history), list(history), history.latest("a")) == (0, [], None)
    assert history.add("b", Micros(0), {"cpu": 1, "memory": 1})  # on the ring that a had
    assert history.add("b", Micros(200 * SECOND), {"cpu": 1, "memory": 1})
    assert by_minutes(history.summaries(["b"])[0])[5]["p99"] == (1, 1)


def test_many_nodes_keep_their_own_history() -> None:
    history = UsageHistory(60)
    names = [f"node-{i}" for i in range(200)]
    for minute in range(4):
        for i, name in enumerate(names):
            history.add(name, Micros(60 * minute * SECOND), {"cpu": i, "memory": minute})
    found = history.summaries(names)
    assert [one.average["cpu"] for one in found] == list(range(200))
    assert {one.deviation["cpu"] for one in found} == {0}
    assert {by_minutes(one)[5]["p99"][1] for one in found} == {3}


def test_however_often_a_node_is_sampled_memory_is_bounded() -> None:
    history = fed([(second, second, 0) for second in range(1000)], UsageHistory(0.5))
    found = by_minutes(history.summaries(["a"])[0])
    # The newest 180 samples are 820..999: they span half of five minutes, and no longer window.
    assert found.keys() == {5}
    assert found[5]["avg"][0] == (820 + 999) // 2
    assert MOST_SAMPLES == 180


amounts = st.integers(0, 2**45)


@st.composite
def sample_lists(draw: st.DrawFn) -> list[Sample]:
    gaps = draw(st.lists(st.integers(-20, 400), min_size=1, max_size=150))
    second, samples = 10_000, []
    for gap in gaps:
        second += gap
        samples.append((second, draw(st.integers(0, 96_000)), draw(amounts)))
    return samples


def naive(samples: Sequence[Sample], length: int) -> dict[int, list[Sample]]:
    """Return the samples within each window that is known, by its seconds."""
    kept: list[Sample] = []
    for sample in samples:
        if not kept or sample[0] > kept[-1][0]:
            kept.append(sample)
    kept = kept[-length:]
    newest = kept[-1][0]
    windows = {}
    for seconds in {*USAGE_WINDOW_SECONDS, *DEVIATION_SECONDS}:
        inside = [sample for sample in kept if newest - sample[0] < seconds]
        if 2 * (newest - inside[0][0]) >= seconds:
            windows[seconds] = inside
    return windows


@given(sample_lists())
@settings(max_examples=150)
def test_a_summary_is_what_plain_python_finds(samples: list[Sample]) -> None:
    found = summary(samples)
    windows = naive(samples, 1800 // 15 + 1)
    told = {window.duration_ns // 10**9: window.by_type for window in found.aggregated}
    assert list(told) == [seconds for seconds in USAGE_WINDOW_SECONDS if seconds in windows]
    for seconds, by_type in told.items():
        for position, name in enumerate(("cpu", "memory"), 1):
            values = sorted(sample[position] for sample in windows[seconds])
            assert by_type["avg"][name] == sum(values) // len(values)
            for percent in (50, 90, 95, 99):
                nearest = values[ceil(len(values) * percent / 100) - 1]
                assert by_type[f"p{percent}"][name] == nearest
    best = next((windows[seconds] for seconds in DEVIATION_SECONDS if seconds in windows), None)
    if best is None:
        assert (found.average, found.deviation) == ({}, {})
        return
    for position, name in enumerate(("cpu", "memory"), 1):
        values = [sample[position] for sample in best]
        assert found.average[name] == sum(values) // len(values)
        # Both round to the nearest unit, one from a float64.
        assert abs(found.deviation[name] - pstdev(values)) <= 0.5 + 1e-9 * max(values)
