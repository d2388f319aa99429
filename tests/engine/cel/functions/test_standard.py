from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.cel.values import UInt
from engine.errors import CelError
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
        "int(18446744073709551615u)", "int('9223372036854775808')", "uint(duration('1s'))",
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


LEAP_DAY = "timestamp('2020-02-29T23:30:15.123456789Z')"  # a Saturday, the 60th day


@pytest.mark.parametrize(
    ("part", "value"),
    [
        ("getFullYear()", 2020),
        ("getMonth()", 1),
        ("getDate()", 29),
        ("getDayOfMonth()", 28),
        ("getDayOfWeek()", 6),
        ("getDayOfYear()", 59),
        ("getHours()", 23),
        ("getMinutes()", 30),
        ("getSeconds()", 15),
        ("getMilliseconds()", 123),
        ("getDate('+01:00')", 1),
        ("getMonth('Asia/Kathmandu')", 2),  # 05:45 later is March
        ("getMinutes('Asia/Kathmandu')", 15),
        ("getDayOfWeek('+01:00')", 0),
    ],
)
def test_the_parts_of_a_timestamp(part: str, value: int) -> None:
    assert evaluate(f"{LEAP_DAY}.{part}") == value


@pytest.mark.parametrize(
    ("source", "value"),
    [
        ("duration('3730.5s').getHours()", 1),
        ("duration('3730.5s').getMinutes()", 62),
        ("duration('3730.5s').getSeconds()", 3730),
        ("duration('3730.5s').getMilliseconds()", 500),  # of the fraction only
        ("duration('-3730.5s').getMinutes()", -62),
        ("duration('-3730.5s').getMilliseconds()", -500),
    ],
)
def test_the_parts_of_a_duration_are_truncated_toward_zero(source: str, value: int) -> None:
    assert evaluate(source) == value


def test_an_unknown_zone_is_an_error() -> None:
    with pytest.raises(CelError, match="unknown time zone `Nowhere`"):
        evaluate(f"{LEAP_DAY}.getHours('Nowhere')")


@pytest.mark.parametrize(
    "zero",
    ["null", "false", "0", "0u", "0.0", "''", "b''", "[]", "{}", "duration('0s')", "timestamp(0)"],
)
def test_a_zero_value_is_no_value(zero: str) -> None:
    assert evaluate(f"optional.ofNonZeroValue({zero}).hasValue()") is False
    assert evaluate(f"optional.of({zero}).hasValue()") is True


@pytest.mark.parametrize("value", ["true", "-1", "'0'", "[0]", "int", "optional.none()"])
def test_any_other_value_is_one(value: str) -> None:
    assert evaluate(f"optional.ofNonZeroValue({value}).hasValue()") is True


@pytest.mark.parametrize(
    ("source", "value"),
    [
        ("optional.of(1).or(optional.of(2)).value()", 1),
        ("optional.none().or(optional.of(2)).value()", 2),
        ("optional.none().orValue(2)", 2),
        ("optional.unwrap([optional.of(1), optional.none()])", [1]),
        ("[optional.none()].unwrapOpt()", []),
        ("optional.none() == optional.none()", True),
        ("optional.of(1) == optional.of(1.0)", True),
        ("{'a': {}}.?a.?b.orValue('none')", "none"),
        ("[?optional.of(1), ?optional.none()]", [1]),
        ("{?'a': optional.none(), 'a': 1}", {"a": 1}),
    ],
)
def test_optionals(source: str, value: object) -> None:
    assert evaluate(source) == value


@pytest.mark.parametrize(
    "source",
    [
        "optional.none().value()",
        "optional.none().or(1)",
        "dyn(1).orValue(2)",
        "optional.unwrap([1])",
        "[?dyn(1)]",
        "{?'a': dyn(1)}",
    ],
)
def test_these_fail_in_optionals(source: str) -> None:
    with pytest.raises(CelError):
        evaluate(source)
