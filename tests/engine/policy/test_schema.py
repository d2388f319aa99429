from __future__ import annotations

import re
from pathlib import Path

import pytest

from engine.policy import schema
from engine.policy.schema import Match, Spec

_READERS = "\n".join(
    file.read_text(encoding="utf-8")
    for file in sorted(Path(schema.__file__).parent.rglob("*.py"))
    if file.name != "schema.py"
)


@pytest.mark.parametrize("field", sorted(Spec.model_fields | Match.model_fields))
def test_every_field_of_a_policy_is_read_where_it_is_compiled(field: str) -> None:
    assert re.search(rf"\.{field}\b", _READERS), f"validated, and then read by nobody: {field}"
