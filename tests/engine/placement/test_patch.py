from __future__ import annotations

import pytest

from engine.errors import PatchError
from engine.placement.patch import ensure_applies
from tests.engine.placement.cluster import Json


@pytest.mark.parametrize(
    "path",
    [
        "/spec/affinity/nodeAffinity",
        "/spec/terms/3",
        "/spec/terms/3/key",
        "/spec/terms/-/key",
        "/spec/name/key",
        "/spec/name/key/key",
        "spec",
        "/a~2",
    ],
)
def test_operations_that_do_not_apply_are_refused(path: str) -> None:
    document: Json = {"spec": {"terms": [], "name": "web"}}
    with pytest.raises(PatchError, match="does not apply"):
        ensure_applies([{"op": "add", "path": path, "value": 1}], document)


def test_an_operation_that_points_into_the_value_of_another_is_refused() -> None:
    operations: list[Json] = [
        {"op": "add", "path": "/spec", "value": {"name": "web"}},
        {"op": "add", "path": "/spec/name", "value": "web"},
    ]
    with pytest.raises(PatchError, match="does not apply"):
        ensure_applies(operations, {})


def test_operations_apply_to_objects_and_to_the_ends_of_lists() -> None:
    document: Json = {"spec": {"terms": [{}]}, "metadata": {}}
    paths = ["/spec/terms/0/key", "/spec/terms/-", "/metadata/a~1b"]
    ensure_applies([{"op": "add", "path": path, "value": 1} for path in paths], document)
    assert document == {"spec": {"terms": [{"key": None}, None]}, "metadata": {"a/b": None}}
