"""Statuses of conditions that are asked for without their type.

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
from engine.policy.findings import Finding
from engine.policy_lint.parts import Part
from engine.policy_lint.reads import path_of

_CONDITIONS: Final = ("node", "conditions")
_WELL: Final = {"True": "its `Ready` is `True`", "False": "its `MemoryPressure` is `False`"}
_OPPOSITE: Final = {"True": "False", "False": "True"}


def status_findings(part: Part) -> Iterator[Finding]:
    """Yield a finding for each question about the statuses of all conditions alike."""
    for node, _ in ast.walk(part.program.root):
        if not isinstance(node, ast.Quantifier) or path_of(node.range, {}) != _CONDITIONS:
            continue
        status = _status(node)
        is_all = node.how_many is ast.HowMany.ALL
        if not status or not (is_all or node.how_many is ast.HowMany.SOME):
            continue
        always, shown = ("never", _OPPOSITE[status]) if is_all else ("always", status)
        yield Finding(
            part.name,
            f"`{unparse(node)}` is {always} true of a node that is well: {_WELL[shown]}",
            f"write `{unparse(_of_some(node, status))}`",
            node.offset,
        )


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
