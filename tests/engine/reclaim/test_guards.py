from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.model.time import SECOND, Micros
from engine.reclaim.guards import (
    BACK_OFF,
    LEAST_COOL_DOWN,
    MINUTE,
    MOST_COOL_DOWN,
    PAUSE,
    ROUND,
    WINDOW,
    GuardState,
    OwnerRounds,
    evictions_allowed,
    is_backed_off,
    is_paused,
    may_be_hit,
    with_end,
    with_eviction,
    with_outcome,
)

PODS = 1_500


def _at(seconds: int) -> Micros:
    return Micros(seconds * SECOND)


def _after_rounds(*begins: int) -> GuardState:
    """Return the state after an eviction of one owner at each of these seconds."""
    state = GuardState()
    for begin in begins:
        state = with_end(with_eviction(state, f"pod-{begin}", "owner", _at(begin)), f"pod-{begin}")
    return state


@pytest.mark.parametrize(
    ("begins", "second", "expected"),
    [
        ((100,), 129, True),  # of the same round
        ((100,), 130, False),
        ((100,), 159, False),
        ((100,), 160, True),  # 100 + 60
        ((100, 160), 279, False),
        ((100, 160), 280, True),  # 160 + 60 x 2
        ((100, 160, 280), 520, True),  # 280 + 60 x 4
        ((100, 160, 280), 519, False),
    ],
)
def test_an_owner_cools_down_twice_as_long_after_each_round(
    begins: tuple[int, ...], second: int, *, expected: bool
) -> None:
    assert may_be_hit(_after_rounds(*begins), "owner", _at(second)) is expected


def test_a_cool_down_is_at_most_an_hour() -> None:
    assert OwnerRounds(_at(0), earlier=40).until == MOST_COOL_DOWN


def test_an_owner_that_was_left_alone_begins_anew() -> None:
    later = 100 + (LEAST_COOL_DOWN + MOST_COOL_DOWN) // SECOND
    assert _after_rounds(100, later).owners["owner"].earlier == 0
    assert _after_rounds(100, later - 1).owners["owner"].earlier == 1


def test_at_most_ten_evicted_pods_are_not_gone_yet() -> None:
    state = GuardState()
    for i in range(10):
        state = with_eviction(state, f"{i}", f"owner-{i}", _at(i * 60))
    assert evictions_allowed(state, PODS, _at(10_000)) == 0
    assert evictions_allowed(with_end(state, "3"), PODS, _at(10_000)) == 1


@pytest.mark.parametrize(("pods", "expected"), [(10, 10), (1_000, 10), (1_500, 15)])
def test_one_in_a_hundred_is_evicted_a_minute_and_ten_of_few(pods: int, expected: int) -> None:
    state, evicted = GuardState(), 0
    while evictions_allowed(state, pods, _at(0)):
        state = with_end(with_eviction(state, f"{evicted}", f"{evicted}", _at(0)), f"{evicted}")
        evicted += 1
    assert evicted == expected
    assert evictions_allowed(state, pods, _at(59)) == 0
    assert evictions_allowed(state, pods, _at(60)) == 10


def test_two_failed_plans_hold_a_pod_for_ten_minutes() -> None:
    state = with_outcome(GuardState(), "pod", _at(0), bound=False)
    assert not is_backed_off(state, "pod", _at(1))
    state = with_outcome(state, "pod", _at(10), bound=False)
    assert is_backed_off(state, "pod", _at(10 + 599))
    assert not is_backed_off(state, "other", _at(11))
    assert not is_backed_off(state, "pod", _at(10 + 600))


def test_a_binding_forgets_the_failures_of_a_pod() -> None:
    state = with_outcome(GuardState(), "pod", _at(0), bound=False)
    state = with_outcome(state, "pod", _at(1), bound=True)
    assert not is_backed_off(with_outcome(state, "pod", _at(2), bound=False), "pod", _at(3))


@pytest.mark.parametrize(("failed", "expected"), [(4, False), (5, True)])
def test_reclaim_pauses_where_fewer_than_four_in_five_end_in_a_binding(
    failed: int, *, expected: bool
) -> None:
    state = GuardState()
    for i in range(WINDOW):
        state = with_outcome(state, f"{i}", _at(0), bound=i >= failed)
    assert is_paused(state, _at(1)) is expected
    assert not is_paused(state, Micros(PAUSE))


def test_failures_before_the_last_twenty_do_not_count() -> None:
    state = GuardState()
    for i in range(4):
        state = with_outcome(state, f"{i}", _at(0), bound=False)
    for i in range(17):
        state = with_outcome(state, f"ok-{i}", _at(1), bound=True)
    assert not is_paused(with_outcome(state, "late", _at(2), bound=False), _at(3))


_steps = st.lists(
    st.tuples(
        st.integers(0, 200),  # seconds since the step before
        st.sampled_from(["evict", "evict", "end", "bound", "failed"]),
        st.integers(0, 4),  # owner or preemptor
    ),
    max_size=60,
)


@given(_steps)
def test_guards_hold_over_any_history(steps: list[tuple[int, str, int]]) -> None:
    state, now, rounds = GuardState(), 0, dict[str, list[int]]()
    in_flight: list[str] = []
    evicted: list[int] = []
    for number, (wait, step, who) in enumerate(steps):
        now += wait
        owner, moment = f"owner-{who}", _at(now)
        if step == "evict" and evictions_allowed(state, 100, moment):
            if not may_be_hit(state, owner, moment):
                continue
            state = with_eviction(state, f"pod-{number}", owner, moment)
            in_flight.append(f"pod-{number}")
            evicted.append(now)
            begins = rounds.setdefault(owner, [])
            if not begins or now - begins[-1] >= ROUND // SECOND:
                assert not begins or now - begins[-1] >= LEAST_COOL_DOWN // SECOND
                begins.append(now)
        elif step == "end" and in_flight:
            state = with_end(state, in_flight.pop(0))
        elif step in {"bound", "failed"}:
            state = with_outcome(state, f"preemptor-{who}", moment, bound=step == "bound")
        assert len(in_flight) <= 10
        assert sum(at > now - MINUTE // SECOND for at in evicted) <= 10
        assert set(state.in_flight) == set(in_flight)
        assert len(state.outcomes) <= WINDOW
        assert len(state.evicted) <= 10


def test_what_no_guard_asks_for_is_forgotten() -> None:
    state = with_outcome(GuardState(), "pod", _at(0), bound=False)
    state = with_eviction(state, "a", "owner", _at(0))
    state = with_eviction(state, "b", "other", Micros(2 * MOST_COOL_DOWN))
    assert set(state.owners) == {"other"}
    assert not state.failures
    assert len(state.evicted) == 1
    assert replace(state, in_flight={}) == with_end(with_end(state, "a"), "b")
    assert BACK_OFF < 2 * MOST_COOL_DOWN
