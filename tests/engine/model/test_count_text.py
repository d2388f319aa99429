from __future__ import annotations

import pytest

from engine.errors import counted


@pytest.mark.parametrize(
    ("number", "plural", "text"),
    [
        (0, "policies", "0 policies"),
        (1, "policies", "1 policy"),
        (2, "policies", "2 policies"),
        (1_200, "", "1,200 policys"),
    ],
)
def test_one_thing_has_another_word_than_several(number: int, plural: str, text: str) -> None:
    assert counted(number, "policy", plural) == text
