from __future__ import annotations

import pytest

from engine.policy.field_words import field_words

NODE = {
    "node": {
        "name": "a",
        "ready": True,
        "labels": {"zone": "z1", "rack": "r1"},
        "usage": {"cpu": 5.2, "memory": 8.0 * 2**30, "x.com/gpu": 2.0},
        "annotations": {"long": "x" * 1000},
    }
}


@pytest.mark.parametrize(
    ("path", "words"),
    [
        ("node.usage.cpu", "5.2 cores"),
        ("node.usage.memory", "8 GiB"),
        ("node.ready", "true"),
        ("node.name", '"a"'),
        ("node.labels.zone", '"z1"'),
        ("node.labels.gone", "absent"),
        ("node.name.deeper", "absent"),
        ("node.labels", '{"zone": "z1"}'),
        ("node.annotations", "none of its 1 keys is named"),
    ],
)
def test_a_field_is_told_as_people_write_it(path: str, words: str) -> None:
    assert field_words(tuple(path.split(".")), NODE, "'zone' in node.labels") == words


def test_a_field_is_never_told_at_length() -> None:
    assert len(field_words(("node", "annotations", "long"), NODE, "")) < 80


def test_an_amount_of_what_a_vendor_counts_is_a_number() -> None:
    assert field_words(("node", "usage", "x.com/gpu"), NODE, "") == "2"
