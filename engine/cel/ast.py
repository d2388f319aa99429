"""The syntax tree: immutable and hashable, with macros as nodes of their own.

Equality ignores offsets, so equal sub-expressions are recognised wherever they occur.

The parser builds `Name` and unresolved `Call` nodes. The checker resolves every `Name` to a
`Variable`, a `Local` or a `Literal` type, gives each `Call` its full function name, and renames
macro variables so that those in scope together have different names. Only a resolved tree is
compiled; any node of it may be compiled on its own.
"""

from __future__ import annotations

import enum
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from engine.cel.values import CelType


@dataclass(frozen=True, slots=True)
class Node:
    """The base of all nodes. `offset` counts characters of the source from 0."""

    offset: int = field(compare=False, kw_only=True)


@dataclass(frozen=True, slots=True, eq=False)
class Literal(Node):
    """A constant; `value` is a CEL value, possibly a type or the result of `duration('1s')`."""

    value: object
    type: CelType
    # what gave the value, where it was not written as a literal
    call: Node | None = field(default=None, kw_only=True)

    def __eq__(self, other: object) -> bool:
        """Distinguish `1`, `1.0`, `1u` and `true`, and `0.0` from `-0.0`, unlike Python."""
        return (
            type(other) is Literal
            and self.type == other.type
            and repr(self.value) == repr(other.value)
        )

    def __hash__(self) -> int:
        return hash((self.type, repr(self.value)))


@dataclass(frozen=True, slots=True)
class Name(Node):
    """An identifier as written; `absolute` if it has a leading dot. Not in a resolved tree."""

    name: str
    absolute: bool = False


@dataclass(frozen=True, slots=True)
class Variable(Node):
    """A declared variable, by its full name (`a.b` when the environment declares that)."""

    name: str


@dataclass(frozen=True, slots=True)
class Local(Node):
    """A variable of an enclosing macro; `name@depth` is unique among those in scope together."""

    name: str


@dataclass(frozen=True, slots=True)
class Select(Node):
    """`operand.field`; with `optional`, `operand.?field`."""

    operand: Node
    field: str
    optional: bool = False


@dataclass(frozen=True, slots=True)
class Has(Node):
    """`has(operand.field)`."""

    operand: Node
    field: str


@dataclass(frozen=True, slots=True)
class Index(Node):
    """`operand[index]`; with `optional`, `operand[?index]`."""

    operand: Node
    index: Node
    optional: bool = False


@dataclass(frozen=True, slots=True)
class ListLiteral(Node):
    """`[a, ?b]`; `optionals` holds the positions of the elements with a question mark."""

    elements: tuple[Node, ...]
    optionals: frozenset[int] = frozenset()


@dataclass(frozen=True, slots=True)
class Entry(Node):
    """One `key: value` of a map literal; with `optional`, `?key: value`."""

    key: Node
    value: Node
    optional: bool = False


@dataclass(frozen=True, slots=True)
class MapLiteral(Node):
    """`{key: value, ...}`."""

    entries: tuple[Entry, ...]


@dataclass(frozen=True, slots=True)
class Not(Node):
    """`!operand`."""

    operand: Node


@dataclass(frozen=True, slots=True)
class Negate(Node):
    """`-operand`; a negative number literal is a `Literal`."""

    operand: Node


@dataclass(frozen=True, slots=True)
class Binary(Node):
    """`left operator right`; operators are `+ - * / % == != < <= > >= in`."""

    operator: str
    left: Node
    right: Node


@dataclass(frozen=True, slots=True)
class And(Node):
    """`a && b && ...`, a whole chain in one node: at least two operands."""

    operands: tuple[Node, ...]


@dataclass(frozen=True, slots=True)
class Or(Node):
    """`a || b || ...`, like `And`."""

    operands: tuple[Node, ...]


@dataclass(frozen=True, slots=True)
class Conditional(Node):
    """`test ? then : otherwise`."""

    test: Node
    then: Node
    otherwise: Node


@dataclass(frozen=True, slots=True)
class Call(Node):
    """A function call; `args` begin with the receiver if `member`."""

    function: str
    args: tuple[Node, ...]
    member: bool = False


@dataclass(frozen=True, slots=True)
class Alternative(Node):
    """`operand.or(other)`, or `operand.orValue(other)` if `unwraps`; `other` is lazy."""

    operand: Node
    other: Node
    unwraps: bool


class HowMany(enum.Enum):
    """Number of elements that must satisfy the predicate of a `Quantifier`."""

    ALL = "all"
    SOME = "exists"
    ONE = "exists_one"


@dataclass(frozen=True, slots=True)
class Quantifier(Node):
    """`range.all(x, predicate)`, and likewise `exists` and `exists_one`.

    A single variable is a list's element or a map's key; two are index and element, or key and
    value.
    """

    how_many: HowMany
    range: Node
    variables: tuple[str, ...]
    predicate: Node


class Shape(enum.Enum):
    """The result of a `Transform`."""

    LIST = "list"
    MAP = "map"  # under the keys of its range
    ENTRIES = "entries"  # each result is a map whose entries are merged


@dataclass(frozen=True, slots=True)
class Transform(Node):
    """`map`, `filter`, `transformList`, `transformMap` and `transformMapEntry`.

    Elements for which `condition` is false are left out; `filter` has its variable as the result.
    """

    shape: Shape
    range: Node
    variables: tuple[str, ...]
    condition: Node | None
    result: Node


@dataclass(frozen=True, slots=True)
class SortBy(Node):
    """`range.sortBy(x, key)`: the elements in the order of their keys."""

    range: Node
    variable: str
    key: Node


@dataclass(frozen=True, slots=True)
class Bind(Node):
    """`cel.bind(variable, value, body)`."""

    variable: str
    value: Node
    body: Node


@dataclass(frozen=True, slots=True)
class OptionalMap(Node):
    """`operand.optMap(x, body)`; `flat` for `optFlatMap`, whose body gives an optional."""

    operand: Node
    variable: str
    body: Node
    flat: bool


def children(node: Node) -> Iterator[Node]:
    """Yield the nodes directly below `node`, in source order."""
    for attribute in _attributes(node):
        value = getattr(node, attribute)
        if isinstance(value, Node):
            yield value
        elif type(value) is tuple:
            yield from (item for item in value if isinstance(item, Node))


def _attributes(node: Node) -> tuple[str, ...]:
    """Return where the nodes below may be; what a literal was written as is evaluated by nobody."""
    return () if type(node) is Literal else node.__slots__


def bound_variables(node: Node) -> tuple[str, ...]:
    """Return the variables that a macro binds, none for other nodes."""
    match node:
        case Quantifier() | Transform():
            return node.variables
        case Bind() | OptionalMap() | SortBy():
            return (node.variable,)
    return ()


class FieldPath(NamedTuple):
    """A chain of constant selections: `a.b['c']` selects `b`, then `c`, from `a`."""

    root: Node  # the node that it starts from
    keys: tuple[str, ...]  # field names and string keys, in the order of selection
    optional: bool  # whether a selection is `.?field` or `[?key]`


def field_path(node: Node) -> FieldPath:
    """Follow constant selections down to the first node that is none."""
    keys: list[str] = []
    optional = False
    while True:
        match node:
            case (
                Select(operand=operand, field=key)
                | Index(operand=operand, index=Literal(value=str(key)))
            ):
                keys.append(key)
                optional = optional or node.optional
                node = operand
            case _:
                return FieldPath(node, tuple(reversed(keys)), optional)


def with_children(node: Node, new: Iterable[Node]) -> Node:
    """Return `node` with its children replaced, as many and in the same order."""
    rest = iter(new)
    changes: dict[str, object] = {}
    for attribute in _attributes(node):
        value = getattr(node, attribute)
        if isinstance(value, Node):
            changes[attribute] = next(rest)
        elif type(value) is tuple:
            items = (next(rest) if isinstance(item, Node) else item for item in value)
            changes[attribute] = tuple(items)
    return replace(node, **changes)  # type: ignore[arg-type]  # fields of this very class


def replaced(root: Node, part: Node, new: Node) -> Node:
    """Return a tree with one part of it, that very node, replaced."""
    if root is part:
        return new
    return with_children(root, [replaced(each, part, new) for each in children(root)])


def walk(root: Node) -> Iterator[tuple[Node, int]]:
    """Yield `root` and every node below it with its depth, counted from 1; uses no recursion."""
    pending = [(root, 1)]
    while pending:
        node, depth = pending.pop()
        yield node, depth
        pending.extend((child, depth + 1) for child in children(node))
