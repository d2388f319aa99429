"""What a filter is made of, as far as node labels go: found once, when it is loaded.

A filter is taken apart down to the smallest parts that give a bool. Each is known before any node
is looked at, or asks something of one label that requirements can ask too, or is unknown. What the
parts come to for a pod is for `engine.policy.label_requirements` to say, what for any pod for
`engine.policy.label_outlook`.

Optionals are seen as the choices they stand for: `node.labels[?'a'].orValue(x) == y` is the same as
`'a' in node.labels ? node.labels['a'] == y : x == y`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Final, TypeAlias

from engine.cel import Closure, Environment, ast, compile_node, references

LABEL: Final = "@label"
"""The variable that holds the value of the label for the `test` of a `Comparison`."""

_MOST_CLAIMS: Final = 500
_ENVIRONMENT: Final = Environment()


@dataclass(frozen=True, slots=True)
class Key:
    """The name of a label.

    Attributes:
        value: gives it for a pod; may fail, or give something that is no string.
        text: the name, if it is written in the filter.
    """

    value: Closure
    text: str = ""


@dataclass(frozen=True, slots=True)
class Known:
    """A part that reads nothing of the node."""

    value: Closure


@dataclass(frozen=True, slots=True)
class Unknown:
    """A part that may give anything.

    Attributes:
        reason: why no requirement says the same.
        reads: labels that it reads, so that it fails without them.
    """

    reason: str
    reads: tuple[Key, ...] = ()


@dataclass(frozen=True, slots=True)
class Presence:
    """Whether a node has a label.

    Attributes:
        without: what the part gives on a node without any labels.
    """

    key: Key
    without: Closure


@dataclass(frozen=True, slots=True)
class Comparison:
    """The value of a label against something that is known; fails without the label.

    Attributes:
        other: what it is compared with, or a list or map that it is looked up in.
        test: the comparison, with the value of the label as the variable `LABEL`.
        numeric: whether the value is read as an integer first.
    """

    key: Key
    other: Closure
    test: Closure
    numeric: bool


@dataclass(frozen=True, slots=True)
class Negation:
    """`!operand`."""

    operand: Claim


@dataclass(frozen=True, slots=True)
class Junction:
    """`a && b && ...` if all must be true, else `a || b || ...`."""

    operands: tuple[Claim, ...]
    of_all: bool


@dataclass(frozen=True, slots=True)
class Choice:
    """`test ? then : otherwise`."""

    test: Claim
    then: Claim
    otherwise: Claim


@dataclass(frozen=True, slots=True)
class Loop:
    """`elements.all(x, predicate)`, or `exists`, over something that is known."""

    elements: Closure
    variables: tuple[str, ...]
    predicate: Claim
    of_all: bool


@dataclass(frozen=True, slots=True)
class Bound:
    """`cel.bind(variable, value, body)` with a value that is known."""

    variable: str
    value: Closure
    body: Claim


Claim: TypeAlias = (
    Known | Unknown | Presence | Comparison | Negation | Junction | Choice | Loop | Bound
)
"""A part that gives a bool, or fails."""


def claim_of(root: ast.Node) -> Claim:
    """Return what a filter is made of; `root` is a resolved tree."""
    try:
        return _Finder().claim(root, {})
    except RecursionError:
        return Unknown(_TOO_LARGE)


_Meanings: TypeAlias = Mapping[str, ast.Node]
"""What macro variables stand for, where that reads the node.

INVARIANT: it is put in their place, which is what `cel.bind` and `optMap` come to: a failure counts
only where the value is used.
"""


class _Finder:
    def __init__(self) -> None:
        self._found = 0

    def claim(self, node: ast.Node, meanings: _Meanings) -> Claim:
        self._found += 1
        if self._found > _MOST_CLAIMS:  # meanings within meanings grow without end
            return Unknown(_TOO_LARGE)
        node = _value(node, meanings)
        if not _reads_node(node, meanings):
            return Known(_closure(node))
        match node:
            case ast.Not():
                return Negation(self.claim(node.operand, meanings))
            case ast.And() | ast.Or():
                parts = tuple(self.claim(operand, meanings) for operand in node.operands)
                return Junction(parts, of_all=isinstance(node, ast.And))
            case ast.Conditional():
                return Choice(
                    self.claim(node.test, meanings),
                    self.claim(node.then, meanings),
                    self.claim(node.otherwise, meanings),
                )
            case ast.Quantifier():
                return self._loop(node, meanings)
            case ast.Bind():
                return self._bound(node, meanings)
            case ast.Binary():
                return self._comparison(node, meanings)
        return _presence(node, meanings) or _unknown(node, meanings)
