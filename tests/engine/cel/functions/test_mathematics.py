from __future__ import annotations

import math

import pytest

from engine.cel.values import UInt
from engine.errors import CelError
from tests.engine.cel.functions.evaluating import evaluate


@pytest.mark.parametrize(
    ("source", "value"),
    [
        ("math.greatest(1, 2.5, 2u)", 2.5),
        ("math.greatest(1, 1.0)", 1),  # the first of equals
        ("math.least([3, 1u, 2.0])", UInt(1)),
        ("math.least(dyn([7]))", 7),
        ("math.ceil(-0.3)", -0.0),
        ("math.floor(1.0/0.0)", math.inf),
        ("math.round(-2.5)", -3.0),
        ("math.round(0.49999999999999994)", 0.0),
        ("math.round(4503599627370497.5)", 4503599627370498.0),
        ("math.trunc(-1.9)", -1.0),
        ("math.abs(-3)", 3),
        ("math.abs(-0.0)", 0.0),
        ("math.sign(-3)", -1),
        ("math.sign(3u)", UInt(1)),
        ("math.sign(-0.5)", -1.0),
        ("math.sqrt(81u)", 9.0),
        ("math.bitAnd(6, -4)", 4),
        ("math.bitOr(6u, 1u)", UInt(7)),
        ("math.bitXor(-1, 1)", -2),
        ("math.bitNot(0u)", UInt(2**64 - 1)),
        ("math.bitShiftLeft(1, 63)", -(2**63)),
        ("math.bitShiftLeft(1, 64)", 0),
        ("math.bitShiftLeft(18446744073709551615u, 1)", UInt(2**64 - 2)),
        ("math.bitShiftRight(-1, 1)", 2**63 - 1),
        ("math.bitShiftRight(-1, 0)", -1),
        ("math.bitShiftRight(8u, 9223372036854775807)", UInt(0)),
        ("math.isNaN(math.sqrt(-1))", True),
        ("math.isNaN(math.sign(0.0/0.0))", True),
        ("math.isFinite(1.0/0.0)", False),
    ],
)
def test_mathematics(source: str, value: object) -> None:
    found = evaluate(source)
    assert (type(found), repr(found)) == (type(value), repr(value))


@pytest.mark.parametrize(
    "source",
    [
        "math.greatest()",
        "math.greatest([])",
        "math.greatest('a')",
        "math.least(1, 'a')",
        "math.least([1, [2]])",
        "math.ceil(1)",
        "math.abs(-9223372036854775808)",
        "math.bitShiftLeft(1, -1)",
        "math.bitShiftRight(1u, -1)",
        "math.bitXor(1, 1u)",
        "math.bitAnd(true, true)",
    ],
)
def test_these_fail(source: str) -> None:
    with pytest.raises(CelError):
        evaluate(source)
