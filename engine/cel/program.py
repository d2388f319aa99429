"""An expression that is ready to run."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from engine.cel import ast
from engine.cel.check import check
from engine.cel.errors import CelError, CelProblemsError
from engine.cel.evaluate import Closure, compile_node, new_frame
from engine.cel.parser import parse

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from engine.cel.budget import Budget
    from engine.cel.environment import Environment
    from engine.cel.values import CelType

Reference = tuple[str, ...]
"""A variable and the fields read from it: `node.labels.zone` is ("node", "labels", "zone")."""


@dataclass(frozen=True, slots=True)
class Program:
    """A compiled expression; immutable, and safe to share.

    Attributes:
        source: the text it was made from.
        root: its resolved syntax tree, of which any node can be compiled on its own.
        result_type: what it evaluates to, dyn if that is known only at run time.
        references: what it reads of the activation, each as far as constant fields go.
    """

    source: str
    root: ast.Node
    result_type: CelType
    references: frozenset[Reference]
    _run: Closure = field(repr=False, compare=False)

    def evaluate(self, activation: Mapping[str, object], budget: Budget | None = None) -> object:
        """Return the value of the expression.

        Args:
            activation: the variables, by full name. Values are those of `engine.cel.values`.
            budget: what it may cost; a default budget of its own if none is given.

        Raises:
            CelError: the evaluation failed.
            BudgetExhaustedError: it cost too much.
        """
        try:
            return self._run(new_frame(activation, budget))
        except RecursionError:
            raise CelError("a value is nested too deeply") from None
        except OverflowError:
            raise CelError("a number is beyond the range of any type") from None


def compile_program(source: str, environment: Environment) -> Program:
    """Return the program for an expression.

    Raises:
        CelProblemsError: it has mistakes; all of them, with their offsets.
    """
    root = parse(source, environment.limits, macros=environment.macros)
    checked = check(root, environment)
    if checked.problems:
        raise CelProblemsError(checked.problems)
    return Program(
        source=source,
        root=checked.root,
        result_type=checked.type,
        references=frozenset(references(checked.root)),
        _run=compile_node(checked.root, environment),
    )


def references(node: ast.Node) -> Iterator[Reference]:
    """Yield what a resolved tree reads, each path as far as its fields are constant."""
    path, rest = _path(node)
    if path:
        yield path
    for child in rest:
        yield from references(child)


def _path(node: ast.Node) -> tuple[Reference, list[ast.Node]]:
    """Return the path that a node stands for, or an empty one, and the nodes it does not cover."""
    fields: list[str] = []
    start = node
    while True:
        if isinstance(node, ast.Select | ast.Has):
            fields.append(node.field)
            node = node.operand
        elif (
            isinstance(node, ast.Index)
            and isinstance(node.index, ast.Literal)
            and isinstance(node.index.value, str)
        ):
            fields.append(node.index.value)
            node = node.operand
        else:
            break
    if isinstance(node, ast.Variable):
        return (node.name, *reversed(fields)), []
    return (), list(ast.children(start)) if node is start else [node]
