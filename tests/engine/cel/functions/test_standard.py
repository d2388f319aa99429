from __future__ import annotations

import pytest

from engine.cel.errors import CelError
from tests.engine.cel.functions.evaluating import evaluate


@pytest.mark.parametrize(
    ("source", "value"),
    [
        ("size('é\U0001f431')", 2),
        ("b'\\xc3\\xa9'.size()", 2),
        ("{'a': 1}.size()", 1),
        ("'abc'.contains('')", True),
        ("'a\\nb'.matches('^a.b$')", False),  # a dot is no line end in RE2
        ("'abc'.matches('b')", True),
        ("matches('abc', '(?i)B')", True),
        ("type(1) == int && type(int) == type", True),
        ("type(null) == null_type", True),
    ],
)
def test_the_standard_functions(source: str, value: object) -> None:
    assert evaluate(source) == value


@pytest.mark.parametrize(
    "source", ["size(1)", "1.size()", "'a'.startsWith(b'a')", "'a'.matches('(')"]
)
def test_these_fail(source: str) -> None:
    with pytest.raises(CelError):
        evaluate(source)


def test_a_pattern_that_is_computed_is_compiled_when_it_is_used() -> None:
    assert evaluate("x.all(p, 'abc'.matches(p))", x=["a", "b", "^abc$"]) is True
    with pytest.raises(CelError, match="is over 256"):
        evaluate("'a'.matches(x)", x="a" * 257)


def test_half_a_surrogate_pair_is_an_error_and_not_a_crash() -> None:
    with pytest.raises(CelError):
        evaluate("x.matches('a')", x="\ud800")
    with pytest.raises(CelError):
        evaluate("bytes(x)", x="\ud800")
