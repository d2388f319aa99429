from __future__ import annotations

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.eviction import completed
from engine.eviction.steps import BoundedTest, TooManySetsError, fewest_enough


def test_the_first_are_preferred() -> None:
    # 1 and 4 together are enough, and so are 2 and 3: whoever comes first stays out last.
    def is_enough(chosen: Sequence[int]) -> bool:
        return {1, 4} <= {*chosen} or {2, 3} <= {*chosen}

    assert completed(fewest_enough([1, 2, 3, 4], is_enough)) == [2, 3]  # the last, 4, is not needed
    assert completed(fewest_enough([4, 1, 2, 3], is_enough)) == [4, 1]
    assert completed(fewest_enough([1, 2], is_enough)) is None


def test_nothing_is_taken_where_nothing_is_needed() -> None:
    assert completed(fewest_enough([1, 2], lambda _: True)) == []


@given(
    st.lists(st.integers(0, 30), unique=True),
    st.lists(st.frozensets(st.integers(0, 30), max_size=4), max_size=4),
)
def test_a_set_is_enough_and_none_of_it_can_be_spared(
    ordered: list[int], enough: list[frozenset[int]]
) -> None:
    def is_enough(chosen: Sequence[int]) -> bool:
        return any(each <= {*chosen} for each in enough)

    found = completed(fewest_enough(ordered, is_enough))
    assert (found is None) == (not is_enough(ordered))
    if found is not None:
        assert is_enough(found)
        assert not any(is_enough([each for each in found if each != spared]) for spared in found)
        # The last of it is needed: those before it are not enough.
        if found:
            last = max(map(ordered.index, found))
            assert not is_enough(ordered[:last])


def test_few_sets_are_tried_of_many() -> None:
    tried = []

    def is_enough(chosen: Sequence[int]) -> bool:
        tried.append(chosen)
        return {300, 700} <= {*chosen}

    assert completed(fewest_enough(range(1000), is_enough)) == [300, 700]
    assert len(tried) <= 2 * 2 * 9 + 2 * 2 + 2  # 2k log2(n / k) + 2k, and the two at first


def test_the_bound_holds() -> None:
    test = BoundedTest[int](lambda chosen: 7 in chosen, 3)
    with pytest.raises(TooManySetsError):
        completed(fewest_enough(range(1000), test))
