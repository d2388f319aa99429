"""Strings that are put in an order: letter by letter, where `10` comes before `9`."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace
from typing import Final

from engine.cel import ast
from engine.cel.unparse import unparse
from engine.cel.values import INT, STRING
from engine.policy import CompiledPolicy
from engine.policy.findings import Finding
from engine.policy_lint.parts import Part
from engine.policy_lint.reads import ORDERS, path_of

_NUMBER: Final = re.compile(r"[0-9]+")
_DECIMAL: Final = re.compile(r"[0-9]*\.[0-9]+")
_VERSION: Final = re.compile(r"v?[0-9]+(?:\.[0-9]+)*(?:[-+].*)?")
_TEXTS: Final = frozenset({"annotations", "labels", "nodeSelector"})
_PARTS_OF_A_VERSION: Final = 3


def ordering_findings(policy: CompiledPolicy, part: Part) -> Iterator[Finding]:
    """Yield a finding for each order of strings that hold numbers or versions, or may."""
    for node, _ in ast.walk(part.program.root):
        if not isinstance(node, ast.Binary) or node.operator not in ORDERS:
            continue
        sides = (node.left, node.right)
        texts = [_text(side) for side in sides]
        written = next((text for text in texts if text is not None), None)
        if written is None and not all(_is_string(policy, side) for side in sides):
            continue
        if written is not None and not _VERSION.fullmatch(written):
            continue
        message = f"`{unparse(node)}` compares letter by letter: `10` comes before `9`"
        yield Finding(part.name, message, _hint(node, written), node.offset)


def _text(node: ast.Node) -> str | None:
    return node.value if isinstance(node, ast.Literal) and isinstance(node.value, str) else None


def _is_string(policy: CompiledPolicy, node: ast.Node) -> bool:
    path = path_of(node, {})
    if path[:1] == ("variables",) and path[1:2]:
        program = policy.variables.get(path[1])
        return program is not None and program.result_type == STRING
    return any(step in _TEXTS for step in path[:-1])


def _hint(node: ast.Binary, written: str | None) -> str:
    """Return the comparison of the numbers, of the quantities, or of the versions."""
    if any("resources" in path_of(side, {}) for side in (node.left, node.right)):
        one, other = (f"quantity({unparse(side)})" for side in (node.left, node.right))
        return f"compare quantities: `{one}.compareTo({other}) {node.operator} 0`"
    if written is None or _NUMBER.fullmatch(written):
        sides = (_converted(side, "int", "0") for side in (node.left, node.right))
    elif _DECIMAL.fullmatch(written) and not _could_be_version(node):
        sides = (_converted(side, "double", "0") for side in (node.left, node.right))
    else:
        one, other = (_semver(side) for side in (node.left, node.right))
        return f"compare versions: `{one}.compareTo({other}) {node.operator} 0`"
    left, right = sides
    return f"compare numbers: `{unparse(replace(node, left=left, right=right))}`"


def _could_be_version(node: ast.Binary) -> bool:
    """Return whether what is compared is called a version."""
    return "version" in unparse(node).lower()


def _converted(node: ast.Node, function: str, absent: str) -> ast.Node:
    text = _text(node)
    if text is not None:
        number = int(text) if _NUMBER.fullmatch(text) else float(text)
        return ast.Literal(number, INT, offset=node.offset)
    if isinstance(node, ast.Alternative) and _text(node.other) == "":
        node = replace(node, other=ast.Literal(absent, STRING, offset=node.offset))
    return ast.Call(function, (node,), offset=node.offset)


def _semver(node: ast.Node) -> str:
    text = _text(node)
    if text is None:
        if isinstance(node, ast.Alternative):
            node = replace(node, other=ast.Literal("0.0.0", STRING, offset=node.offset))
        return f"semver({unparse(node)}, true)"
    numbers = text.removeprefix("v").split(".")
    numbers += ["0"] * (_PARTS_OF_A_VERSION - len(numbers))
    return f"semver('{'.'.join(numbers)}')"
