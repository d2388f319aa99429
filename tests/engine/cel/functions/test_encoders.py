from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.cel.errors import CelError
from tests.engine.cel.functions.evaluating import evaluate


@given(st.binary(max_size=20))
def test_bytes_come_back_from_base64_with_or_without_padding(value: bytes) -> None:
    assert evaluate("base64.decode(base64.encode(x))", x=value) == value
    assert evaluate("base64.decode(base64.encode(x).replace('=', ''))", x=value) == value


@pytest.mark.parametrize("text", ["a", "a-b_", "!", "=", "aGVsbG8==="])
def test_what_is_not_base64_is_an_error(text: str) -> None:
    with pytest.raises(CelError):
        evaluate("base64.decode(x)", x=text)
