from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from webhook.placement.shares import Shares


def taken(shares: Shares, namespace: str) -> int:
    """Return how often a namespace finds room for one more, and takes it."""
    count = 0
    while shares.has_room(namespace, 1):
        shares.take(namespace, 1)
        count += 1
    return count


def test_each_namespace_may_have_what_is_left() -> None:
    # a has 50 of 100, b half of the other 50, c half of the other 25 (12 + 1 <= 25 - 12).
    shares = Shares(100)
    assert [taken(shares, name) for name in "abc"] == [50, 25, 13]
    assert taken(shares, "a") == 0
    shares.take("a", -50)
    assert taken(shares, "b") == 19  # 18 more, so 43 + 1 <= 62 - 18, and 44 + 1 > 62 - 19
    assert not Shares(0).has_room("a", 1)


@given(st.lists(st.sampled_from("abcde"), max_size=300))
def test_no_more_is_taken_than_there_is_and_something_is_left(asked: list[str]) -> None:
    shares, count = Shares(100), 0
    for namespace in asked:
        if shares.has_room(namespace, 1):
            shares.take(namespace, 1)
            count += 1
    assert count < 100
    assert shares.has_room("another", 1)
