"""What each part of an expression reads, and which type its values are sure to have."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Final

from engine.cel import ast
from engine.cel.environment import Environment
from engine.cel.values import BOOL, DOUBLE, INT, MAP, STRING, CelType
from engine.cel.vector.columns import Layout, Leaf, Path

NUMERIC: Final = frozenset({BOOL, INT, DOUBLE})
"""The types that a column of numbers may have."""


@dataclass(frozen=True, slots=True, eq=False)
class Part:
    """A node of a resolved tree with what is known of it.

    Attributes:
        node: the node.
        below: the parts directly below, in source order; none below what is read as a whole.
        type: what its values are whenever it has one, if that is sure to be one of `NUMERIC`.
        leaf: if it is nothing but the value of a leaf, or asks for the presence of one: that leaf.
        rows: paths of the leaves that it reads.
        request: whether it reads a variable that is the same in all rows.
        free: variables of macros around it that it reads.
    """

    node: ast.Node
    below: tuple[Part, ...] = ()
    type: CelType | None = None
    leaf: Leaf | None = None
    rows: frozenset[Path] = frozenset()
    request: bool = False
    free: frozenset[str] = frozenset()

    @property
    def constant(self) -> bool:
        """Whether all rows share its value."""
        return not self.rows and not self.free

    def paths(self) -> tuple[Path, ...]:
        """Return the leaves to have for it, without those that lie within another."""
        return tuple(
            path
            for path in sorted(self.rows)
            if not any(path[:end] in self.rows for end in range(1, len(path)))
        )


def part_of(node: ast.Node, layout: Layout, environment: Environment) -> Part:
    """Return the part for a node of a resolved tree, with all parts below it."""
    read = _reading(node, layout)
    if read is not None:
        return read
    below = tuple(part_of(child, layout, environment) for child in ast.children(node))
    whole = Part(
        node,
        below,
        rows=frozenset().union(*(part.rows for part in below)),
        request=isinstance(node, ast.Variable | ast.Name) or any(part.request for part in below),
        free=frozenset().union(*(part.free for part in below)) - frozenset(_bound(node)),
    )
    if isinstance(node, ast.Local):
        return replace(whole, free=frozenset({node.name}))
    return replace(whole, type=_type_of(whole, environment))


def _bound(node: ast.Node) -> Iterator[str]:
    """Yield the variables that a macro binds; no name is bound twice where it is visible."""
    if isinstance(node, ast.Quantifier | ast.Transform):
        yield from node.variables
    elif isinstance(node, ast.SortBy | ast.Bind | ast.OptionalMap):
        yield node.variable


# Reading a row.


def _reading(node: ast.Node, layout: Layout) -> Part | None:
    """Return the part of a node that follows constant keys from a variable of the rows."""
    followed = _followed(node)
    if followed is not None:
        path, plain = followed
        if path[0] not in layout.variables:
            return None
        leaf = layout.leaf(path)
        if leaf.path == path and plain:
            of_type = leaf.type if leaf.type in NUMERIC else None
            return Part(node, type=of_type, leaf=leaf, rows=frozenset({path}))
        return Part(node, rows=frozenset({leaf.path}))
    asked = _asked(node)
    if asked is None or asked[0][0] not in layout.variables:
        return None
    path, plain = asked
    leaf = layout.leaf(path)
    # `'k' in x` is also a question to a list.
    certain = isinstance(node, ast.Has) or layout.leaf(path[:-1]).type == MAP
    whole = leaf if leaf.path == path and plain and certain else None
    return Part(node, type=BOOL, leaf=whole, rows=frozenset({leaf.path}))


def _followed(node: ast.Node) -> tuple[Path, bool] | None:
    """Return the path that a node stands for, and whether it does so without optionals."""
    keys: list[str] = []
    plain = True
    while not isinstance(node, ast.Variable):
        if isinstance(node, ast.Select):
            keys.append(node.field)
        elif isinstance(node, ast.Index) and _is_text(node.index):
            keys.append(str(node.index.value))  # type: ignore[attr-defined]
        else:
            return None
        plain = plain and not node.optional
        node = node.operand
    return (node.name, *reversed(keys)), plain


def _asked(node: ast.Node) -> tuple[Path, bool] | None:
    """Return the path whose presence a node asks for: `has(a.k)` or `'k' in a`."""
    if isinstance(node, ast.Has):
        operand, key = node.operand, node.field
    elif isinstance(node, ast.Binary) and node.operator == "in" and _is_text(node.left):
        operand, key = node.right, str(node.left.value)  # type: ignore[attr-defined]
    else:
        return None
    followed = _followed(operand)
    return None if followed is None else ((*followed[0], key), followed[1])


def _is_text(node: ast.Node) -> bool:
    return isinstance(node, ast.Literal) and node.type == STRING


# Types.

_CONDITIONS: Final = (ast.And, ast.Has, ast.Not, ast.Or, ast.Quantifier)
_RELATIONS: Final = frozenset({"==", "!=", "<", "<=", ">", ">=", "in"})


def _type_of(part: Part, environment: Environment) -> CelType | None:
    node = part.node
    if isinstance(node, ast.Literal):
        return node.type if node.type in NUMERIC else None
    if isinstance(node, _CONDITIONS):
        return BOOL
    if isinstance(node, ast.Binary):
        return BOOL if node.operator in _RELATIONS else _common(part.below)
    if isinstance(node, ast.Negate):
        return part.below[0].type
    if isinstance(node, ast.Conditional):
        return _common(part.below[1:])
    if isinstance(node, ast.Call):
        return _type_of_call(node, part, environment)
    return None


def _common(parts: tuple[Part, ...]) -> CelType | None:
    """Return the one type of some parts; what all rows share goes along with the others."""
    types = {part.type for part in parts if part.type is not None or not part.constant}
    return types.pop() if len(types) == 1 else None


def _type_of_call(node: ast.Call, part: Part, environment: Environment) -> CelType | None:
    if node.function in _TYPE_OF_ARGUMENTS and not node.member:
        return _common(part.below)
    function = environment.functions.get((node.function, node.member))
    overloads = () if function is None else function.with_arity(len(node.args))
    results = {overload.result for overload in overloads}
    return results.pop() if len(results) == 1 and results <= NUMERIC else None


_TYPE_OF_ARGUMENTS: Final = frozenset({"math.abs", "math.greatest", "math.least"})
