"""Reads of node labels in the syntax tree of a filter."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import TypeAlias, TypeGuard

from engine.cel import STRING, ast

Bindings: TypeAlias = Mapping[str, ast.Node]
"""The values of macro variables that read the node, substituted for them.

That is the meaning of `cel.bind` and `optMap`: a failure counts only where the value is used.
"""


@dataclass(frozen=True, slots=True)
class LabelRead:
    """`node.labels[key]`, or `node.labels[?key]` if `optional`; the key reads nothing of a node."""

    node: ast.Select | ast.Index
    key: ast.Node

    @property
    def optional(self) -> bool:
        """Whether it gives an optional, rather than fails where the label is missing."""
        return self.node.optional

    @property
    def value(self) -> ast.Node:
        """The tree of `node.labels[key]`."""
        return replace(self.node, optional=False)


def label_read(node: ast.Node, bindings: Bindings) -> LabelRead | None:
    """Return a node of the tree as a read of a label, None if it is none."""
    node = resolved(node, bindings)
    if not isinstance(node, ast.Select | ast.Index) or not is_labels(node.operand, bindings):
        return None
    if isinstance(node, ast.Select):
        return LabelRead(node, ast.Literal(node.field, STRING, offset=node.offset))
    return None if reads_node(node.index, bindings) else LabelRead(node, node.index)


def is_labels(node: ast.Node, bindings: Bindings) -> bool:
    """Return whether a node is `node.labels`."""
    root, keys, optional = ast.field_path(resolved(node, bindings))
    return keys == ("labels",) and not optional and is_node(root, bindings)


def is_node(node: ast.Node, bindings: Bindings) -> bool:
    """Return whether a node of the tree is the variable `node`."""
    node = resolved(node, bindings)
    return isinstance(node, ast.Variable) and node.name == "node"


def reads_node(node: ast.Node, bindings: Bindings) -> bool:
    """Return whether a part depends on the node that is judged."""
    return any(
        (isinstance(below, ast.Variable) and below.name == "node")
        or (isinstance(below, ast.Local) and below.name in bindings)
        for below, _ in ast.walk(node)
    )


def reads_pod(node: ast.Node) -> bool:
    """Return whether a part may depend on the pod, itself or by a macro variable from outside."""
    nodes = [below for below, _ in ast.walk(node)]
    inside = {name for below in nodes for name in ast.bound_variables(below)}
    return any(
        (isinstance(below, ast.Variable) and below.name != "node")
        or (isinstance(below, ast.Local) and below.name not in inside)
        for below in nodes
    )


def resolved(node: ast.Node, bindings: Bindings) -> ast.Node:
    """Return the value of a bound variable, any other node as it is."""
    while isinstance(node, ast.Local) and node.name in bindings:
        node = bindings[node.name]
    return node


def without(bindings: Bindings, variables: Iterable[str]) -> Bindings:
    """Return the bindings inside a macro that shadows `variables`."""
    return {name: node for name, node in bindings.items() if name not in variables}


def as_conditional(node: ast.Node, bindings: Bindings) -> tuple[ast.Node, Bindings]:
    """Return a node as the equivalent conditional, if there is one, and the bindings in there.

    - `node.labels[?k].orValue(z)` is `node.labels[?k].hasValue() ? node.labels[k] : z`,
    - `node.labels[?k].optMap(x, y).orValue(z)` is `node.labels[?k].hasValue() ? y : z`, where `x`
      is bound to `node.labels[k]`,
    - `a.or(b).orValue(z)` is `a.orValue(b.orValue(z))`,
    - `int(a ? y : z)` is `a ? int(y) : int(z)`.
    """
    node = resolved(node, bindings)
    if is_int(node):
        return _conditional_of_ints(node, bindings)
    if not isinstance(node, ast.Alternative) or not node.unwraps:
        return node, bindings
    optional = resolved(node.operand, bindings)
    if isinstance(optional, ast.Alternative) and not optional.unwraps:
        second = replace(node, operand=optional.other)
        return as_conditional(replace(node, operand=optional.operand, other=second), bindings)
    mapping = optional if isinstance(optional, ast.OptionalMap) else None
    read = label_read(mapping.operand if mapping else optional, bindings)
    if read is None or not read.optional:
        return node, bindings
    then = read.value
    if mapping is not None:
        bindings = {**bindings, mapping.variable: then}
        then = replace(node, operand=mapping.body) if mapping.flat else mapping.body
    has_value = ast.Call("hasValue", (read.node,), member=True, offset=node.offset)
    return ast.Conditional(has_value, then, node.other, offset=node.offset), bindings


def is_int(node: ast.Node) -> TypeGuard[ast.Call]:
    """Return whether a node is `int(..)`."""
    return isinstance(node, ast.Call) and node.function == "int" and len(node.args) == 1


def _conditional_of_ints(node: ast.Call, bindings: Bindings) -> tuple[ast.Node, Bindings]:
    value, bindings = as_conditional(node.args[0], bindings)
    if not isinstance(value, ast.Conditional):
        return replace(node, args=(value,)), bindings
    then, otherwise = (replace(node, args=(arg,)) for arg in (value.then, value.otherwise))
    return replace(value, then=then, otherwise=otherwise), bindings
