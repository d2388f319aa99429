"""The node labels that a score reads: analyzed at load."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from engine.cel import STRING, Program, ast
from engine.policy.label_analysis.analyze import analyze
from engine.policy.label_analysis.filter_labels import FilterLabels
from engine.policy.label_analysis.label_access import as_conditional, label_read


@dataclass(frozen=True, slots=True, kw_only=True)
class ScoreLabels:
    """The node labels that a score reads.

    Attributes:
        keys: of those that it reads by a constant key, in the order of the expression.
        preferred: the nodes with the greater of two numbers, where it is a choice between two; None
            for any other score.
    """

    keys: tuple[str, ...] = ()
    preferred: FilterLabels | None = None


NO_LABELS: Final = ScoreLabels()
"""Of a plugin."""


def score_labels(program: Program) -> ScoreLabels:
    """Return the labels of nodes that an expression reads."""
    return ScoreLabels(keys=tuple(dict.fromkeys(_keys(program.root))), preferred=_choice(program))


def _keys(root: ast.Node) -> Iterator[str]:
    for node, _ in ast.walk(root):
        read = label_read(node, {})
        if read is not None and isinstance(read.key, ast.Literal) and read.key.type == STRING:
            yield str(read.key.value)


def _choice(program: Program) -> FilterLabels | None:
    """Return the nodes that a conditional between two numbers prefers."""
    root, bindings = as_conditional(program.root, {})
    if bindings or not isinstance(root, ast.Conditional):
        return None
    then, otherwise = _number(root.then), _number(root.otherwise)
    if then is None or otherwise is None or then == otherwise:
        return None
    test = root.test if then > otherwise else ast.Not(root.test, offset=root.offset)
    return FilterLabels(analyze(test), program=program)


def _number(node: ast.Node) -> float | None:
    """Return a constant number, None for anything else."""
    if isinstance(node, ast.Negate):
        number = _number(node.operand)
        return None if number is None else -number
    if isinstance(node, ast.Literal) and isinstance(node.value, int | float):
        return float(str(node.value))
    return None
