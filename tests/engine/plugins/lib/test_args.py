from __future__ import annotations

from typing import Any

import pytest
from pydantic import TypeAdapter, ValidationError

from engine.plugins.lib.args import Flag, Percent, Quantities, Share, read_annotation
from tests.engine.measured_cluster import cluster, node


@pytest.mark.parametrize(
    ("kind", "value"),
    [
        (Percent, 0),
        (Percent, 100),
        (Share, 1),
        (Flag, True),
        (Quantities, {"cpu": "500m", "memory": 1024, "x.com/gpu": 1.5}),
    ],
)
def test_what_is_right_stays_as_it_is(kind: Any, value: object) -> None:  # noqa: ANN401 - a type
    validated = TypeAdapter(kind).validate_python(value)
    assert (validated, type(validated)) == (value, type(value))


@pytest.mark.parametrize(
    ("kind", "value"),
    [
        (Percent, 101),
        (Percent, -1),
        (Percent, 0.5),
        (Percent, 1e300),
        (Percent, True),
        (Share, 0),
        (Flag, 1),
        (Flag, "true"),
        (Quantities, {"cpu": "lots"}),
        (Quantities, {"cpu": True}),
        (Quantities, {"cpu": None}),
    ],
)
def test_a_mistake_has_one_message(kind: Any, value: object) -> None:  # noqa: ANN401 - a type
    with pytest.raises(ValidationError) as caught:
        TypeAdapter(kind).validate_python(value)
    assert caught.value.error_count() == 1


def test_each_distinct_text_is_read_once() -> None:
    texts = {"a": "1", "b": "2", "c": "1", "d": None}
    view = cluster(
        [node(name, {} if text is None else {"size": text}) for name, text in texts.items()]
    )
    read: list[str | None] = []

    def size(text: str | None) -> tuple[int, int]:
        read.append(text)
        return int(text or 0), len(text or "")

    assert read_annotation(view, "size", 2, size).tolist() == [[1, 2, 1, 0], [1, 1, 1, 0]]
    assert sorted(read, key=str) == ["1", "2", None]
