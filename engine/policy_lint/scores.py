"""Scores: numbers that are meant to weigh, and have no say, and distances that are preferred."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Final

from engine.cel import Program, ast
from engine.cel.unparse import unparse
from engine.cel.values import STRING
from engine.policy import CompiledPolicy, NodeExpression, ScoreRule
from engine.policy.environment import OWNER_FIELDS
from engine.policy.policy_set import Finding
from engine.policy_lint.reads import ANY, Part, Reads, path_of
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
    if len(policy.scores) < len(("one", "other")) or len({*_weights(policy)}) > 1:
        return
    factors = {
        rule.name: factor
        for rule, program in _expressions(policy)
        if (factor := _factor_of(program.root)) is not None
    }
    choices = {rule.name for rule, program in _expressions(policy) if _is_choice(program.root)}
    weighed = {name: factor for name, factor in factors.items() if name in choices and factor > 1}
    if len(set(factors.values())) > 1:
        weighed = factors
    least = min(factors.values(), default=1.0) if weighed is factors else 1.0
    for name, factor in weighed.items():
        weight = min(round(factor / least), _MOST_WEIGHT)
        message = f"the factor {factor:g} has no effect: {_NO_SAY}"
        yield Finding(name, message, f"drop it, and write `weight: {weight}`")


def _is_choice(node: ast.Node) -> bool:
    """Return whether a score is a choice between constants, times a constant."""
    while isinstance(node, ast.Negate):
        node = node.operand
    if not isinstance(node, ast.Binary) or node.operator != "*":
        return False
    sides = (node.left, node.right)
    return any(isinstance(each, ast.Literal) for each in sides) and any(
        isinstance(each, ast.Conditional)
        and all(isinstance(value, ast.Literal) for value in (each.then, each.otherwise))
        for each in sides
    )


def owner_findings(policy: CompiledPolicy, part: Part) -> Iterator[Finding]:
    """Yield that a rule counts replicas of pods that have none, or prefers nodes with replicas."""
    counts = [path for path in part.program.references if path[:1] == ("node",)]
    fields = sorted(path[1] for path in counts if path[1:] and path[1] in OWNER_FIELDS)
    if not fields or part.rule is None:
        return
    for condition in policy.conditions.values():
        asked = Reads(condition.root)
        kinds = {
            each.literal.value
            for each in asked.comparisons
            if each.path == ("pod", "ownerKinds", ANY) and each.operator == "in"
        }
        if isinstance(condition.root, ast.Binary) and kinds & {"DaemonSet", "Job"}:
            kind = min(map(str, kinds))
            message = f"`node.{fields[0]}` is 0 for pods of a {kind}: it counts replicas alone"
            hint = f"spread pods of a {kind} by their `topologySpreadConstraints`"
            yield Finding(part.name, message, hint, part.program.root.offset)
            return
    root = part.program.root
    terms = list(_positive_terms(root))
    if isinstance(part.rule, ScoreRule) and len(terms) > 1 and None not in terms:
        text = unparse(root)
        message = "it prefers nodes with pods of the same owner: replicas fail together"
        yield Finding(part.name, message, f"to keep them apart write `-({text})`", root.offset)


def _positive_terms(node: ast.Node) -> Iterator[str | None]:
    """Yield the counts of replicas that are added up, None for anything else."""
    match node:
        case ast.Binary(operator="+", left=left, right=right):
            yield from _positive_terms(left)
            yield from _positive_terms(right)
        case ast.Binary(operator="*", left=ast.Literal(value=int() | float() as factor), right=of):
            yield from _positive_terms(of) if float(factor) > 0 else (None,)
        case ast.Call(function="double", args=(of,)):
            yield from _positive_terms(of)
        case _:
            path = path_of(node, {})
            yield (
                path[1] if path[:1] == ("node",) and path[1:] and path[1] in OWNER_FIELDS else None
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
