from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.eviction.candidates import RunningPod
from engine.eviction.guards import (
    BACK_OFF,
    LEAST_REST,
    MOST_KEPT,
    MOST_REST,
    PAUSE,
    WINDOW,
    GuardState,
    OwnerHits,
    is_backed_off,
    is_paused,
    may_be_evicted,
    most_in_flight,
    with_eviction,
    with_outcome,
)
from engine.model.time import SECOND, Micros


def _at(seconds: int) -> Micros:
    return Micros(seconds * SECOND)


def _of(owner: str) -> RunningPod:
    return RunningPod(
        key="batch/pod", uid="uid", namespace="batch", labels={}, owner=owner, priority=0
    )


def _hit(state: GuardState, bound: int, now: int, owner: str = "set") -> GuardState:
    """Return the state after a pod is evicted that was bound then; in seconds."""
    return with_eviction(state, f"uid-{now}", owner, _at(bound), _at(now))


def _may(state: GuardState, bound: int, now: int) -> bool:
    return may_be_evicted(state, _of("set"), _at(bound), _at(now))


def test_pods_that_ran_before_their_owner_was_hit_may_go_at_any_time() -> None:
    state = GuardState()
    for second in range(100, 400):  # 300 pods of one owner, one after the other
        assert _may(state, bound=50, now=second)
        state = _hit(state, bound=50, now=second)
    assert state.owners["set"] == OwnerHits(_at(100))


def test_a_pod_that_came_back_is_spared_for_twice_as_long_each_time() -> None:
    state = _hit(GuardState(), bound=50, now=100)
    # 100 + 60
    assert not _may(state, bound=105, now=159)
    assert _may(state, bound=105, now=160)
    state = _hit(state, bound=105, now=160)
    # 160 + 60 x 2; what came back in that round with it goes at once
    assert _may(state, bound=110, now=161)
    assert not _may(state, bound=170, now=279)
    assert _may(state, bound=170, now=280)
    state = _hit(state, bound=170, now=280)
    assert not _may(state, bound=290, now=519)  # 280 + 60 x 4
    state = _hit(state, bound=290, now=520)
    assert not _may(state, bound=530, now=819)  # 520 + 300, which is less than 60 x 8
    assert _may(state, bound=530, now=820)


def test_other_owners_may_be_hit_meanwhile() -> None:
    state = _hit(GuardState(), bound=50, now=100)
    assert may_be_evicted(state, _of("other"), _at(105), _at(106))


def test_an_owner_that_was_left_alone_begins_anew() -> None:
    again = 100 + (LEAST_REST + MOST_REST) // SECOND
    state = _hit(GuardState(), bound=50, now=100)
    assert _hit(state, bound=105, now=again).owners["set"].returns == 0
    assert _hit(state, bound=105, now=again - 1).owners["set"].returns == 1


def test_a_pod_without_an_owner_never_comes_back() -> None:
    assert with_eviction(GuardState(), "uid", "uid", _at(1), _at(2)) == GuardState()


@pytest.mark.parametrize(
    ("pods", "percent", "expected"),
    [(10, 10, 10), (109, 10, 10), (240, 10, 24), (240, 100, 240), (240, 0, 10)],
)
def test_a_part_of_the_pods_of_a_namespace_and_ten_of_few_are_evicted_at_a_time(
    pods: int, percent: int, expected: int
) -> None:
    assert most_in_flight(pods, percent) == expected


def test_two_failed_plans_hold_a_pod_for_ten_minutes() -> None:
    state = with_outcome(GuardState(), "pod", "shop", _at(0), bound=False)
    assert not is_backed_off(state, "pod", _at(1))
    state = with_outcome(state, "pod", "shop", _at(10), bound=False)
    assert is_backed_off(state, "pod", _at(10 + 599))
    assert not is_backed_off(state, "other", _at(11))
    assert not is_backed_off(state, "pod", _at(10 + 600))


def test_a_binding_forgets_the_failures_of_a_pod() -> None:
    state = with_outcome(GuardState(), "pod", "shop", _at(0), bound=False)
    state = with_outcome(state, "pod", "shop", _at(1), bound=True)
    state = with_outcome(state, "pod", "shop", _at(2), bound=False)
    assert not is_backed_off(state, "pod", _at(3))


@pytest.mark.parametrize(("failed", "expected"), [(4, False), (5, True)])
def test_reclaim_pauses_for_a_namespace_of_which_fewer_than_four_in_five_are_bound(
    failed: int, *, expected: bool
) -> None:
    state = GuardState()
    for i in range(WINDOW):
        state = with_outcome(state, f"{i}", "shop", _at(0), bound=i >= failed)
    assert is_paused(state, "shop", _at(1)) is expected
    assert not is_paused(state, "lab", _at(1))
    assert not is_paused(state, "shop", Micros(PAUSE))


def test_failures_before_the_last_twenty_do_not_count() -> None:
    state = GuardState()
    for i in range(4):
        state = with_outcome(state, f"{i}", "shop", _at(0), bound=False)
    for i in range(17):
        state = with_outcome(state, f"ok-{i}", "shop", _at(1), bound=True)
    assert not is_paused(with_outcome(state, "late", "shop", _at(2), bound=False), "shop", _at(3))


_steps = st.lists(
    st.tuples(
        st.integers(0, 200),  # seconds since the step before
        st.sampled_from(["evict", "evict", "bound", "failed"]),
        st.integers(0, 4),  # owner, or namespace of the preemptor
        st.integers(0, 600),  # for how long the evicted pod has run
    ),
    max_size=60,
)


@given(_steps)
def test_guards_hold_over_any_history(steps: list[tuple[int, str, int, int]]) -> None:
    state, now = GuardState(), 0
    returned: dict[str, int] = {}  # when each owner last lost a pod that had come back
    first: dict[str, int] = {}  # when pods of each owner were last hit that had not
    for number, (wait, step, who, age) in enumerate(steps):
        now += wait
        owner, bound = f"owner-{who}", now - age
        if step == "evict":
            if not may_be_evicted(state, _of(owner), _at(bound), _at(now)):
                continue
            last = max(returned.get(owner, -1000), first.get(owner, -1000))
            if bound > last and owner in first and now - last < MOST_REST // SECOND:
                assert now - last >= LEAST_REST // SECOND
            hits = state.owners.get(owner)
            state = with_eviction(state, f"pod-{number}", owner, _at(bound), _at(now))
            if hits is None or bound > hits.since // SECOND:
                first.setdefault(owner, now)
                returned[owner] = now
        else:
            state = with_outcome(state, f"preemptor-{who}", owner, _at(now), bound=step == "bound")
        assert all(len(window) <= WINDOW for window in state.outcomes.values())


def test_what_no_guard_asks_for_is_forgotten() -> None:
    state = with_outcome(GuardState(), "pod", "shop", _at(0), bound=False)
    state = _hit(state, bound=0, now=1, owner="set")
    state = _hit(state, bound=0, now=2 * MOST_REST // SECOND, owner="other")
    assert set(state.owners) == {"other"}
    late = with_outcome(state, "later", "lab", Micros(BACK_OFF), bound=True)
    assert not late.failures
    assert "lab" not in late.outcomes  # nothing has failed for it


def test_no_more_is_remembered_than_fits_the_record() -> None:
    state = GuardState()
    for i in range(MOST_KEPT + 5):
        state = with_eviction(state, f"{i}", f"owner-{i}", _at(0), _at(1))
    assert len(state.owners) == MOST_KEPT
    assert "owner-4" not in state.owners
    assert f"owner-{MOST_KEPT + 4}" in state.owners
