from __future__ import annotations

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from engine.model.decision import ADVICE_ANNOTATION, Advice, Decision
from engine.placement.annotations import (
    ESTIMATED_USAGE_ANNOTATION,
    MAX_BYTES,
    REASON_ANNOTATION,
    advice_of,
    annotations_of,
)
from tests.engine.placement.cluster import GIB, decided, named, view_of

VIEW = view_of(named(*"abcdefgh"))
DECISION = decided(VIEW, dict.fromkeys("abcdefgh", 1))


def annotated(decision: Decision, best_tier: str = "") -> dict[str, str]:
    rows = np.array([VIEW.rows[name] for name in best_tier], np.intp)
    return annotations_of(decision, advice_of(decision, rows, "u-1"))


def test_the_advice_names_policies_and_the_first_few_of_the_best_nodes() -> None:
    text = annotated(replace(DECISION, policies=("p", "q")), "hgfedcba")[ADVICE_ANNOTATION]
    advice = msgspec.json.decode(text, type=Advice)
    assert advice == Advice(("p", "q"), tuple("hgfed"), 8, advice.id)


def test_the_advice_of_each_review_has_an_id_of_its_own_and_the_same_in_every_replica() -> None:
    rows = np.zeros(0, np.intp)
    ids = [advice_of(DECISION, rows, uid).id for uid in ("u-1", "u-2", "u-1", "u" * 300)]
    assert ids[0] == ids[2]
    assert len(set(ids)) == 3
    assert {len(one) for one in ids} == {16}


@pytest.mark.parametrize("best_tier", ["", "abc"])
def test_advice_is_cut_once_it_is_too_long_and_never_before(best_tier: str) -> None:
    rows = np.array([VIEW.rows[name] for name in best_tier], np.intp)
    whole = []
    for length in range(330, 450):
        advice = advice_of(replace(DECISION, policies=("p" * length,)), rows, "u-1")
        assert len(msgspec.json.encode(advice)) <= 448
        whole.append(bool(advice.policies))
    # All of its bytes are of use, but for what an empty list takes: 16 bytes at most.
    assert whole == sorted(whole, reverse=True)
    longest = advice_of(replace(DECISION, policies=("p" * (329 + sum(whole)),)), rows, "u-1")
    assert len(msgspec.json.encode(longest)) >= 448 - 16


def test_advice_without_a_review_has_no_id() -> None:
    advice = advice_of(DECISION, np.zeros(0, np.intp), "")
    assert (
        annotations_of(DECISION, advice)[ADVICE_ANNOTATION]
        == '{"policies":["spread-load"],"candidates":8}'
    )


@pytest.mark.parametrize(
    ("estimate", "text"),
    [
        ({"memory": GIB, "cpu": 850}, '{"cpu":"850m","memory":"1Gi"}'),
        ({"cpu": 2000, "memory": 1000}, '{"cpu":"2","memory":"1k"}'),
        ({"memory": GIB + 1}, '{"memory":"1073741825"}'),
        ({"a.b/c": 3, "ephemeral-storage": 2048}, '{"ephemeral-storage":"2Ki","a.b/c":"3"}'),
        ({"cpu": 0}, '{"cpu":"0"}'),
    ],
)
def test_the_estimate_is_written_in_kubernetes_own_quantities(
    estimate: dict[str, int], text: str
) -> None:
    assert annotated(replace(DECISION, estimate=estimate))[ESTIMATED_USAGE_ANNOTATION] == text


def test_what_is_not_known_is_not_annotated() -> None:
    assert list(annotated(replace(DECISION, message_or_source=" \n"))) == [ADVICE_ANNOTATION]


def test_the_reason_is_one_line() -> None:
    reason = annotated(replace(DECISION, message_or_source="best of 8:\n  cool"))[REASON_ANNOTATION]
    assert reason == "best of 8: cool"


def test_a_long_reason_is_cut_with_a_mark_between_characters() -> None:
    annotations = annotated(replace(DECISION, message_or_source="ü" * 1000))
    reason = annotations[REASON_ANNOTATION]
    size = sum(len(key) + len(value.encode()) for key, value in annotations.items())
    assert reason == "ü" * (len(reason) - 3) + "..."
    assert MAX_BYTES - 1 <= size <= MAX_BYTES


TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=300)


@given(
    message=st.text(st.characters(exclude_categories=["Cs"]), max_size=1500),
    policies=st.lists(TEXT, max_size=20),
    names=st.lists(TEXT, min_size=len(VIEW), max_size=len(VIEW)),
    estimate=st.dictionaries(TEXT, st.integers(0, 2**48), max_size=20),
)
def test_annotations_take_a_kibibyte_at_most_and_are_json(
    message: str, policies: list[str], names: list[str], estimate: dict[str, int]
) -> None:
    decision = replace(
        DECISION,
        message_or_source=message,
        policies=tuple(policies),
        names=names,
        estimate=estimate,
    )
    annotations = annotated(decision, "abcdefgh")
    texts = [*annotations, *annotations.values()]
    assert sum(len(text.encode()) for text in texts) <= MAX_BYTES
    advice = msgspec.json.decode(annotations[ADVICE_ANNOTATION], type=Advice)
    assert advice.policies == tuple(policies)[: len(advice.policies)]
    assert advice.candidates == 8
    estimated = msgspec.json.decode(annotations.get(ESTIMATED_USAGE_ANNOTATION, "{}"))
    assert estimated.keys() <= estimate.keys()
