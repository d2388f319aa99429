"""The numbers of the traits of the pods on a row, one after another, as int32.

Such a text is never changed, so views of different moments share it.
"""

from __future__ import annotations

from sys import byteorder
from typing import Final

NUMBER_BYTES: Final = 4


def with_number(numbers: bytes, number: int, times: int = 1) -> bytes:
    """Return numbers with another one, so many times."""
    return numbers + number.to_bytes(NUMBER_BYTES, byteorder) * times


def without_number(numbers: bytes, number: int) -> bytes:
    """Return numbers without one of those that are equal to the given one, which is there."""
    sought = number.to_bytes(NUMBER_BYTES, byteorder)
    at = numbers.index(sought)
    while at % NUMBER_BYTES:  # parts of two others that look alike
        at = numbers.index(sought, at + 1)
    return numbers[:at] + numbers[at + NUMBER_BYTES :]
