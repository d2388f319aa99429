from __future__ import annotations

from collections.abc import Callable
from decimal import Decimal, localcontext
from fractions import Fraction
from math import ceil, copysign

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.errors import QuantityError
from engine.model.quantity import (
    CACHES,
    INT64_MAX,
    INT64_MIN,
    MAX_DIGITS,
    MAX_TEXT,
    Format,
    Quantity,
    amount_text,
    base_units,
    in_base_units,
    is_extended,
    is_scalar,
    parse_quantity,
    quantity_of,
)


@pytest.mark.parametrize(
    "name",
    [
        "nvidia.com/gpu",
        "n/e",
        "a.b-c.d/A_b.c-1",
        "a" * 244 + "/" + "b" * 63,
    ],
)
def test_a_qualified_name_outside_kubernetes_is_an_extended_resource(name: str) -> None:
    assert is_extended(name)
    assert is_scalar(name)


@pytest.mark.parametrize(
    "name",
    [
        "hugepages-2Mi",
        "attachable-volumes-csi-ebs",
        "kubernetes.io/batch-cpu",
        "sub.kubernetes.io/thing",
    ],
)
def test_the_families_of_kubernetes_itself_are_scalar_but_not_extended(name: str) -> None:
    assert not is_extended(name)
    assert is_scalar(name)


@pytest.mark.parametrize(
    "name",
    [
        "cpu",
        "memory",
        "ephemeral-storage",
        "pods",
        "gpu",
        "",
        "requests.nvidia.com/gpu",
        "NVIDIA.com/gpu",
        "nvidia..com/gpu",
        "nvidia.com/",
        "nvidia.com/gpu/1",
        "nvidia.com/-gpu",
        "nvidia.com/gpu\n",
        "a" * 245 + "/b",
        "a/" + "b" * 64,
        "a" * 1_000_000,
    ],
)
def test_every_other_name_is_counted_nowhere(name: str) -> None:
    assert not is_scalar(name)


FACTORS = {
    "n": Fraction(1, 10**9),
    "u": Fraction(1, 10**6),
    "m": Fraction(1, 1000),
    "": Fraction(1),
    "k": Fraction(10**3),
    "M": Fraction(10**6),
    "G": Fraction(10**9),
    "T": Fraction(10**12),
    "P": Fraction(10**15),
    "E": Fraction(10**18),
    "Ki": Fraction(2**10),
    "Mi": Fraction(2**20),
    "Gi": Fraction(2**30),
    "Ti": Fraction(2**40),
    "Pi": Fraction(2**50),
    "Ei": Fraction(2**60),
} | {f"e{exponent}": Fraction(10) ** exponent for exponent in range(-20, 31)}

numbers = st.from_regex(r"[+-]?([0-9]{1,20}(\.[0-9]{0,15})?|\.[0-9]{1,15})", fullmatch=True)
texts = st.tuples(numbers, st.sampled_from(sorted(FACTORS)))
quantities = texts.map("".join).map(parse_quantity)


def _away_from_zero(value: Fraction) -> int:
    return int(copysign(1, value)) * ceil(abs(value))


def _oracle(number: str, suffix: str) -> Fraction:
    """Return the value by the book: exact, then up to a whole nano, then capped if binary."""
    with localcontext(prec=60):
        exact = Fraction(Decimal(number)) * FACTORS[suffix]
    value = Fraction(_away_from_zero(exact * 10**9), 10**9)
    if suffix.endswith("i"):
        return max(min(value, Fraction(INT64_MAX)), Fraction(-INT64_MAX))
    return value


def _value(quantity: Quantity) -> Fraction:
    return Fraction(quantity.nanos, 10**9)


def _clamped(value: int) -> int:
    return max(min(value, INT64_MAX), INT64_MIN)


@given(texts)
def test_a_text_has_the_value_its_digits_and_suffix_say(text: tuple[str, str]) -> None:
    assert _value(parse_quantity("".join(text))) == _oracle(*text)


@given(quantities)
def test_reading_an_integer_rounds_away_from_zero_and_saturates(quantity: Quantity) -> None:
    value = _value(quantity)
    assert quantity.value() == _clamped(_away_from_zero(value))
    assert quantity.milli_value() == _clamped(_away_from_zero(value * 1000))


@given(quantities, st.integers(-12, 12))
def test_rounding_up_gives_the_next_multiple_away_from_zero(quantity: Quantity, scale: int) -> None:
    unit = Fraction(10) ** scale
    rounded, exact = quantity.round_up(scale)
    assert _value(rounded) == _away_from_zero(_value(quantity) / unit) * unit
    assert exact == (rounded == quantity)
    assert quantity.scaled_value(scale) == _clamped(_away_from_zero(_value(quantity) / unit))


@given(quantities, quantities)
def test_quantities_are_ordered_by_value_alone(x: Quantity, y: Quantity) -> None:
    assert (x < y) == (_value(x) < _value(y))
    assert (x == y) == (_value(x) == _value(y))
    assert x.compare(y) == (x - y).sign == -y.compare(x)


@given(quantities, quantities)
def test_sums_and_differences_are_exact(x: Quantity, y: Quantity) -> None:
    assert _value(x + y) == _value(x) + _value(y)
    assert (x + y) - y == x


@given(quantities)
def test_the_canonical_text_keeps_the_value_and_is_its_own_canonical_text(
    quantity: Quantity,
) -> None:
    again = parse_quantity(quantity.canonical())
    assert again == quantity
    assert again.canonical() == quantity.canonical()
    assert parse_quantity(str(quantity)) == quantity


@given(quantities)
def test_an_integer_is_a_whole_number_within_int64(quantity: Quantity) -> None:
    value = _value(quantity)
    if quantity.is_integer:
        assert value.denominator == 1
        assert INT64_MIN <= value <= INT64_MAX


@given(quantities, quantities)
def test_what_is_counted_as_an_int64_has_as_many_whole_units(x: Quantity, y: Quantity) -> None:
    for quantity in (x, y, x + y, x - y, (x + y) - y):
        if quantity.scale is not None:
            count = _value(quantity) / Fraction(10) ** quantity.scale
            assert count.denominator == 1
            assert INT64_MIN <= count <= INT64_MAX


@pytest.mark.parametrize(
    ("text", "whole"),
    [("1", True), ("1k", True), ("1.5G", True), ("1000m", False), ("1.5Gi", False), ("1.0", False)],
)
def test_only_amounts_that_upstream_counts_in_whole_units_are_integers(
    text: str, *, whole: bool
) -> None:
    assert parse_quantity(text).is_integer is whole


@settings(max_examples=200)
@given(st.text(alphabet="0123456789.+-eEinumkKMGTP x", max_size=2 * MAX_TEXT))
def test_any_text_is_either_a_bounded_value_or_a_quantity_error(text: str) -> None:
    try:
        quantity = parse_quantity(text)
    except QuantityError:
        return
    assert len(quantity.canonical()) <= 2 * MAX_DIGITS
    assert float(_value(quantity)) < float("inf")


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("1e103", INT64_MAX),
        ("10e102", INT64_MAX),
        ("-1e103", INT64_MIN),
        ("9" * 129, INT64_MAX),
        ("1" * 1_000_000, INT64_MAX),
        ("1" * 1_000_000 + "Ki", INT64_MAX),
        ("0" * 1_000_000, 0),
        ("0" * 1_000_000 + "7", 7),
        ("0." + "0" * 1_000_000, 0),
        ("0." + "0" * 1_000_000 + "1Ei", 1),
        ("7." + "0" * 1_000_000 + "1", 8),
        ("1e" + "0" * 1_000_000, 1),
        ("1e1000000000", INT64_MAX),
        ("1e-1000000000", 1),
        ("0e1000000000", 0),
        ("1" + "0" * 300 + "e-300", 1),
        ("0." + "0" * 299 + "1e300", 1),
        (" " * 1_000_000 + "1", 1),
        # Upstream keeps 32 bits of the exponent.
        ("1e4294967298", 100),
        ("1e-4294967293", 1000),
        ("1.5e4294967297", 15),
    ],
    ids=lambda text: str(text)[:20],
)
def test_whatever_kubernetes_accepts_is_read_within_bounds(text: str, value: int) -> None:
    assert quantity_of(text).value() == value
    assert base_units("memory", text) == value


def test_greater_texts_never_have_lesser_values() -> None:
    powers = [*range(90, 110), 200, 246, 247, 248, 249, 300, 2**31 - 1]
    values = [parse_quantity(f"1e{power}") for power in powers]
    assert values == sorted(values)
    assert values[0] < values[powers.index(246)] < values[powers.index(249)] == values[-1]


def test_texts_that_are_too_long_do_not_stay_in_memory() -> None:
    before = sum(cache.cache_info().currsize for cache in CACHES)
    for length in range(MAX_TEXT + 1, MAX_TEXT + 100):
        quantity_of("0" * length)
        base_units("cpu", "0" * length)
    assert sum(cache.cache_info().currsize for cache in CACHES) == before


@pytest.mark.parametrize(
    "text",
    [
        "1e99999999999999999999",
        "E" * 1_000_000,
        "x" * 1_000_000,
        "1" * 1_000_000 + "e" + "1" * 1_000_000,
    ],
    ids=lambda text: text[:20],
)
def test_the_error_about_a_long_text_is_short(text: str) -> None:
    with pytest.raises(QuantityError) as caught:
        quantity_of(text)
    assert len(str(caught.value)) < 2 * MAX_TEXT


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("", "format"),
        ("1GB", "format"),
        (" 1", "format"),
        ("1\n", "format"),
        ("१", "format"),  # a digit, but not one of Kubernetes'
        ("1K", "suffix"),
        ("1e", "suffix"),
        ("--1", "suffix"),
        ("1e9223372036854775808", "suffix"),
        # Upstream reads a missing number as zero, but only where it needs no big numbers.
        ("Pi", "numeric"),
        ("-.Ei", "numeric"),
        ("e-10", "numeric"),
    ],
)
def test_an_error_says_which_part_is_wrong(text: str, kind: str) -> None:
    with pytest.raises(QuantityError) as caught:
        parse_quantity(text)
    assert caught.value.kind == kind


@pytest.mark.parametrize(
    ("text", "canonical"),
    [
        ("1024E", "1024E"),
        ("1000E", "1000E"),  # upstream has no suffix for 10**21 and would print `1`
        ("1e21", "1e21"),
        ("7Ei", "7Ei"),
    ],
)
def test_values_past_exa_keep_their_zeros(text: str, canonical: str) -> None:
    assert parse_quantity(text).canonical() == canonical


def test_a_binary_sum_past_exa_keeps_its_value() -> None:
    # 1024 * 1Ei = 2**70, which has no suffix of its own
    total = sum([parse_quantity("1Ei")] * 1024, Quantity(0))
    assert total.format is Format.BINARY_SI
    assert total.canonical() == "1024Ei"


def test_a_sum_takes_the_format_of_its_first_operand_that_is_not_zero() -> None:
    # 1,073,741,824 + 1,024,000,000 = 2,048,576 * 1024
    assert str(parse_quantity("1Gi") + parse_quantity("1024M")) == "2048576Ki"
    assert str(parse_quantity("1024M") + parse_quantity("1Gi")) == "2097741824"
    assert str(parse_quantity("1Gi") + parse_quantity("1024Mi")) == "2Gi"
    assert str(parse_quantity("0") + parse_quantity("1024Mi")) == "1Gi"
    assert str(parse_quantity("0") - parse_quantity("1024Mi")) == "-1Gi"


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (None, "0"),
        (2, "2"),
        (-1, "-1"),
        (0.5, "500m"),
        (1e21, "1e21"),
        (" 1Gi\t", "1Gi"),
        (2**70, "1180591620717411303424"),
    ],
)
def test_json_numbers_null_and_padded_strings_are_quantities(
    value: str | float | None, text: str
) -> None:
    assert quantity_of(value).canonical() == text


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_numbers_that_are_none_are_refused(value: float) -> None:
    with pytest.raises(QuantityError):
        quantity_of(value)


@pytest.mark.parametrize("value", [1e101, 10**MAX_TEXT, 10**5_000], ids=["float", "int", "long"])
def test_numbers_out_of_range_are_the_greatest(value: float) -> None:
    assert quantity_of(value).value() == INT64_MAX
    assert quantity_of(-value).value() == INT64_MIN


@pytest.mark.parametrize(
    ("name", "value", "amount"),
    [
        ("cpu", "250m", 250),
        ("cpu", "100u", 1),  # a tenth of a millicore is at least one
        ("cpu", 2, 2000),
        ("cpu", "1E", INT64_MAX),  # 10**21 millicores
        ("memory", "1500m", 2),
        ("memory", "0.3Gi", 322_122_548),  # 322,122,547.2 bytes
        ("memory", "-20E", INT64_MIN),
        ("kubernetes.io/batch-cpu", "1500", 1500),
        ("nvidia.com/gpu", None, 0),
    ],
)
def test_base_units_are_millicores_for_cpu_and_whole_units_for_the_rest(
    name: str, value: str | float | None, amount: int
) -> None:
    assert base_units(name, value) == amount
    assert in_base_units(name, quantity_of(value).nanos) == amount


@pytest.mark.parametrize(
    ("name", "amount", "text"),
    [
        ("cpu", 1500, "1500m"),
        ("cpu", 2000, "2"),
        ("memory", 2**31, "2Gi"),
        ("memory", 1500, "1500"),
        ("hugepages-2Mi", 2**21, "2Mi"),
        ("nvidia.com/gpu", 1000, "1k"),
    ],
)
def test_an_amount_is_written_in_the_units_of_its_resource(
    name: str, amount: int, text: str
) -> None:
    assert amount_text(name, amount) == text
    assert base_units(name, text) == amount


def _outcome(read: Callable[[], int]) -> int | str:
    """Return an amount, or what is wrong with its text."""
    try:
        return read()
    except QuantityError as error:
        return str(error)


@given(
    st.one_of(
        st.tuples(st.from_regex(r"[0-9]{1,22}", fullmatch=True), st.sampled_from(sorted(FACTORS))),
        st.tuples(numbers, st.text("numkKMGTPEi", max_size=3)),
        st.tuples(
            st.text(" +-.0123456789\u0663\uff11", max_size=6), st.sampled_from(["", "m", "Ki"])
        ),
    ).map("".join),
    st.sampled_from(["cpu", "memory"]),
)
@settings(max_examples=300)
def test_everyday_texts_are_read_as_all_others(text: str, name: str) -> None:
    def exact() -> int:
        quantity = parse_quantity(text.strip())
        return quantity.milli_value() if name == "cpu" else quantity.value()

    assert _outcome(lambda: base_units(name, text)) == _outcome(exact)


@pytest.mark.parametrize(
    ("name", "text", "amount"),
    [
        ("cpu", "1500000001n", 1501),
        ("cpu", "1500000000n", 1500),
        ("cpu", "1n", 1),
        ("cpu", "0n", 0),
        ("cpu", "123m", 123),
        ("cpu", "007", 7000),
        ("memory", "123m", 1),
        ("memory", "123Ki", 123 * 1024),
        ("memory", "123", 123),
        ("memory", "9223372036854775807", INT64_MAX),
        ("memory", "9223372036854775808", INT64_MAX),
        ("memory", "8Ei", INT64_MAX),
        ("cpu", "9223372036854776", INT64_MAX),
    ],
)
def test_amounts_of_everyday_texts(name: str, text: str, amount: int) -> None:
    assert base_units(name, text) == amount
