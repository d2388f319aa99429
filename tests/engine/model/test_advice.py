from __future__ import annotations

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.model.advice import ADVICE_ANNOTATION, Advice, advice_in


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
