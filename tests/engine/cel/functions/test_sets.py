from __future__ import annotations

import pytest

from tests.engine.cel.functions.evaluating import evaluate


@pytest.mark.parametrize(
    ("source", "value"),
    [
        ("sets.contains([1, 2], [2u, 1.0, 1])", True),
        ("sets.contains([1], [true])", False),
        ("sets.contains([], [])", True),
        ("sets.equivalent([1, 1, 2], [2, 1])", True),
        ("sets.equivalent([1, 2], [1])", False),
        ("sets.intersects([[1]], [[1.0], 2])", True),
        ("sets.intersects([], [])", False),
    ],
)
def test_sets(source: str, value: object) -> None:
    assert evaluate(source) is value
