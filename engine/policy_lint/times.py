"""Times: numbers that the functions of a moment never give, and seconds taken for another unit."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Final, NamedTuple

from engine.cel import STRING, TIMESTAMP, CelError, Timestamp, ast, compile_node, new_frame
from engine.cel.unparse import unparse
from engine.policy.environment import ExpressionScope, environment
from engine.policy.policy_set import Finding
from engine.policy_lint.reads import EQUALITIES, MIRRORED, ORDERS, Part

_ENVIRONMENT: Final = environment(ExpressionScope.RULES)


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
    """Yield a finding for each zone that there is not, and number that a time never is."""
    for node, _ in ast.walk(part.program.root):
        match node:
            case ast.Call(function=function, args=(_, ast.Literal(type=zone_type) as zone)) if (
                function in _RANGES and zone_type == STRING
            ):
                yield from _of_zone(part, node, zone)
            case ast.Binary(operator=sign) if sign in EQUALITIES | ORDERS | {"in"}:
                yield from _of_numbers(part, node)
            case ast.Binary(operator="-", left=left, right=right) if _is_past(left, right):
                meant = unparse(replace(node, left=right, right=left))
                message = f"`{unparse(node)}` is below zero: the node came before now"
                yield Finding(part.name, message, f"for its age write `{meant}`", node.offset)


def _is_past(left: ast.Node, right: ast.Node) -> bool:
    """Return whether a difference is that of what has happened and of now."""
    left, right = (
        each.args[0] if isinstance(each, ast.Call) and each.function == "int" else each
        for each in (left, right)
    )
    return _is_moment(left) and isinstance(right, ast.Variable) and left != right


def _of_zone(part: Part, call: ast.Call, zone: ast.Literal) -> Iterator[Finding]:
    """Yield that a time zone is none."""
    epoch = ast.Literal(Timestamp(0), TIMESTAMP, offset=0)
    try:
        compile_node(replace(call, args=(epoch, zone)), _ENVIRONMENT)(new_frame({}))
    except CelError as error:
        hint = "write a place in it, as `'Europe/Berlin'`, or an offset, as `'+02:00'`"
        yield Finding(part.name, f"always fails: {error}", hint, zone.offset)


def _of_numbers(part: Part, node: ast.Binary) -> Iterator[Finding]:
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
    """Yield that a field of a moment, or the milliseconds of a duration, are never a number."""
    if not isinstance(value, ast.Call) or value.function not in _RANGES:
        return
    found, number, of = _RANGES[value.function], literal.value, value.args[0]
    assert isinstance(number, int)  # noqa: S101 - INVARIANT: the caller looks
    is_end = operator in {"<", ">="}  # the end of a range is not in it
    if found.least <= number <= found.greatest + is_end:
        return
    hint = found.hint
    if not _is_moment(of):
        if value.function != "getMilliseconds":  # the others count all of a duration
            return
        hint = f"write `{unparse(of)} {operator} duration('{number / _MILLIS:g}s')`"
    message = f"`{unparse(value)}` is never {number}, but {found.least} to {found.greatest}"
    yield Finding(part.name, message, hint, literal.offset)


def _is_moment(node: ast.Node) -> bool:
    match node:
        case (
            ast.Variable(name="now") | ast.Select(field="creationTimestamp" | "lastTransitionTime")
        ):
            return True
    return False


def _of_seconds(part: Part, value: ast.Node, literal: ast.Literal) -> Iterator[Finding]:
    """Yield that a number of seconds is one of milliseconds, by its noughts."""
    number = literal.value
    assert isinstance(number, int)  # noqa: S101 - INVARIANT: the caller looks
    counts_seconds = any(
        isinstance(each, ast.Call) and each.function == "int" and _is_moment(each.args[0])
        for each, _ in ast.walk(value)
    )
    if counts_seconds and number and not number % _A_MINUTE_OF_MILLIS and number % _A_DAY:
        message = f"`int(now)` counts seconds: {number} of them are {number / _A_DAY:.3g} days"
        hint = f"for {number // _MILLIS} s write `{number // _MILLIS}`"
        yield Finding(part.name, message, hint, literal.offset)
