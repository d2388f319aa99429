from __future__ import annotations

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from engine.model.time import SECOND, Micros
from engine.view.assumed import Assumed, AssumedPods, in_flight_key

IN_FLIGHT = (in_flight_key("1"), in_flight_key("2"))
KEYS = st.sampled_from(["x/p", "x/q", "y/r", IN_FLIGHT[0], IN_FLIGHT[1]])
NODES = st.lists(st.sampled_from("abc"), max_size=4)
NONE = st.builds(list[str])
HOLD = st.tuples(st.just("hold"), KEYS, NODES, st.integers(0, 30))
FORGET = st.tuples(st.just("forget"), KEYS, NONE, st.just(0))
EXPIRE = st.tuples(st.just("expire"), KEYS, NONE, st.integers(0, 60))
LIFETIME = {True: 5, False: 20}
"""In seconds, by whether a pod is in flight."""


def moment(seconds: int) -> Micros:
    return Micros(seconds * SECOND)


@given(st.lists(HOLD | FORGET | EXPIRE, max_size=40))
def test_what_is_held_is_what_was_held_last_and_is_not_too_old(
    steps: list[tuple[str, str, list[str], int]],
) -> None:
    pods = AssumedPods(assumed_seconds=LIFETIME[False], in_flight_seconds=LIFETIME[True])
    left: dict[str, Assumed] = {}
    latest = 0
    for do, key, nodes, seconds in steps:
        if do == "hold":
            pods.hold(key, nodes, moment(seconds))
            left[key] = Assumed(tuple(nodes), moment(seconds))
        elif do == "forget":
            pods.forget(key)
            left.pop(key, None)
        else:
            if seconds < latest:  # the clock was set back
                for known, assumed in left.items():
                    since = min(assumed.since, moment(seconds))
                    left[known] = msgspec.structs.replace(assumed, since=since)
            latest = seconds
            expired = {
                known: assumed
                for known, assumed in left.items()
                if assumed.nodes
                and assumed.since + moment(LIFETIME[known[0] == "/"]) <= moment(seconds)
            }
            assert sorted(pods.expire(moment(seconds))) == sorted(expired)
            for known, assumed in expired.items():
                if known.startswith("/"):
                    del left[known]
                else:  # it is remembered that it was assumed for long enough
                    left[known] = Assumed((), assumed.since)
        for known in ("x/p", "x/q", "y/r", *IN_FLIGHT):
            assert pods.get(known) == left.get(known)
        assert pods.in_flight == sum(known.startswith("/") for known in left)
        for name in "abc":
            naming = {known for known, assumed in left.items() if name in assumed.nodes}
            assert set(pods.advised_to(name)) == naming


def test_only_the_first_few_nodes_count() -> None:
    pods = AssumedPods(300, 10)
    assumed = pods.hold("x/p", [f"n{i}" for i in range(100)], moment(0))
    assert assumed.nodes == ("n0", "n1", "n2", "n3", "n4")


@given(st.lists(st.integers(0, 30), max_size=12), st.integers(1, 4))
def test_what_is_due_may_expire_a_few_at_a_time(moments: list[int], most: int) -> None:
    few, all_ = (AssumedPods(300, in_flight_seconds=5) for _ in range(2))
    for number, seconds in enumerate(moments):
        for pods in (few, all_):
            pods.hold(in_flight_key(f"{number}"), "a", moment(seconds))
            pods.forget(in_flight_key(f"{number - 3}"))  # what is obsolete is looked at too
    now, expired = moment(20), list[str]()
    while few.is_due(now):
        keys = few.expire(now, most)
        assert len(keys) <= most
        expired += keys
    assert expired == all_.expire(now)  # the earliest first
    assert few.in_flight == all_.in_flight
    assert few.expire(now, most) == []


def test_memory_follows_what_is_held_however_often_it_changes() -> None:
    pods = AssumedPods(300, 10)
    for second in range(20_000):
        pods.hold("x/p", "a", moment(second))
        pods.forget("x/p")
        pods.hold("x/p", "b", moment(second))
    assert len(pods._queue) < 2_000  # noqa: SLF001 - what must not grow shows nowhere else
    # The last of them is still found: held since 19,999 s, for 300 s.
    assert pods.expire(moment(20_298)) == []
    assert pods.expire(moment(20_299)) == ["x/p"]
