"""Compiled expressions."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from engine.cel import ast
from engine.cel.budget import Budget
from engine.cel.check import check
from engine.cel.environment import Environment
from engine.cel.evaluate import Closure, compile_node, new_frame
from engine.cel.parser import parse
from engine.cel.values import CelType
from engine.errors import CelError, CelProblem, CelProblemsError

Reference = tuple[str, ...]
"""A variable and the fields read from it: `node.labels.zone` is ("node", "labels", "zone")."""


@dataclass(frozen=True, slots=True)
class Program:
    """A compiled expression; immutable, and safe to share.

    Attributes:
        source: the text of the expression.
        root: its resolved syntax tree, of which any node can be compiled on its own.
        result_type: type of its value, dyn if that is known only at run time.
        references: paths that it reads of the activation, each as far as its fields are constant.
        warnings: what Kubernetes refuses where it checks types, and is accepted here.
    """

    source: str
    root: ast.Node
    result_type: CelType
    references: frozenset[Reference]
    warnings: tuple[CelProblem, ...]
    _run: Closure = field(repr=False, compare=False)

    def evaluate(self, activation: Mapping[str, object], budget: Budget | None = None) -> object:
        """Return the value of the expression.

        Args:
            activation: the variables, by full name. Values are those of `engine.cel.values`.
            budget: the work it may do; a default budget of its own if none is given.

        Raises:
            CelError: the evaluation failed.
            BudgetExhaustedError: it exceeded the budget.
        """
        try:
            return self._run(new_frame(activation, budget))
        except RecursionError:
            raise CelError("a value is nested too deeply") from None
        except OverflowError:
            raise CelError("a number is beyond the range of any type") from None


def compile_program(source: str, environment: Environment) -> Program:
    """Compile an expression.

    Raises:
        CelProblemsError: it has mistakes; all are reported, with their offsets.
    """
    root = parse(source, environment.limits, macros=environment.macros, hints=environment.hints)
    checked = check(root, environment)
    if checked.problems:
        raise CelProblemsError(checked.problems)
    return resolved_program(source, checked.root, checked.type, environment, checked.warnings)


def resolved_program(
    source: str,
    root: ast.Node,
    result_type: CelType,
    environment: Environment,
    warnings: tuple[CelProblem, ...] = (),
) -> Program:
    """Return the program of a resolved tree, such as a part of another program's."""
    return Program(
        source=source,
        root=root,
        result_type=result_type,
        references=frozenset(references(root)),
        warnings=warnings,
        _run=compile_node(root, environment),
    )


def references(node: ast.Node) -> Iterator[Reference]:
    """Yield the paths that a resolved tree reads, each as far as its fields are constant."""
    if isinstance(node, ast.Has):
        node = ast.Select(node.operand, node.field, offset=node.offset)
    root, keys, _ = ast.field_path(node)
    if isinstance(root, ast.Variable):
        yield root.name, *keys
        return
    for child in (root,) if keys else ast.children(root):
        yield from references(child)
