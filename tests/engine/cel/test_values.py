from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.cel.errors import CelError
from engine.cel.values import (
    ABSENT,
    BoolKey,
    CelType,
    Duration,
    Timestamp,
    UInt,
    equal,
    key_value,
    lookup_key,
    map_key,
    present,
    to_duration,
    to_int,
    to_timestamp,
    to_uint,
    type_of,
)

SCALARS = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-3, 3),
    st.integers(0, 3).map(UInt),
    st.sampled_from([0.0, 1.0, 2.5]),
    st.sampled_from(["", "a"]),
    st.sampled_from([b"", b"a"]),
    st.integers(0, 2).map(Timestamp),
    st.integers(0, 2).map(Duration),
)
VALUES = st.recursive(
    SCALARS,
    lambda inner: (
        st.lists(inner, max_size=2)
        | st.dictionaries(st.sampled_from(["a", 1, BoolKey.TRUE]), inner, max_size=2)
        | inner.map(present)
    ),
    max_leaves=4,
)


@pytest.mark.parametrize(
    ("left", "right"),
    [(1, UInt(1)), (1, 1.0), (UInt(1), 1.0), ([1, 2], (1.0, UInt(2))), ({1: 1}, {UInt(1): 1.0})],
)
def test_numbers_of_unlike_types_may_be_equal(left: object, right: object) -> None:
    assert equal(left, right)
    assert equal(right, left)


@pytest.mark.parametrize(
    ("left", "right"),
    [
        (1, True),
        (0, False),
        (0, None),
        ("a", b"a"),
        ([1], [True]),
        ({"a": 1}, {"a": True}),
        ({1: 1}, {BoolKey.TRUE: 1}),
        ([], {}),
        (Timestamp(0), Duration(0)),
        (present(1), ABSENT),
        (present(None), None),
        (math.nan, math.nan),
        ([math.nan], [math.nan]),
    ],
)
def test_these_are_different_and_no_error(left: object, right: object) -> None:
    assert not equal(left, right)
    assert not equal(right, left)


@given(VALUES, VALUES)
def test_equality_is_symmetric_and_never_fails(left: object, right: object) -> None:
    assert equal(left, left)
    assert equal(left, right) is equal(right, left)


def test_an_integer_beside_a_double_is_rounded_to_one() -> None:
    # 2**53 + 1 has no double of its own; its nearest is 2**53
    assert equal(2**53 + 1, 2.0**53)
    assert not equal(2**53 + 1, UInt(2**53))


def test_the_keys_of_a_map_tell_true_from_one() -> None:
    entries = {map_key(key): key for key in (1, True, "1")}
    assert len(entries) == 3
    assert entries[lookup_key(True)] is True  # noqa: FBT003 (a key)
    assert type(entries[lookup_key(1.0)]) is int
    assert type(entries[lookup_key(UInt(1))]) is int
    assert [key_value(key) for key in entries] == [1, True, "1"]


@pytest.mark.parametrize("value", [None, 1.5, b"a", [], {}])
def test_only_bools_integers_and_strings_are_keys(value: object) -> None:
    with pytest.raises(CelError):
        map_key(value)


def test_integers_and_times_have_bounds() -> None:
    assert to_int(2**63 - 1) == 2**63 - 1
    assert type(to_uint(2**64 - 1)) is UInt
    year_10000 = 253_402_300_800 * 10**9
    assert to_timestamp(year_10000 - 1) == Timestamp(year_10000 - 1)
    for beyond in (
        lambda: to_int(2**63),
        lambda: to_int(-(2**63) - 1),
        lambda: to_uint(-1),
        lambda: to_uint(2**64),
        lambda: to_timestamp(year_10000),
        lambda: to_duration(2**63),
    ):
        with pytest.raises(CelError):
            beyond()


def test_every_value_has_a_type() -> None:
    values: list[object] = [None, True, 1, UInt(1), 1.0, "", b"", [], (), {}]
    assert [type_of(value).name for value in values] == [
        "null_type", "bool", "int", "uint", "double", "string", "bytes", "list", "list", "map",
    ]  # fmt: skip
    assert type_of(CelType("int")) == CelType("type")
    with pytest.raises(CelError):
        type_of(object())
