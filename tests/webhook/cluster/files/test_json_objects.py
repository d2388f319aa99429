from __future__ import annotations

import pytest

from engine.errors import InvalidFileError
from webhook.cluster.files.json_objects import read_json

UNREADABLE = {
    b'{"kind": "List", "items": [': "not JSON: input data was truncated",
    b'{"kind": "List"} {}': "not JSON: trailing characters",
    b'{"kind": {}}': "expected an object of Kubernetes: expected a text, got an object",
    b'{"kind": "List", "items": 5}': (
        "expected an object of Kubernetes: expected a list, got a whole number"
    ),
    b'{"items": []}': "not an object of Kubernetes: it has no `kind`",
    b'{"kind": "\xff"}': "not JSON: not valid UTF-8",
    b'{"spec": ' + b"[" * 10_000: "not JSON: nested too deeply",
}


@pytest.mark.parametrize(("data", "told"), UNREADABLE.items())
def test_what_cannot_be_read_at_all_is_refused(data: bytes, told: str) -> None:
    with pytest.raises(InvalidFileError) as caught:
        list(read_json(data, "f.json"))
    (problem,) = caught.value.problems
    assert problem.message == told


def test_where_reading_ended_is_told() -> None:
    with pytest.raises(InvalidFileError) as caught:
        list(read_json(b'{"kind": "List",\n "items": [1 2]}', "f.json"))
    # In the second line, at its 14th character, the 2.
    assert str(caught.value) == "f.json:2:14: not JSON: expected ',' or ']'"


def test_items_of_a_typed_list_are_of_its_kind() -> None:
    data = b'{"kind": "PodList", "apiVersion": "v1", "items": [{}, {}]}'
    assert [(found.group, found.kind) for found in read_json(data, "f.json")] == [("", "Pod")] * 2


def test_what_is_no_list_is_one_object() -> None:
    data = b'{"kind": "NodeMetric", "apiVersion": "slo.koordinator.sh/v1alpha1"}'
    (found,) = read_json(data, "f.json")
    assert (found.group, found.kind) == ("slo.koordinator.sh", "NodeMetric")
