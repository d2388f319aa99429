from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.cel import Environment, compile_program
from engine.cel.functions import quantity as q
from engine.cel.functions.quantity import quantity
from engine.cel.values import DYN
from engine.errors import CelError
from engine.model.quantity import Quantity

AMOUNTS = st.builds(
    lambda number, suffix: quantity(f"{number}{suffix}"),
    st.integers(-(10**12), 10**12),
    st.sampled_from(["", "n", "m", "k", "Ki", "Gi", "E", "e3"]),
)
INTS = st.integers(-(2**63), 2**63 - 1)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("1.3G", True),
        ("1.3Gi", True),
        ("10000k", True),
        ("20", True),
        ("20Mi", True),
        ("1,3G", False),
        ("200K", False),
        ("Three", False),
        ("20Mo", False),
        ("10Mm", False),
        ("", False),
        (" 1", False),
        ("1e1000000000", True),  # as of Kubernetes, which keeps the greatest it can
    ],
)
def test_a_quantity_is_recognised_by_its_text(text: str, *, expected: bool) -> None:
    assert q.is_quantity(text) is expected
    if not expected:
        with pytest.raises(CelError):
            quantity(text)


@pytest.mark.parametrize(
    ("left", "right", "expected"),
    [
        ("200M", "0.2G", 0),
        ("50M", "50Mi", -1),  # 50,000,000 and 52,428,800
        ("50Mi", "50M", 1),
        ("1Gi", "1024Mi", 0),
        ("-1", "1", -1),
        ("1n", "0", 1),
    ],
)
def test_quantities_compare_by_amount(left: str, right: str, expected: int) -> None:
    one, other = quantity(left), quantity(right)
    assert q.compare_to(one, other) == expected
    assert q.is_less_than(one, other) is (expected < 0)
    assert q.is_greater_than(one, other) is (expected > 0)
    assert (one == other) is (expected == 0)


def test_sums_and_differences_are_exact() -> None:
    assert q.add(quantity("50k"), quantity("20")) == quantity("50.02k")
    assert q.sub(quantity("50k"), quantity("20")) == quantity("49980")
    # 50,000 + 20 - 100,000 + 50,000 = 20
    back = q.sub_int(q.sub(q.add_int(quantity("50k"), 20), quantity("100k")), -50_000)
    assert q.as_integer(back) == 20
    # 9E is near the end of int64; the sum does not wrap.
    assert str(q.add(quantity("9E"), quantity("9E")).amount) == "18E"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("50k", 50_000),
        ("-3", -3),
        ("1.5G", 1_500_000_000),
        ("1.5Gi", None),  # whole, yet Kubernetes keeps it as a big decimal
        ("1000m", None),  # it keeps 1000 thousandths
        ("999999999999999999", 10**18 - 1),
        ("9223372036854775807", None),  # it reads 18 digits as an int64
        ("9999999999999999999999999999999999999G", None),
        ("1500m", None),
    ],
)
def test_an_integer_is_what_kubernetes_keeps_as_one(text: str, expected: int | None) -> None:
    value = quantity(text)
    assert q.is_integer(value) is (expected is not None)
    if expected is None:
        with pytest.raises(CelError, match="not an integer"):
            q.as_integer(value)
    else:
        assert q.as_integer(value) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [("50.703k", 50_703.0), ("0.1", 0.1), ("-250m", -0.25), ("1Ki", 1024.0), ("1e100", 1e100)],
)
def test_the_approximate_float_is_the_nearest_one(text: str, expected: float) -> None:
    assert q.as_approximate_float(quantity(text)).hex() == expected.hex()


@pytest.mark.parametrize("sign", [1, -1])
def test_an_amount_beyond_all_doubles_is_an_infinity(sign: int) -> None:
    # Doubles end near 1.8e308; no text is read that far out, but a value may be built.
    huge = q.CelQuantity(Quantity(sign * 10**400))
    assert q.as_approximate_float(huge) == sign * math.inf


@pytest.mark.parametrize(("text", "expected"), [("1Mi", 1), ("-1n", -1), ("0", 0), ("-0", 0)])
def test_the_sign_is_one_of_three(text: str, expected: int) -> None:
    assert q.sign(quantity(text)) == expected


@given(AMOUNTS, AMOUNTS)
def test_adding_and_subtracting_the_same_changes_nothing(
    one: q.CelQuantity, other: q.CelQuantity
) -> None:
    assert q.sub(q.add(one, other), other) == one


@given(AMOUNTS, INTS)
def test_an_int_counts_as_that_many_units(one: q.CelQuantity, number: int) -> None:
    assert q.add_int(one, number) == q.add(one, quantity(str(number)))
    assert q.sub_int(q.add_int(one, number), number) == one


@given(AMOUNTS, AMOUNTS)
def test_the_comparison_turns_around_with_its_operands(
    one: q.CelQuantity, other: q.CelQuantity
) -> None:
    assert q.compare_to(one, other) == -q.compare_to(other, one)
    assert q.compare_to(one, other) == q.sign(q.sub(one, other))


@given(st.integers(-(10**18) + 1, 10**18 - 1))
def test_an_integer_quantity_gives_its_integer_back(number: int) -> None:
    assert q.as_integer(quantity(str(number))) == number


@given(INTS, INTS)
def test_a_sum_is_an_integer_while_it_fits_in_64_bits(number: int, other: int) -> None:
    total = q.add_int(q.add_int(quantity("0"), number), other)
    assert q.is_integer(total) is (-(2**63) <= number + other < 2**63)


def test_the_least_int_is_subtracted_as_any_other() -> None:
    # 0 - (-2**63) = 2**63, which no int64 holds
    difference = q.sub_int(quantity("0"), -(2**63))
    assert difference == q.add_int(quantity("1"), 2**63 - 1)
    assert not q.is_integer(difference)


@pytest.mark.parametrize(
    "expression",
    [
        "quantity(x).add(quantity('512Mi')) == quantity('1.5Gi') && sign(quantity(x)) == 1",
        "type(quantity(x)) == kubernetes.Quantity",
    ],
)
def test_the_functions_are_part_of_the_language(expression: str) -> None:
    program = compile_program(expression, Environment(variables={"x": DYN}))
    assert program.evaluate({"x": "1Gi"}) is True
