from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.quota import Allowance, AllowanceConfig, Reservation, Reservations
from engine.quota.reservations import LocalAllowance, decode, encode

TEXT = st.text(max_size=20)
NATURAL = st.integers(0, 2**63 - 1)
RESERVATION = st.builds(
    Reservation,
    uid=TEXT,
    name=TEXT,
    amounts=st.dictionaries(TEXT, NATURAL, max_size=3),
    after=NATURAL,
    request=TEXT,
)


@given(NATURAL, st.lists(RESERVATION, max_size=5), TEXT)
def test_what_is_written_can_be_read(version: int, listed: list[Reservation], uid: str) -> None:
    reservations = Reservations(version, {reservation.key: reservation for reservation in listed})
    assert decode(encode(reservations, uid), uid) == reservations


def test_the_annotation_can_be_read_by_people() -> None:
    new = Reservation("u-1", "web-1", {"cpu": 500, "pods": 1})
    grown = Reservation("u-2", "web-2", {"cpu": 250}, 77, "r-9")
    text = encode(Reservations(42, {new.key: new, grown.key: grown}), "q-1")
    assert json.loads(text) == {
        "quota": "q-1",
        "seenUpTo": 42,
        "reserved": [
            {"uid": "u-1", "name": "web-1", "amounts": {"cpu": 500, "pods": 1}},
            {
                "uid": "u-2",
                "name": "web-2",
                "amounts": {"cpu": 250},
                "after": 77,
                "request": "r-9",
            },
        ],
    }


def test_no_annotation_means_no_reservations() -> None:
    assert decode("", "q") == Reservations()


def test_the_annotation_of_another_object_says_nothing() -> None:
    text = encode(Reservations(42, {"u": Reservation("u", "a", {"cpu": 1})}), "q-1")
    assert decode(text, "q-2") == Reservations()


@pytest.mark.parametrize(
    "text",
    [
        "what?",
        "[]",
        "\ud800",
        "[" * 100_000,
        '{"quota":"q","seenUpTo":-1,"reserved":[]}',
        '{"quota":"q","seenUpTo":99999999999999999999,"reserved":[]}',
        '{"quota":"q","seenUpTo":1,"reserved":[{"uid":"u","name":"a","amounts":{"cpu":-5}}]}',
        '{"quota":"q","seenUpTo":1,"reserved":[]}' + " " * 1024 * 1024,
    ],
)
def test_an_unreadable_annotation_is_not_an_empty_one(text: str) -> None:
    assert decode(text, "q") is None


@given(st.text())
def test_no_text_is_too_strange(text: str) -> None:
    decode(text, "q")


NOW = 100.0
CONFIG = AllowanceConfig(seconds=15, demand_seconds=4, least_pods=64, share=16)
MAX = {"cpu": 1_000_000}


def empty() -> LocalAllowance:
    return LocalAllowance("replica-1", CONFIG)


def pod(uid: str, **amounts: int) -> Reservation:
    return Reservation(uid, uid, amounts)


def written(**ahead: int) -> LocalAllowance:
    """Return one that was written, at NOW, for no pod yet."""
    allowance = empty()
    first = allowance.next({}, ahead)
    allowance.begin_write(first, {}, MAX, NOW)
    allowance.update(first)
    return allowance


def test_pods_are_drawn_until_one_does_not_fit() -> None:
    allowance = written(cpu=1_000)
    assert allowance.draw(pod("a", cpu=600), MAX, NOW)
    assert not allowance.draw(pod("b", cpu=500), MAX, NOW)  # 400 are left
    assert allowance.draw(pod("c", cpu=400), MAX, NOW)
    assert not allowance.draw(pod("d", memory=1), MAX, NOW)  # it has no memory
    assert allowance.drawn.keys() == {"a", "c"}


def test_while_it_is_written_anew_pods_must_fit_before_and_after() -> None:
    allowance = written(cpu=1_000)
    less = allowance.next({}, {"cpu": 100})
    allowance.begin_write(less, {}, MAX, NOW)
    assert not allowance.draw(pod("a", cpu=101), MAX, NOW)
    assert allowance.draw(pod("b", cpu=60), MAX, NOW)
    allowance.update(less)
    assert allowance.drawn.keys() == {"b"}
    assert not allowance.draw(pod("c", cpu=41), MAX, NOW)  # 100 - 60 are left
    more = allowance.next(allowance.drawn, {"cpu": 500})
    allowance.begin_write(more, allowance.drawn, MAX, NOW)
    assert not allowance.draw(pod("d", cpu=41), MAX, NOW)
    assert allowance.draw(pod("e", cpu=40), MAX, NOW)
    allowance.update(more)
    assert allowance.draw(pod("f", cpu=460), MAX, NOW)  # 60 + 500 - 60 - 40 are left
    assert not allowance.draw(pod("g", cpu=1), MAX, NOW)


def test_pods_drawn_during_a_failed_write_count_against_the_old_allowance() -> None:
    allowance = written(cpu=1_000)
    allowance.begin_write(allowance.next({}, {"cpu": 100}), {}, MAX, NOW)
    assert allowance.draw(pod("a", cpu=60), MAX, NOW)
    allowance.abort_write()
    assert not allowance.draw(pod("b", cpu=941), MAX, NOW)
    assert allowance.draw(pod("c", cpu=940), MAX, NOW)


def test_nothing_is_drawn_while_it_is_given_back() -> None:
    allowance = written(cpu=1_000)
    allowance.begin_write(None, {}, MAX, NOW)
    assert not allowance.draw(pod("a", cpu=1), MAX, NOW)


def test_a_write_without_an_answer_counts_once_it_is_found() -> None:
    allowance = written(cpu=1_000)
    pods = {"a": pod("a", cpu=300)}
    more = allowance.next(pods, {"cpu": 500})
    assert more.amounts == {"cpu": 800}
    allowance.begin_write(more, pods, MAX, NOW + 1)
    allowance.update(more)
    assert allowance.drawn == pods
    assert not allowance.draw(pod("b", cpu=501), MAX, NOW + 1)  # 800 - 300 are left
    assert allowance.draw(pod("b", cpu=500), MAX, NOW + 1)


def test_a_write_that_is_not_found_has_changed_nothing() -> None:
    allowance = written(cpu=1_000)
    assert allowance.draw(pod("a", cpu=300), MAX, NOW)
    allowance.begin_write(allowance.next(allowance.drawn, {"cpu": 9_000}), {}, MAX, NOW)
    # A newer version of the object still has the first one.
    allowance.update(Allowance("replica-1", 1, {"cpu": 1_000}))
    assert allowance.drawn.keys() == {"a"}
    assert not allowance.draw(pod("b", cpu=701), MAX, NOW)


def test_it_ends_15_seconds_after_its_write_began() -> None:
    allowance = written(cpu=1_000)
    assert allowance.draw(pod("a", cpu=1), MAX, NOW + 14.9)
    assert not allowance.draw(pod("b", cpu=1), MAX, NOW + 15)


def test_it_ends_when_max_changes() -> None:
    assert not written(cpu=1_000).draw(pod("a", cpu=1), {"cpu": 500}, NOW)


def test_it_runs_low_after_half_of_its_amounts_or_of_its_time() -> None:
    allowance = written(cpu=1_000)
    assert not allowance.runs_low(NOW + 7.4)
    assert allowance.runs_low(NOW + 7.5)
    assert allowance.draw(pod("a", cpu=500), MAX, NOW)
    assert not allowance.runs_low(NOW)
    assert allowance.draw(pod("b", cpu=1), MAX, NOW)
    assert allowance.runs_low(NOW)


def test_twice_the_recent_demand_is_reserved_ahead() -> None:
    allowance = empty()
    allowance.record_demand({"cpu": 900, "pods": 1}, NOW - 4)  # too long ago
    for _ in range(3):
        allowance.record_demand({"cpu": 100, "pods": 1}, NOW)
    # Twice 3 pods; a sixteenth of what is free is more.
    assert allowance.wanted({"cpu": 100_000}, NOW) == {"cpu": 600, "pods": 6}


def test_no_more_than_a_sixteenth_of_what_is_free_is_taken() -> None:
    allowance = empty()
    for _ in range(100):
        allowance.record_demand({"cpu": 100}, NOW)
    assert allowance.wanted({"cpu": 6_400}, NOW) == {"cpu": 400}
    assert allowance.wanted({"cpu": 6_399}, NOW) == {}  # 64 of 100 each do not fit


def test_a_single_pod_reserves_nothing_ahead() -> None:
    allowance = empty()
    allowance.record_demand({"cpu": 100}, NOW)
    assert allowance.wanted({"cpu": 100_000}, NOW) == {}


def test_it_is_given_back_where_less_than_half_of_that_is_free() -> None:
    allowance = empty()
    allowance.record_demand({"cpu": 100}, NOW)
    assert not allowance.is_scarce({"cpu": 3_200})
    assert allowance.is_scarce({"cpu": 3_199})


@given(
    st.lists(st.dictionaries(st.sampled_from("abc"), st.integers(1, 2**63 - 1)), max_size=5),
    st.dictionaries(st.sampled_from("abc"), st.integers(-(2**63), 2**63 - 1)),
)
def test_nothing_is_taken_beyond_what_is_free(
    recent: list[dict[str, int]], free: dict[str, int]
) -> None:
    allowance = empty()
    for amounts in recent:
        allowance.record_demand(amounts, NOW)
    for name, amount in allowance.next({}, allowance.wanted(free, NOW)).amounts.items():
        assert 0 < amount <= max(0, free.get(name, 2**63 - 1))
