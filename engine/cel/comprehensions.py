"""Checks of macros that declare variables: loops, bindings, and maps over optionals."""

from __future__ import annotations

from dataclasses import replace
from typing import Protocol

from engine.cel import ast
from engine.cel.environment import Environment
from engine.cel.scope import Scope, Typed
from engine.cel.static_types import can_be, list_of, loop_variables, map_of, optional_of
from engine.cel.values import BOOL, LIST, MAP, CelType


class Checker(Protocol):
    """The checker of the parts of a macro."""

    @property
    def environment(self) -> Environment:
        """Names and limits."""

    @property
    def scope(self) -> Scope:
        """The names visible at this place."""

    def visit(self, node: ast.Node) -> Typed:
        """Check a node."""

    def boolean(self, node: ast.Node) -> ast.Node:
        """Check a node that must give a bool."""

    def optional(self, node: ast.Node) -> Typed:
        """Check a node that must give an optional; return the type of its value."""

    def report(self, offset: int, message: str) -> None:
        """Note a mistake."""


def _range(
    checker: Checker, node: ast.Node, variables: int
) -> tuple[ast.Node, CelType, list[CelType]]:
    """Return a resolved range, its type, and the types of one or two loop variables over it."""
    resolved, of_type = checker.visit(node)
    if not can_be(of_type, LIST, MAP):
        checker.report(node.offset, f"a value of type `{of_type}` cannot be looped over")
    if checker.scope.loops >= checker.environment.limits.nesting:
        limit = checker.environment.limits.nesting
        checker.report(node.offset, f"loops are nested deeper than {limit} levels")
    return resolved, of_type, loop_variables(of_type, variables)


def quantifier(checker: Checker, node: ast.Quantifier) -> Typed:
    """Check `all`, `exists` and `existsOne`."""
    range_, _, types = _range(checker, node.range, len(node.variables))
    with checker.scope.variables(node.variables, types, loop=True) as names:
        predicate = checker.boolean(node.predicate)
    return replace(node, range=range_, variables=names, predicate=predicate), BOOL


def transform(checker: Checker, node: ast.Transform) -> Typed:
    """Check `map`, `filter`, `transformList`, `transformMap` and `transformMapEntry`."""
    range_, _, types = _range(checker, node.range, len(node.variables))
    with checker.scope.variables(node.variables, types, loop=True) as names:
        condition = None if node.condition is None else checker.boolean(node.condition)
        result, result_type = checker.visit(node.result)
    resolved = replace(node, range=range_, variables=names, condition=condition, result=result)
    if node.shape is ast.Shape.LIST:
        return resolved, list_of(result_type)
    if node.shape is ast.Shape.MAP:
        return resolved, map_of(types[0], result_type)
    if not can_be(result_type, MAP):
        checker.report(node.result.offset, f"expected a map, not `{result_type}`")
    return resolved, MAP


def sort_by(checker: Checker, node: ast.SortBy) -> Typed:
    """Check `sortBy`."""
    range_, of_type, types = _range(checker, node.range, 1)
    if not can_be(of_type, LIST):
        checker.report(node.offset, f"a value of type `{of_type}` cannot be sorted")
    with checker.scope.variables((node.variable,), types, loop=True) as (name,):
        key, _ = checker.visit(node.key)
    return replace(node, range=range_, variable=name, key=key), of_type


def bind(checker: Checker, node: ast.Bind) -> Typed:
    """Check `cel.bind`."""
    value, of_type = checker.visit(node.value)
    with checker.scope.variables((node.variable,), (of_type,)) as (name,):
        body, body_type = checker.visit(node.body)
    return replace(node, variable=name, value=value, body=body), body_type


def optional_map(checker: Checker, node: ast.OptionalMap) -> Typed:
    """Check `optMap` and `optFlatMap`."""
    operand, of_type = checker.optional(node.operand)
    with checker.scope.variables((node.variable,), (of_type,)) as (name,):
        body, body_type = checker.visit(node.body)
    resolved = replace(node, operand=operand, variable=name, body=body)
    return resolved, body_type if node.flat else optional_of(body_type)
