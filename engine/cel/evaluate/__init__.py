"""Scalar evaluation: compiles a resolved tree to Python closures over plain values.

The composition of closures and their shortcuts belong here; the semantics of operators never do:
they are in `engine.cel.operators`. Any node of a resolved tree compiles on its own, given a frame
that holds the variables that it reads.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

from engine.cel import ast
from engine.cel.environment import Environment
from engine.cel.evaluate import access, arithmetic, calls, logic, loops
from engine.cel.evaluate.frame import BUDGET, Closure, Frame, new_frame


def compile_node(node: ast.Node, environment: Environment) -> Closure:
    """Compile a node of a resolved tree.

    A name or function missing in the environment is an error when it is evaluated.
    """

    def compile_(child: ast.Node) -> Closure:
        return _COMPILERS[type(child)](child, compile_, environment)

    return compile_(node)


_COMPILERS: Final[Mapping[type[ast.Node], Callable[[Any, Any, Environment], Closure]]] = {
    ast.Alternative: logic.alternative,
    ast.And: logic.and_,
    ast.Binary: arithmetic.binary,
    ast.Bind: loops.bind,
    ast.Call: calls.call,
    ast.Conditional: logic.conditional,
    ast.Has: access.has,
    ast.Index: access.index,
    ast.ListLiteral: access.list_literal,
    ast.Literal: access.literal,
    ast.Local: access.variable,
    ast.MapLiteral: access.map_literal,
    ast.Name: access.unknown,
    ast.Negate: arithmetic.negate,
    ast.Not: logic.not_,
    ast.OptionalMap: loops.optional_map,
    ast.Or: logic.or_,
    ast.Quantifier: loops.quantifier,
    ast.Select: access.select,
    ast.SortBy: loops.sort_by,
    ast.Transform: loops.transform,
    ast.Variable: access.variable,
}

__all__ = ["BUDGET", "Closure", "Frame", "compile_node", "new_frame"]
