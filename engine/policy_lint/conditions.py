"""Conditions of nodes, of which the type or the status alone is asked.

`Ready` is `True` on a node that is well, while `MemoryPressure` and its like are `False`: one
status for all of them is true of no such node, and some status is true of each.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Final

from engine.cel import ast
from engine.cel.unparse import unparse
from engine.cel.values import STRING
from engine.policy.policy_set import Finding
from engine.policy_lint.reads import ANY, Part, Reads, path_of

_CONDITIONS: Final = ("node", "conditions")
_WELL: Final = {"True": "its `Ready` is `True`", "False": "its `MemoryPressure` is `False`"}
_OPPOSITE: Final = {"True": "False", "False": "True"}


def condition_findings(part: Part) -> Iterator[Finding]:
    """Yield a finding for each question about a status without a type, and the other way round."""
    for node, _ in ast.walk(part.program.root):
        if isinstance(node, ast.Quantifier) and _is_of_all(node):
            yield from _without_type(part, node)
            yield from _without_status(part, node)
            yield from _unknown_as_ready(part, node)


def _is_of_all(node: ast.Quantifier) -> bool:
    """Return whether all conditions of a node are asked, not those left by a `filter`."""
    is_filtered = isinstance(node.range, ast.Transform)
    return not is_filtered and path_of(node.range, {}) == _CONDITIONS


def _without_type(part: Part, node: ast.Quantifier) -> Iterator[Finding]:
    """Yield that the statuses of all conditions are asked alike."""
    status = _status(node)
    is_all = node.how_many is ast.HowMany.ALL
    if not status or not (is_all or node.how_many is ast.HowMany.SOME):
        return
    always, shown = ("never", _OPPOSITE[status]) if is_all else ("always", status)
    yield Finding(
        part.name,
        f"`{unparse(node)}` is {always} true of a node that is well: {_WELL[shown]}",
        f"write `{unparse(_of_some(node, status))}`",
        node.offset,
    )


def _without_status(part: Part, node: ast.Quantifier) -> Iterator[Finding]:
    """Yield that a condition is looked for that each node has, be it true or false."""
    read = {each.field for each, _ in ast.walk(node.predicate) if isinstance(each, ast.Select)}
    if node.how_many is not ast.HowMany.SOME or read & {"status", "reason"}:
        return
    for each in Reads(node).comparisons:
        if each.path == (*_CONDITIONS, ANY, "type") and each.literal.value in _OF_EVERY_NODE:
            asked = node.predicate
            told = asked.operands if isinstance(asked, ast.And) else (asked,)
            status = ast.Select(ast.Local(node.variables[-1], offset=0), "status", offset=0)
            true = ast.Binary("==", status, ast.Literal("True", STRING, offset=0), offset=0)
            whole = replace(node, predicate=ast.And((*told, true), offset=0))
            kind = each.literal.value
            message = f"each node has a condition `{kind}`: its status tells whether it is so"
            yield Finding(part.name, message, f"write `{unparse(whole)}`", node.offset)
            return


def _unknown_as_ready(part: Part, node: ast.Quantifier) -> Iterator[Finding]:
    """Yield that a node of which nothing is heard, whose status is `Unknown`, counts as ready."""
    asked = node.predicate.operands if isinstance(node.predicate, ast.And) else ()
    compared = {each.path[-1]: each for each in Reads(node).comparisons}
    kind, status = compared.get("type"), compared.get("status")
    is_ready = kind is not None and kind.literal.value == "Ready" and kind.operator == "=="
    if node.how_many is not ast.HowMany.SOME or not is_ready or status is None:
        return
    if status.operator == "!=" and status.literal.value == "False":
        told = [_true(each) if status.literal in ast.children(each) else each for each in asked]
        whole = replace(node, predicate=ast.And(tuple(told), offset=0))
        message = (
            "`Ready` is `Unknown` on a node of which nothing is heard: it is true of that, too"
        )
        yield Finding(part.name, message, f"write `{unparse(whole)}`", status.literal.offset)


def _true(node: ast.Node) -> ast.Node:
    """Return a comparison of a status with `False` as one with `True`."""
    assert isinstance(node, ast.Binary)  # noqa: S101 - INVARIANT: it has the literal
    return replace(node, operator="==", right=ast.Literal("True", STRING, offset=0))


_OF_EVERY_NODE: Final = frozenset({"Ready", "MemoryPressure", "DiskPressure", "PIDPressure"})


def _status(node: ast.Quantifier) -> str:
    """Return the status that conditions of any type are asked for, "" if it asks something else."""
    match node.predicate:
        case ast.Binary(
            operator="==" | "!=" as sign,
            left=ast.Select(operand=ast.Local(name=name), field="status"),
            right=ast.Literal(value="True" | "False" as value),
        ) if name == node.variables[-1]:
            return value if sign == "==" else _OPPOSITE[value]
    return ""


def _of_some(node: ast.Quantifier, status: str) -> ast.Node:
    """Return what is asked, of `Ready` alone where that is bad news, or of all others."""
    at = node.offset
    kind = ast.Select(ast.Local(node.variables[-1], offset=at), "type", offset=at)
    ready = ast.Literal("Ready", STRING, offset=at)
    of_type = ast.Binary("==" if status == "False" else "!=", kind, ready, offset=at)
    join = ast.Or if node.how_many is ast.HowMany.ALL else ast.And
    return replace(node, predicate=join((of_type, node.predicate), offset=at))
