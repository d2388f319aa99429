from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.quota import Reservation, Reservations
from engine.quota.reservations import decode, encode

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
