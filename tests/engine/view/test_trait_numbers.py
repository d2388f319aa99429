from __future__ import annotations

from collections import Counter

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from engine.view.trait_numbers import with_number, without_number

_NUMBERS = st.lists(st.sampled_from([0, 1, 255, 256, 257, 65_536, 65_537, 2**24]), min_size=1)


@given(_NUMBERS, st.data())
def test_numbers_that_were_added_can_be_taken_out_one_by_one(
    numbers: list[int], data: st.DataObject
) -> None:
    text = b""
    for number in numbers:
        text = with_number(text, number)
    for count, number in enumerate(data.draw(st.permutations(numbers)), 1):
        text = without_number(text, number)
        assert len(text) == 4 * (len(numbers) - count)
    assert text == b""


@given(_NUMBERS, st.data())
def test_only_the_number_that_is_meant_goes(numbers: list[int], data: st.DataObject) -> None:
    gone = data.draw(st.sampled_from(numbers))
    text = b"".join(with_number(b"", number) for number in numbers)
    left = np.frombuffer(without_number(text, gone), np.int32).tolist()
    assert Counter(left) == Counter(numbers) - Counter([gone])


def test_a_number_may_be_added_several_times() -> None:
    assert np.frombuffer(with_number(b"", 7, 3), np.int32).tolist() == [7, 7, 7]
    assert with_number(b"", 7, 0) == b""
