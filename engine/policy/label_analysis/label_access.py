"""Where the syntax tree of a filter reads the labels of a node."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import TypeAlias, TypeGuard

from engine.cel import STRING, ast

Bindings: TypeAlias = Mapping[str, ast.Node]
"""What macro variables stand for where that reads the node.

It is put in their place, which is what `cel.bind` and `optMap` come to: a failure counts only where
the value is used.
"""


@dataclass(frozen=True, slots=True)
class LabelRead:
    """`node.labels[key]`, or `node.labels[?key]` if `optional`; the key reads nothing of a node."""

    node: ast.Select | ast.Index
    key: ast.Node

    @property
    def optional(self) -> bool:
        """Whether it gives an optional, rather than fail where the label is missing."""
        return self.node.optional

    @property
    def value(self) -> ast.Node:
        """The tree of `node.labels[key]`."""
        return replace(self.node, optional=False)


def label_read(node: ast.Node, meanings: Bindings) -> LabelRead | None:
    """Return the read that a node is, None if it is something else."""
    node = resolved(node, meanings)
    if not isinstance(node, ast.Select | ast.Index) or not is_labels(node.operand, meanings):
        return None
    if isinstance(node, ast.Select):
        return LabelRead(node, ast.Literal(node.field, STRING, offset=node.offset))
    return None if reads_node(node.index, meanings) else LabelRead(node, node.index)


def is_labels(node: ast.Node, meanings: Bindings) -> bool:
    """Return whether a node is `node.labels`."""
    match resolved(node, meanings):
        case ast.Select(operand=operand, field="labels", optional=False):
            return is_node(operand, meanings)
        case ast.Index(operand=operand, index=ast.Literal(value="labels"), optional=False):
            return is_node(operand, meanings)
    return False


def is_node(node: ast.Node, meanings: Bindings) -> bool:
    """Return whether a node of the tree is the variable `node`."""
    node = resolved(node, meanings)
    return isinstance(node, ast.Variable) and node.name == "node"


def reads_node(node: ast.Node, meanings: Bindings) -> bool:
    """Return whether a part depends on the node that is looked at."""
    return any(
        (isinstance(below, ast.Variable) and below.name == "node")
        or (isinstance(below, ast.Local) and below.name in meanings)
        for below, _ in ast.walk(node)
    )


def reads_pod(node: ast.Node) -> bool:
    """Return whether a part may depend on the pod, itself or by a macro variable from outside."""
    nodes = [below for below, _ in ast.walk(node)]
    inside = {name for below in nodes for name in _variables(below)}
    return any(
        (isinstance(below, ast.Variable) and below.name != "node")
        or (isinstance(below, ast.Local) and below.name not in inside)
        for below in nodes
    )


def _variables(node: ast.Node) -> tuple[str, ...]:
    """Return the variables that a macro has."""
    match node:
        case ast.Quantifier() | ast.Transform():
            return node.variables
        case ast.Bind() | ast.OptionalMap() | ast.SortBy():
            return (node.variable,)
    return ()


def resolved(node: ast.Node, meanings: Bindings) -> ast.Node:
    """Return what a node stands for."""
    while isinstance(node, ast.Local) and node.name in meanings:
        node = meanings[node.name]
    return node


def without(meanings: Bindings, variables: Iterable[str]) -> Bindings:
    """Return what is still meant inside a macro that has variables of these names."""
    return {name: node for name, node in meanings.items() if name not in variables}


def as_choice(node: ast.Node, meanings: Bindings) -> tuple[ast.Node, Bindings]:
    """Return a node as the choice that it stands for, if it does, and what is meant in there.

    - `node.labels[?k].orValue(z)` is `node.labels[?k].hasValue() ? node.labels[k] : z`,
    - `node.labels[?k].optMap(x, y).orValue(z)` is `node.labels[?k].hasValue() ? y : z`, where `x`
      means `node.labels[k]`,
    - `a.or(b).orValue(z)` is `a.orValue(b.orValue(z))`,
    - `int(a ? y : z)` is `a ? int(y) : int(z)`.
    """
    node = resolved(node, meanings)
    if is_int(node):
        return _choice_of_ints(node, meanings)
    if not isinstance(node, ast.Alternative) or not node.unwraps:
        return node, meanings
    optional = resolved(node.operand, meanings)
    if isinstance(optional, ast.Alternative) and not optional.unwraps:
        second = replace(node, operand=optional.other)
        return as_choice(replace(node, operand=optional.operand, other=second), meanings)
    mapping = optional if isinstance(optional, ast.OptionalMap) else None
    read = label_read(mapping.operand if mapping else optional, meanings)
    if read is None or not read.optional:
        return node, meanings
    then = read.value
    if mapping is not None:
        meanings = {**meanings, mapping.variable: then}
        then = replace(node, operand=mapping.body) if mapping.flat else mapping.body
    has_value = ast.Call("hasValue", (read.node,), member=True, offset=node.offset)
    return ast.Conditional(has_value, then, node.other, offset=node.offset), meanings


def is_int(node: ast.Node) -> TypeGuard[ast.Call]:
    """Return whether a node is `int(..)`."""
    return isinstance(node, ast.Call) and node.function == "int" and len(node.args) == 1


def _choice_of_ints(node: ast.Call, meanings: Bindings) -> tuple[ast.Node, Bindings]:
    value, meanings = as_choice(node.args[0], meanings)
    if not isinstance(value, ast.Conditional):
        return replace(node, args=(value,)), meanings
    then, otherwise = (replace(node, args=(one,)) for one in (value.then, value.otherwise))
    return replace(value, then=then, otherwise=otherwise), meanings
