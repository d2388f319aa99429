from __future__ import annotations

import re
from pathlib import Path

import pytest

from engine.cel import compile_program
from engine.cel.values import DYN
from engine.policy.environment import ExpressionScope, environment
from engine.policy.manual import manual

_MANUAL = Path(__file__).parents[3] / "docs" / "cel-environment.md"
_CONVERSIONS = manual().partition("## Conversions")[2].partition("\n## ")[0]


def test_the_manual_is_the_table() -> None:
    """If it is not, write `engine.policy.manual.manual()` to the file."""
    assert _MANUAL.read_text(encoding="utf-8") == manual()


@pytest.mark.parametrize(
    "expression",
    [
        expression
        for line in _CONVERSIONS.splitlines()
        for expression in re.findall(r"`([^`]+)`", line.rpartition(" | ")[2])
        if expression not in {"-", ".", "/"}
    ],
)
def test_a_conversion_is_an_expression(expression: str) -> None:
    known = environment(ExpressionScope.RULES)
    a_and_b = {name: DYN for name in ("a", "b") if re.search(rf"\b{name}\b", expression)}
    compile_program(expression, type(known)(variables={**known.variables, **a_and_b}))
