from __future__ import annotations

from collections import Counter
from itertools import count

import msgspec
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from engine.model.api import Pod
from engine.model.decision import (
    ADVICE_ANNOTATION,
    NOTHING_RANKED,
    Advice,
    Decision,
    RankedTotals,
    Ranking,
    RuleTimes,
    Verdict,
    advice_in,
)
from engine.model.pod import pod_of
from engine.model.rule_outcomes import FilterOutcome, FilterResult, ScoreOutcome, count_codes
from engine.model.time import Micros
from tests.engine.explainers import FixedReasons


@given(st.builds(Advice))
def test_advice_is_read_back_as_it_was_written(advice: Advice) -> None:
    text = msgspec.json.encode(advice).decode()
    if len(text) <= 1024:
        assert advice_in({"a": "b", ADVICE_ANNOTATION: text}) == advice


def test_advice_of_a_newer_release_may_say_more() -> None:
    assert advice_in({ADVICE_ANNOTATION: '{"nodes":["a"],"more":{}}'}) == Advice(nodes=("a",))


def test_a_pod_without_the_annotation_has_no_advice() -> None:
    assert advice_in({}) is None


@pytest.mark.parametrize(
    "text",
    [
        "",
        "a",
        "[]",
        "null",
        '{"nodes":"a"}',
        '{"nodes":[1]}',
        '{"nodes":[null]}',
        '{"id":7}',
        '{"candidates":"many"}',
        '{"more":' + "[" * 1000,
        '{"nodes":["' + "a" * 1024 + '"]}',
        "\ud800",
    ],
)
def test_what_is_malformed_or_too_long_is_no_advice(text: str) -> None:
    assert advice_in({ADVICE_ANNOTATION: text}) is None


@given(st.text(max_size=60))
def test_whatever_is_written_there_it_is_read_or_left(text: str) -> None:
    advice = advice_in({ADVICE_ANNOTATION: text})
    assert advice is None or isinstance(advice, Advice)


SMALL, LARGE = st.integers(-1, 5), st.integers(-1, 2**62)


def decision(
    valid: NDArray[np.bool_],
    filters: tuple[FilterOutcome, ...] = (),
    left: tuple[NDArray[np.bool_], ...] = (),
    *,
    scored: tuple[ScoreOutcome, ...] = (),
    ranking: Ranking = NOTHING_RANKED,
) -> Decision:
    return Decision(
        pod=pod_of(Pod()),
        verdict=Verdict.ABSTAIN,
        message_or_source="",
        valid=valid,
        filters=filters,
        left=left,
        scored=scored,
        ranking=ranking,
        estimate={},
        decided_at=Micros(0),
        view_version=1,
    )


@settings(max_examples=100)
@given(codes=st.lists(SMALL) | st.lists(LARGE))
def test_codes_are_counted_in_ascending_order(codes: list[int]) -> None:
    assert list(count_codes(np.array(codes, np.int64)).items()) == sorted(Counter(codes).items())


def test_codes_of_a_byte_are_counted_too() -> None:
    assert count_codes(np.array([1, -1, 1, 0], np.int8)) == {-1: 1, 0: 1, 1: 2}


ROWS = st.lists(st.tuples(st.booleans(), st.integers(0, 1), st.integers(-1, 3)), min_size=1)


@settings(max_examples=100)
@given(rows=ROWS)
def test_each_node_is_summaries_by_the_first_filter_that_turns_it_away(
    rows: list[tuple[bool, int, int]],
) -> None:
    valid = np.array([is_node for is_node, _, _ in rows])
    filters, left = [], [valid]
    for number in (1, 2):
        codes = np.array([row[number] for row in rows])
        rejects = (codes != 0) & valid
        faults = int(np.count_nonzero((codes == -1) & valid))
        told = FixedReasons({code: str(code) for code in (-1, 1, 2, 3)})
        filters.append(
            FilterOutcome(
                policy="p",
                rule=str(number),
                result=FilterResult(codes != 0, codes),
                rejects=rejects,
                explainer=told,
                faults=faults,
            )
        )
        left.append(left[-1] & ~rejects)
    expected = Counter(
        ("1", str(first)) if first else ("2", str(second))
        for is_node, first, second in rows
        if is_node and (first or second)
    )
    summaries = decision(valid, tuple(filters), tuple(left[1:])).rejection_summaries
    assert {(out.rule, out.reason): out.nodes for out in summaries} == expected


def test_scores_are_those_of_the_candidates_best_first() -> None:
    raw = np.array([1, 3, 2])
    score = ScoreOutcome(policy="p", rule="r", weight=1, raw=raw, normalized=raw * 10)
    ranking = Ranking(np.arange(3), raw)
    (best,) = decision(np.ones(3, np.bool_), scored=(score,), ranking=ranking).scores
    assert best.raw.tolist() == [3, 2, 1]
    assert best.normalized.tolist() == [30, 20, 10]


def test_time_and_evaluations_of_a_rule_add_up() -> None:
    times = RuleTimes(count(100, 10).__next__)
    for _ in range(2):
        times.note("gpus", "room", times.clock())
    times.note("", "NodeResourcesFit", times.clock())
    # Each reading of the clock is 10 ns after the last one.
    assert list(times) == [("gpus", "room", 20, 2), ("", "NodeResourcesFit", 10, 1)]


def test_rules_begin_at_0_and_are_forgotten() -> None:
    times = RuleTimes(count(0, 10).__next__)
    times.note("old", "room", times.clock())
    times.note("gpus", "room", times.clock())
    times.keep([("gpus", "room"), ("new", "room")])
    assert list(times) == [("gpus", "room", 10, 1), ("new", "room", 0, 0)]


# Many candidates of few totals are counted, few of totals far apart are sorted.
TOTALS = st.one_of(
    [st.lists(st.integers(0, most), min_size=1, max_size=60) for most in (0, 3, 100, 2**40)]
)


@given(totals=TOTALS)
def test_each_place_has_the_total_that_stands_there_once_all_are_sorted(totals: list[int]) -> None:
    ranked = RankedTotals(np.array(totals))
    assert [ranked.at(place) for place in range(ranked.size)] == sorted(totals, reverse=True)


@given(totals=TOTALS, data=st.data())
def test_as_many_are_counted_from_a_score_as_are_at_least_that(
    totals: list[int], data: st.DataObject
) -> None:
    score = data.draw(st.sampled_from(totals)) + data.draw(st.integers(-300, 300))
    expected = sum(total >= score for total in totals)
    assert RankedTotals(np.array(totals)).count_from(score) == expected


def test_of_nothing_none_is_counted() -> None:
    nothing = RankedTotals(np.zeros(0, np.int64))
    assert (nothing.size, nothing.count_from(0)) == (0, 0)


FEW_TOTALS = st.integers(0, 3)
ALL_TOTALS = st.integers(0, 700) | st.integers(0, 2**40)
CANDIDATES = st.one_of(
    [
        st.lists(st.tuples(totals, st.integers(0, 2**64 - 1)), max_size=200)
        for totals in (FEW_TOTALS, ALL_TOTALS)
    ]
)


def ranking_of(candidates: list[tuple[int, int]]) -> Ranking:
    rows = 3 * np.arange(len(candidates))
    totals = np.array([total for total, _ in candidates], np.int64)
    ties = np.array([tie for _, tie in candidates], np.uint64)
    return Ranking(rows, totals, lambda some: ties[some // 3])


@settings(max_examples=300)
@given(candidates=CANDIDATES)
def test_candidates_are_in_order_of_totals_then_of_what_breaks_ties(
    candidates: list[tuple[int, int]],
) -> None:
    ranking = ranking_of(candidates)
    # A tie-breaker counts by the bits between the difference to the best total and the position.
    size = len(candidates).bit_length()
    end = 64 - max(1, max((total for total, _ in candidates), default=0).bit_length())
    expected = sorted(
        range(len(candidates)),
        key=lambda at: (-candidates[at][0], candidates[at][1] % 2**end >> size, at),
    )
    assert ranking.order.tolist() == expected
    assert ranking.totals.tolist() == [candidates[at][0] for at in expected]


@settings(max_examples=300)
@given(candidates=CANDIDATES, most=st.integers(0, 90))
def test_the_best_are_the_first_of_all(candidates: list[tuple[int, int]], most: int) -> None:
    best = ranking_of(candidates).best(most)
    assert best.tolist() == ranking_of(candidates).order[:most].tolist()


@settings(max_examples=300)
@given(candidates=CANDIDATES, data=st.data())
def test_a_part_is_the_rows_at_its_places(
    candidates: list[tuple[int, int]], data: st.DataObject
) -> None:
    ranking = ranking_of(candidates)
    in_order = ranking_of(candidates).totals.tolist()
    ends = [0, *(i for i in range(1, len(in_order)) if in_order[i - 1] != in_order[i])]
    start = data.draw(st.sampled_from(ends))
    end = data.draw(st.sampled_from([*(at for at in ends if at > start), len(in_order)]))
    if candidates:
        expected = ranking_of(candidates).order[start:end]
        assert ranking.part(start, end).tolist() == sorted(3 * expected)


def test_totals_that_are_far_apart_are_sorted_all_the_same() -> None:
    totals = [*range(2**40, 2**40 + 100)]
    ranking = Ranking(np.arange(100), np.array(totals))
    assert ranking.totals.tolist() == sorted(totals, reverse=True)
    assert ranking.best(3).tolist() == [99, 98, 97]
    assert ranking.part(1, 3).tolist() == [97, 98]


@pytest.mark.parametrize("most", [0, 1, None])
def test_a_ranking_of_nothing_has_no_best(most: int | None) -> None:
    assert Ranking().best(most).size == 0
    assert (len(Ranking()), Ranking().totals.size) == (0, 0)
