"""Times: numbers that the functions of a moment never give, and seconds taken for another unit."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, NamedTuple

from engine.cel import ast
from engine.cel.unparse import unparse
from engine.policy.policy_set import Finding
from engine.policy_lint.reads import EQUALITIES, MIRRORED, ORDERS, Part


class _Range(NamedTuple):
    """The numbers that a function gives."""

    least: int
    greatest: int
    hint: str = ""  # how to write the usual numbers beyond them


_RANGES: Final = {
    "getDate": _Range(1, 31),
    "getDayOfMonth": _Range(0, 30, "`now.getDate()` counts from 1 to 31"),
    "getDayOfWeek": _Range(0, 6, "Sunday is `0`, Saturday `6`"),
    "getDayOfYear": _Range(0, 365, "January 1 is `0`"),
    "getFullYear": _Range(1970, 9999, "a year has four digits"),
    "getHours": _Range(0, 23, "midnight is `0`"),
    "getMilliseconds": _Range(0, 999),
    "getMinutes": _Range(0, 59, "the full hour is `0`"),
    "getMonth": _Range(0, 11, "January is `0`, December `11`"),
    "getSeconds": _Range(0, 59, "the full minute is `0`"),
}
_MILLIS: Final = 1000
_A_MINUTE_OF_MILLIS: Final = 60 * _MILLIS
_A_DAY: Final = 86_400  # seconds


def time_findings(part: Part) -> Iterator[Finding]:
    """Yield a finding for each number that what it is compared with never is."""
    for node, _ in ast.walk(part.program.root):
        if not isinstance(node, ast.Binary) or node.operator not in EQUALITIES | ORDERS | {"in"}:
            continue
        mirrored = MIRRORED.get(node.operator, node.operator)
        for value, operator, other in (
            (node.left, node.operator, node.right),
            (node.right, mirrored, node.left),
        ):
            for literal in ast.children(other) if operator == "in" else (other,):
                if isinstance(literal, ast.Literal) and type(literal.value) is int:
                    yield from _of_field(part, value, literal, operator)
                    yield from _of_seconds(part, value, literal)


def _of_field(
    part: Part, value: ast.Node, literal: ast.Literal, operator: str
) -> Iterator[Finding]:
    """Yield that a field of a moment never has a number."""
    if not isinstance(value, ast.Call) or not any(map(_is_now, value.args[:1])):
        return
    found, number = _RANGES.get(value.function), literal.value
    assert isinstance(number, int)  # noqa: S101 - INVARIANT: the caller looks
    is_end = operator in {"<", ">="}  # the end of a range is not in it
    if found is not None and not found.least <= number <= found.greatest + is_end:
        message = f"`{unparse(value)}` is never {number}, but {found.least} to {found.greatest}"
        yield Finding(part.name, message, found.hint, literal.offset)


def _is_now(node: ast.Node) -> bool:
    return isinstance(node, ast.Variable) and node.name == "now"


def _of_seconds(part: Part, value: ast.Node, literal: ast.Literal) -> Iterator[Finding]:
    """Yield that a number of seconds is one of milliseconds, by its noughts."""
    number = literal.value
    assert isinstance(number, int)  # noqa: S101 - INVARIANT: the caller looks
    counts_seconds = any(
        isinstance(each, ast.Call) and each.function == "int" and _is_now(each.args[0])
        for each, _ in ast.walk(value)
    )
    if counts_seconds and number and not number % _A_MINUTE_OF_MILLIS and number % _A_DAY:
        message = f"`int(now)` counts seconds: {number} of them are {number / _A_DAY:.3g} days"
        hint = f"for {number // _MILLIS} s write `{number // _MILLIS}`"
        yield Finding(part.name, message, hint, literal.offset)
