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
from engine.model.decision import ADVICE_ANNOTATION, Advice, Decision, RuleTimes, Verdict, advice_in
from engine.model.pod import pod_of
from engine.model.ranking import NOTHING_RANKED, Ranking
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


@pytest.mark.parametrize("most", [None, 2])
def test_scores_are_those_of_the_best_candidates_best_first(most: int | None) -> None:
    raw = np.array([1, 3, 2])
    score = ScoreOutcome(policy="p", rule="r", weight=1, raw=raw, normalized=raw * 10)
    ranking = Ranking(np.arange(3), raw)
    judged = decision(np.ones(3, np.bool_), scored=(score,), ranking=ranking)
    (best,) = judged.best_scores(most)
    assert best.raw.tolist() == [3, 2, 1][:most]
    assert best.normalized.tolist() == [30, 20, 10][:most]
    assert judged.scores[0].raw.tolist() == [3, 2, 1]


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
