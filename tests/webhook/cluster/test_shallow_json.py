from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from webhook.cluster.shallow_json import MOST_LEVELS, shallow

LEAVES = st.none() | st.booleans() | st.integers() | st.text('{}[]"\\a', max_size=5)
VALUES = st.recursive(
    LEAVES, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text('{]"\\a'), inner)
)


@given(VALUES)
def test_what_is_shallow_stays_as_it_is(value: object) -> None:
    text = json.dumps(value).encode()
    assert shallow(text) == text


@given(VALUES, st.integers(1, 9_000))
def test_what_nests_more_deeply_becomes_0(value: object, deeper: int) -> None:
    levels = MOST_LEVELS + deeper
    deep = b'{"a":' * levels + json.dumps(value).encode() + b"}" * levels
    text = json.dumps([value, "deep", value]).encode().replace(b'"deep"', deep)
    before, inner, after = json.loads(shallow(text))
    for _ in range(MOST_LEVELS - 1):  # the list around it is a level, too
        inner = inner["a"]
    assert (before, inner, after) == (value, 0, value)


@pytest.mark.parametrize(
    "malformed", [b"", b"[" * 9_000, b"]" * 9_000, b'["' * 900, b'{"a\\', b"]" + b"[" * 400 + b"]"]
)
def test_what_is_malformed_stays_malformed(malformed: bytes) -> None:
    with pytest.raises(json.JSONDecodeError):
        json.loads(shallow(malformed))


def test_two_deep_parts_are_each_replaced() -> None:
    deep = b"[" * 300 + b"]" * 300
    parts: list[Any] = json.loads(shallow(b"[" + deep + b',1,"]",' + deep + b"]"))
    assert parts[1:3] == [1, "]"]
    assert parts[0] == parts[3]
