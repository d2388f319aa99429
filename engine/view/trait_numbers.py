"""The numbers of the traits of the pods on a row, one after another, in four bytes each.

Such a text is never changed, so views of different moments share it.
"""

from __future__ import annotations

from array import array
from typing import Final

_TYPE: Final = "i"
NUMBER_BYTES: Final = array(_TYPE).itemsize


def with_number(numbers: bytes, number: int, times: int = 1) -> bytes:
    """Return numbers with another one, so many times."""
    return numbers + array(_TYPE, (number,)).tobytes() * times


def without_number(numbers: bytes, number: int) -> bytes:
    """Return numbers without one of those that are equal to the given one."""
    left = array(_TYPE, numbers)
    left.remove(number)
    return left.tobytes()
