from __future__ import annotations

import numpy as np
import pytest

from engine.cel import UInt
from engine.cel.vector import Column, packed, unpacked
from engine.cel.vector.columns import constant


@pytest.mark.parametrize(
    "values",
    [
        np.array([True, False, True]),
        np.array([2**63 - 1, -(2**63), 2**53 + 1]),
        np.array([0.5, float("nan"), -0.0]),
    ],
)
@pytest.mark.parametrize("faults", [None, np.array([False, True, False])])
def test_a_packed_column_comes_out_as_it_went_in(
    values: np.ndarray[tuple[int], np.dtype[np.generic]],
    faults: np.ndarray[tuple[int], np.dtype[np.bool_]] | None,
) -> None:
    found = unpacked(packed(Column(values, faults)))
    assert found.values.dtype == values.dtype
    assert found.values.tolist().__repr__() == values.tolist().__repr__()
    assert (found.faults is None) is (faults is None)
    if faults is not None:
        assert found.faults is not None
        assert found.faults.tolist() == faults.tolist()


def test_a_column_without_a_fault_has_no_mask() -> None:
    column = Column(np.array([1.0, 2.0]), np.array([False, False]))
    assert unpacked(packed(column)).faults is None


@pytest.mark.parametrize(
    ("value", "kind"),
    [
        (True, "b"),
        (2**63 - 1, "i"),
        (0.5, "f"),
        (2**63, "O"),  # no int of 64 bits
        (UInt(1), "O"),
        ("a", "O"),
        ([1, 2], "O"),
        (None, "O"),
    ],
)
def test_a_constant_is_one_value_of_its_type(value: object, kind: str) -> None:
    column = constant(value)
    assert (column.values.shape, column.values.dtype.kind) == ((), kind)
    assert column.values.item() == value
