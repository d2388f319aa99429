"""How large an expression may be; enforced while it is read, before anything is built from it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """Bounds on one expression.

    Attributes:
        source: characters of source text.
        depth: levels of the syntax tree, and of brackets in the source.
        nodes: nodes of the syntax tree that are not literals; the source bounds those.
        nesting: loops within loops; one that feeds another (`a.filter(..).map(..)`) is beside it.
        elements: elements of one list literal, or entries of one map literal.
    """

    source: int = 8192
    depth: int = 50
    nodes: int = 500
    nesting: int = 2
    elements: int = 1000


DEFAULT_LIMITS: Final = Limits()
