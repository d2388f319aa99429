"""Data dependencies and static types of each part of an expression."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final

from engine.cel import ast, static_types
from engine.cel.environment import Environment
from engine.cel.values import BOOL, DURATION, DYN, MAP, TIMESTAMP, CelType
from engine.cel.vector.columns import COLUMN_TYPES, Layout, Leaf, Path


@dataclass(frozen=True, slots=True, eq=False)
class Part:
    """A node of a resolved tree with its dependencies and its type."""

    node: ast.Node  # the node
    # the parts directly below, in source order; empty if the node is one path of a row
    below: tuple[Part, ...] = ()
    # of its values wherever it has one, if certain to be one of `COLUMN_TYPES`, else None
    type: CelType | None = None
    leaf: Leaf | None = None  # the leaf whose value or presence the node is, if it is exactly that
    rows: frozenset[Path] = frozenset()  # paths of the leaves that it reads
    request: bool = False  # whether it reads a variable that all rows share
    free: frozenset[str] = frozenset()  # variables of enclosing macros that it reads

    @property
    def constant(self) -> bool:
        """Whether all rows share its value."""
        return not self.rows and not self.free

    def paths(self) -> tuple[Path, ...]:
        """Return the leaves that it needs, without those that lie within another."""
        return tuple(
            path
            for path in sorted(self.rows)
            if not any(path[:end] in self.rows for end in range(1, len(path)))
        )


def part_of(node: ast.Node, layout: Layout, environment: Environment) -> Part:
    """Return the part for a node of a resolved tree, with all parts below it."""
    read = _row_value(node, layout) or _row_presence(node, layout)
    if read is not None:
        return read
    below = tuple(part_of(child, layout, environment) for child in ast.children(node))
    part = Part(
        node,
        below,
        rows=frozenset().union(*(child.rows for child in below)),
        request=isinstance(node, ast.Variable | ast.Name) or any(child.request for child in below),
        free=frozenset()
        .union(*(child.free for child in below))
        .difference(ast.bound_variables(node)),
    )
    if isinstance(node, ast.Local):
        return replace(part, free=frozenset({node.name}))
    return replace(part, type=_type_of(part, environment))


# Paths of a row.


def _row_value(node: ast.Node, layout: Layout) -> Part | None:
    """Return the part of a node that selects constant keys from a variable of the rows."""
    path = row_path(node, layout)
    if path is None:
        return None
    leaf = layout.leaf(path)
    if leaf.path != path or ast.field_path(node).optional:
        return Part(node, rows=frozenset({leaf.path}))
    of_type = leaf.type if leaf.type in COLUMN_TYPES else None
    return Part(node, type=of_type, leaf=leaf, rows=frozenset({path}))


def _row_presence(node: ast.Node, layout: Layout) -> Part | None:
    """Return the part of `has(a.k)` or `'k' in a`, where `a` is a path of a row."""
    match node:
        case ast.Has(operand=operand, field=key):
            is_map = True
        case ast.Binary(operator="in", left=ast.Literal(value=str(key)), right=operand):
            is_map = False  # `'k' in x` may also search a list
        case _:
            return None
    above = row_path(operand, layout)
    if above is None:
        return None
    path = (*above, key)
    leaf = layout.leaf(path)
    is_map = is_map or layout.leaf(above).type == MAP
    exact = is_map and leaf.path == path and not ast.field_path(operand).optional
    return Part(node, type=BOOL, leaf=leaf if exact else None, rows=frozenset({leaf.path}))


def row_path(node: ast.Node, layout: Layout) -> Path | None:
    """Return the path that a node selects from a variable of the rows, if it does."""
    root, keys, _ = ast.field_path(node)
    if isinstance(root, ast.Variable | ast.Local) and root.name in layout.variables:
        return (root.name, *keys)
    return None


# Types.

_CONDITIONS: Final = (ast.And, ast.Has, ast.Not, ast.Or, ast.Quantifier)
_TIMES: Final = frozenset({DURATION, TIMESTAMP})
_RELATIONS: Final = frozenset({"==", "!=", "<", "<=", ">", ">=", "in"})


def _type_of(part: Part, environment: Environment) -> CelType | None:
    node = part.node
    if isinstance(node, ast.Literal):
        return node.type if node.type in COLUMN_TYPES else None
    if isinstance(node, _CONDITIONS):
        return BOOL
    if isinstance(node, ast.Binary):
        return BOOL if node.operator in _RELATIONS else _of_arithmetic(node.operator, part.below)
    if isinstance(node, ast.Variable):
        declared = environment.variables.get(node.name)
        return declared if declared in COLUMN_TYPES else None
    if isinstance(node, ast.Negate):
        return part.below[0].type
    if isinstance(node, ast.Conditional):
        return _common(part.below[1:])
    if isinstance(node, ast.Call):
        return _type_of_call(node, part, environment)
    return None


def _of_arithmetic(operator: str, parts: tuple[Part, ...]) -> CelType | None:
    """Return the only type that the result may have; that of a constant may be unknown."""
    if not any(part.type in _TIMES for part in parts):
        return _common(parts)
    if any(part.type is None and not part.constant for part in parts):
        return None
    left, right = (part.type or DYN for part in parts)
    result = static_types.binary(operator, left, right)
    return result if result in COLUMN_TYPES else None


def _common(parts: tuple[Part, ...]) -> CelType | None:
    """Return the only type of the parts; a constant of unknown type takes that of the others."""
    types = {part.type for part in parts if part.type is not None or not part.constant}
    return types.pop() if len(types) == 1 else None


def _type_of_call(node: ast.Call, part: Part, environment: Environment) -> CelType | None:
    if node.function in _TYPE_OF_ARGUMENTS and not node.member:
        return _common(part.below)
    function = environment.functions.get((node.function, node.member))
    overloads = () if function is None else function.with_arity(len(node.args))
    results = {overload.result for overload in overloads}
    return results.pop() if len(results) == 1 and results <= COLUMN_TYPES else None


_TYPE_OF_ARGUMENTS: Final = frozenset({"math.abs", "math.greatest", "math.least"})
