from __future__ import annotations

import pytest

from engine.cel import Timestamp
from engine.model.rule_input import RuleInput, Unit
from engine.policy.field_input import field_input

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
        ("node.annotations", "none of its 1 key is named"),
    ],
)
def test_a_field_is_told_as_people_write_it(path: str, words: str) -> None:
    field = field_input(tuple(path.split(".")), NODE, "'zone' in node.labels")
    assert field.name == path
    assert field.describe() == words


def test_a_field_is_never_told_at_length() -> None:
    assert len(field_input(("node", "annotations", "long"), NODE, "").describe()) < 80


def test_an_amount_of_what_a_vendor_counts_is_a_number() -> None:
    gpus = field_input(("node", "usage", "x.com/gpu"), NODE, "")
    assert gpus == RuleInput("node.usage.x.com/gpu", 2, Unit.COUNT)
    assert gpus.describe() == "2"


def test_an_amount_is_in_base_units() -> None:
    cpu = field_input(("node", "usage", "cpu"), NODE, "")
    assert cpu == RuleInput("node.usage.cpu", 5200, Unit.MILLICORES)


def test_times_are_told_as_dates() -> None:
    at = Timestamp(0)
    node = {"node": {"creationTimestamp": at, "conditions": [{"lastTransitionTime": at}]}}
    told = field_input(("node", "creationTimestamp"), node, "").describe()
    assert told == "1970-01-01T00:00:00Z"
    told = field_input(("node", "conditions"), node, "").describe()
    assert told == '[{"lastTransitionTime": "1970-01-01T00:00:00Z"}]'
