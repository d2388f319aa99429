from __future__ import annotations

from typing import Any

import pytest
from pydantic import TypeAdapter, ValidationError

from engine.plugins.lib.arg_types import Flag, Percent, Quantities, Share


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
