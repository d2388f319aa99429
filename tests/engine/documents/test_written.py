from __future__ import annotations

import json
import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.documents import document_of
from engine.errors import InvalidFileError

_TEXTS = st.text() | st.sampled_from(
    ["", "~", "null", "yes", "On", "1e3", "0x10", "1_000", "012", "- a", "a: b", "!x", "a\n\nb\n"]
)
_LEAVES = st.none() | st.booleans() | st.integers(-(2**63), 2**63) | _TEXTS
_FLOATS = st.floats(allow_nan=False, allow_infinity=False)
_VALUES = st.recursive(
    _LEAVES | _FLOATS,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(_TEXTS, inner, max_size=4),
    max_leaves=12,
)


@given(spec=_VALUES)
def test_an_object_is_read_back_as_it_was(spec: Any) -> None:  # noqa: ANN401 - any JSON
    value = json.loads(json.dumps({"spec": spec}))
    read = document_of(value, "object").value
    assert read == value
    assert json.dumps(read, sort_keys=True) == json.dumps(value, sort_keys=True)


def test_it_is_laid_out_as_kubectl_prints_it() -> None:
    value = {"spec": {"b": [{"x": "one"}, {"x": "two\nlines"}], "a": math.pi}}
    document = document_of(value, "things/a")
    at_x = document.problem(("spec", "b", 1, "x"), "wrong", offset=4)
    assert str(at_x) == (
        "things/a:7:7: spec.b[1].x: wrong\n |       lines\n | ......^"  # below `x: |-`
    )


def test_a_key_that_is_no_identifier_stands_in_brackets() -> None:
    document = document_of({"spec": {"a.b/c": 1}}, "things/a")
    assert document.problem_at_key(("spec", "a.b/c"), "wrong").field == "spec[a.b/c]"


@pytest.mark.parametrize("levels", [64, 5_000])
def test_an_object_that_nests_too_deep_is_refused(levels: int) -> None:
    value: dict[str, Any] = {}
    for _ in range(levels):
        value = {"a": value}
    with pytest.raises(InvalidFileError, match="nested deeper than 64 levels"):
        document_of(value, "things/a")
