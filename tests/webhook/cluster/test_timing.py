from __future__ import annotations

import random

from hypothesis import given
from hypothesis import strategies as st

from webhook.cluster.timing import Backoff


def test_waits_double_up_to_the_longest_and_begin_anew_after_success() -> None:
    backoff = Backoff(1.0, 5.0, jitter=lambda: 1.0)
    assert [backoff.next() for _ in range(5)] == [1.0, 2.0, 4.0, 5.0, 5.0]
    backoff.reset()
    assert backoff.next() == 1.0


def test_jitter_takes_at_most_half() -> None:
    assert Backoff(4.0, 9.0, jitter=lambda: 0.0).next() == 2.0
    assert Backoff(4.0, 9.0, jitter=lambda: 0.5).next() == 3.0


def test_what_a_server_asks_for_is_the_least_but_not_for_ever() -> None:
    backoff = Backoff(1.0, 5.0, jitter=lambda: 1.0)
    assert backoff.next(30.0) == 30.0
    assert backoff.next(0.5) == 2.0
    assert backoff.next(1e9) == 120.0


@given(st.lists(st.floats(0, 1e6) | st.none(), max_size=40), st.integers())
def test_a_wait_is_never_out_of_bounds(asked: list[float | None], seed: int) -> None:
    backoff = Backoff(0.5, 15.0, random.Random(seed).random)
    for one in asked:
        assert 0.25 <= backoff.next(one) <= 120.0
