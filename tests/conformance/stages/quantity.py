"""Kubernetes quantities: the cases of apimachinery's own tests."""

from __future__ import annotations

from fractions import Fraction
from typing import TYPE_CHECKING, Any

from engine.errors import QuantityError
from engine.model.quantity import NANO, Quantity, parse_quantity
from tests.conformance.outcome import Json, mismatch

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tests.conformance.outcome import Stage


def _parse(case: Json, _: Json) -> str | None:
    try:
        quantity = parse_quantity(case["args"]["input"])
    except QuantityError as error:
        return mismatch(case["expect"], {"error": error.kind})
    got: Json = {
        "decimal": _decimal(quantity),
        "format": quantity.format,
        "string": str(quantity),
        "canonical": quantity.canonical(),
        "sign": quantity.sign,
        "value": quantity.value(),
        "milliValue": quantity.milli_value(),
    }
    return _compare(case["expect"], got)


def _canonicalize(case: Json, _: Json) -> str | None:
    return _compare(case["expect"], {"string": parse_quantity(case["args"]["input"]).canonical()})


def _round_up(case: Json, _: Json) -> str | None:
    args = case["args"]
    rounded, exact = parse_quantity(args["input"]).round_up(args["scale"])
    return _compare(case["expect"], {"decimal": _decimal(rounded), "exact": exact})


def _scaled_value(case: Json, _: Json) -> str | None:
    args = case["args"]
    quantity = Quantity(args["unscaled"] * 10 ** (args["fromScale"] - NANO))
    return _compare(case["expect"], {"value": quantity.scaled_value(args["toScale"])})


def _cmp(case: Json, _: Json) -> str | None:
    x, y = _operands(case)
    return _compare(case["expect"], {"cmp": x.compare(y)})


def _add(case: Json, _: Json) -> str | None:
    x, y = _operands(case)
    return _compare(case["expect"], {"string": str(x + y)})


def _operands(case: Json) -> tuple[Quantity, Quantity]:
    return parse_quantity(case["args"]["x"]), parse_quantity(case["args"]["y"])


def _decimal(quantity: Quantity) -> Fraction:
    return quantity.nanos * Fraction(10) ** NANO


def _compare(expect: Json, got: Json) -> str | None:
    """Compare what is expected; values that upstream leaves undefined are absent from a case."""
    expected: dict[str, Any] = dict(expect)
    if "decimal" in expected:
        expected["decimal"] = Fraction(expected["decimal"])
    return mismatch(expected, {name: got.get(name) for name in expected})


STAGES: Mapping[str, Stage] = {
    "add": _add,
    "canonicalize": _canonicalize,
    "compare": _cmp,
    "parse": _parse,
    "roundUp": _round_up,
    "scaledValue": _scaled_value,
}
