"""Scores: numbers that are meant to weigh, and have no say, and distances that are preferred."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Final

from engine.cel import Program, ast
from engine.cel.unparse import unparse
from engine.cel.values import STRING
from engine.policy import CompiledPolicy, NodeExpression, ScoreRule
from engine.policy.policy_set import Finding
from engine.policy_lint.reads import Part, path_of
from engine.policy_lint.units import Amount, span_of

_NO_SAY: Final = "the points of each score go from 0 to 100"
_OTHER_SCALE: Final = 10
_MOST_WEIGHT: Final = 10  # of a hint: beside ten times its weight, another has no say


def scale_findings(policy: CompiledPolicy, amounts: Mapping[str, Amount]) -> Iterator[Finding]:
    """Yield a finding for each score whose numbers look like a weight beside those of another."""
    spans = [
        (span, rule)
        for rule, program in _expressions(policy)
        if (span := span_of(program, amounts))
    ]
    for span, rule in spans:
        for less, other in spans:
            times = span / less
            if times >= _OTHER_SCALE and rule.weight == other.weight:
                weight = min(round(times), _MOST_WEIGHT)
                yield Finding(
                    rule.name,
                    f"its numbers are {times:g} times those of `{other.name}`, and count as much:"
                    f" {_NO_SAY}",
                    f"to make it count more write `weight: {weight}`, else divide by {times:g}",
                )
                return


def factor_findings(policy: CompiledPolicy) -> Iterator[Finding]:
    """Yield a finding where scores differ by a constant factor of each, which has no effect."""
    factors = {
        rule: factor
        for rule, program in _expressions(policy)
        if (factor := _factor_of(program.root)) is not None
    }
    if len(factors) > 1 and len(set(factors.values())) > 1 and len({*_weights(policy)}) == 1:
        least = min(factors.values())
        for rule, factor in factors.items():
            weight = min(round(factor / least), _MOST_WEIGHT)
            yield Finding(
                rule.name,
                f"the factor {factor:g} has no effect: {_NO_SAY}",
                f"drop it, and write `weight: {weight}`",
            )


def distance_findings(part: Part) -> Iterator[Finding]:
    """Yield that a score is greatest for the nodes that are farthest from something."""
    root = part.program.root
    is_distance = isinstance(root, ast.Call) and root.function == "math.abs"
    if is_distance or _is_square(root):
        message = "it prefers the nodes that are farthest from what it compares with"
        yield Finding(
            part.name, message, f"for the nearest write `-({unparse(root)})`", root.offset
        )


def price_findings(part: Part) -> Iterator[Finding]:
    """Yield that a score by a price ranks the dearest first, or nodes without a price."""
    root, is_negated = part.program.root, False
    if isinstance(root, ast.Negate):
        root, is_negated = root.operand, True
    if not isinstance(root, ast.Call) or root.function not in {"double", "int"}:
        return
    read = root.args[0]
    path = path_of(read, {})
    if path[:-1] not in _MAPS or not _PRICE.search(path[-1]):
        return
    if not is_negated:
        message = f"it prefers the nodes with the greatest `{path[-1]}`"
        yield Finding(part.name, message, f"for the cheapest write `-{unparse(root)}`", root.offset)
    elif isinstance(read, ast.Alternative) and read.other in _NOTHING:
        has = f"'{path[-1]}' in {'.'.join(path[:-1])}"
        message = f"a node without `{path[-1]}` ranks as one that costs nothing"
        hint = f"for it to come last write `{has} ? {unparse(part.program.root)} : -1000000.0`"
        yield Finding(part.name, message, hint, read.other.offset)


_NOTHING: Final = tuple(ast.Literal(text, STRING, offset=0) for text in ("0", "0.0"))
_MAPS: Final = frozenset({("node", "annotations"), ("node", "labels")})
_PRICE: Final = re.compile(r"(?i)\b(?:cost|price)")


def _is_square(node: ast.Node) -> bool:
    """Return whether a value is a difference, times itself."""
    match node:
        case ast.Binary(operator="*", left=ast.Binary(operator="-") as left, right=right):
            return left == right
    return False


def _expressions(policy: CompiledPolicy) -> Iterator[tuple[ScoreRule, Program]]:
    for rule in policy.scores:
        if isinstance(rule.evaluator, NodeExpression):
            yield rule, rule.evaluator.program


def _weights(policy: CompiledPolicy) -> Iterator[int]:
    return (rule.weight for rule in policy.scores)


def _factor_of(node: ast.Node) -> float | None:
    """Return the constant that all of a score is multiplied by, None without one."""
    match node:
        case ast.Negate(operand=operand):
            return _factor_of(operand)
        case ast.Binary(operator="*", left=ast.Literal(value=int() | float() as number)):
            return abs(float(number)) or None
        case ast.Binary(operator="*", right=ast.Literal(value=int() | float() as number)):
            return abs(float(number)) or None
        case ast.Binary(operator="/" | "*", left=left):
            return _factor_of(left)
    return None
