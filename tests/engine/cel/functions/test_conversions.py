from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.cel.errors import CelError
from engine.cel.values import UInt
from tests.engine.cel.functions.evaluating import evaluate


@pytest.mark.parametrize(
    ("source", "value"),
    [
        ("int('-12')", -12),
        ("int('+5')", 5),
        ("int(-3.9)", -3),
        ("int(9223372036854774784.0)", 9223372036854774784),
        ("int(timestamp('1969-12-31T23:59:59.5Z'))", -1),
        ("uint('12')", UInt(12)),
        ("uint(3.9)", UInt(3)),
        ("double('1e3')", 1000.0),
        ("double('-Infinity')", -math.inf),
        ("double(18446744073709551615u)", 2.0**64),
        ("bool('t')", True),
        ("bool('FALSE')", False),
        ("string(true)", "true"),
        ("string(12u)", "12"),
        ("string(b'\\xc3\\xa9')", "é"),
        ("string(duration('90s'))", "90s"),
        ("string(timestamp(0))", "1970-01-01T00:00:00Z"),
        ("bytes('é')", b"\xc3\xa9"),
    ],
)
def test_conversions(source: str, value: object) -> None:
    found = evaluate(source)
    assert found == value
    assert type(found) is type(value)


@pytest.mark.parametrize(
    "source",
    [
        "int('')", "int(' 5')", "int('1_000')", "int('0x10')", "int('٣')", "int(true)", "int(null)",
        "int(9223372036854775807.0)", "int(-9223372036854775808.0)", "int(0.0/0.0)",
        "int(18446744073709551615u)", "int('9223372036854775808')", "int(duration('1s'))",
        "uint(-1)", "uint(-0.5)", "uint('+5')", "uint(18446744073709551615.0)",
        "double('')", "double('1_0')", "double(' 1')", "double('1e400')", "double('infinit')",
        "bool('yes')", "bool('TrUe')", "bool(1)", "string(b'\\xff')", "string(null)", "string([])",
        "bytes(1)", "timestamp(1.5)", "timestamp(253402300800)", "duration(1)",
    ],
)  # fmt: skip
def test_what_does_not_convert_is_an_error(source: str) -> None:
    with pytest.raises(CelError):
        evaluate(source)


@pytest.mark.parametrize(
    ("value", "text"),
    [
        # Go writes an exponent below 1e-4 and from 1e6 up, with at least two digits.
        (1.0, "1"),
        (-0.0, "-0"),
        (123.456, "123.456"),
        (999999.0, "999999"),
        (1e6, "1e+06"),
        (1234567.0, "1.234567e+06"),
        (0.0001, "0.0001"),
        (1e-5, "1e-05"),
        (1.5e300, "1.5e+300"),
        (math.inf, "+Inf"),
        (-math.inf, "-Inf"),
        (math.nan, "NaN"),
    ],
)
def test_the_text_of_a_double_is_that_of_go(value: float, text: str) -> None:
    assert evaluate("string(x)", x=value) == text


@given(st.floats(allow_nan=False))
def test_the_text_of_a_double_reads_back_the_same(value: float) -> None:
    assert evaluate("double(string(x))", x=value) == value
