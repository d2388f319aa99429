from __future__ import annotations

import pytest

from engine.cel.errors import CelError
from tests.engine.cel.functions.evaluating import evaluate


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
def test_these_fail(source: str) -> None:
    with pytest.raises(CelError):
        evaluate(source)
