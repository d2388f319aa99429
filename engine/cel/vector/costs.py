"""How long the parts of an expression may take, to choose among them and to warn.

Estimates in microseconds for 5,000 rows on one core, of the right order of magnitude.
"""

from __future__ import annotations

import math
from typing import Final

from engine.cel import ast
from engine.cel.vector.columns import Layout
from engine.cel.vector.eval_context import Strategy
from engine.cel.vector.parts import Part
from engine.cel.vector.scalar_fallback import MOST_DISTINCT

_ROWS: Final = 5000
_PER_EVALUATION: Final = 0.8
_PER_NODE: Final = 0.15
_PER_COLUMN: Final = 2.0
_REMEMBERED: Final = 6.0
_TAKEN: Final = 20.0
_TURNS: Final = 8  # of a loop, as far as nothing is known
_LOOPS: Final = (ast.Quantifier, ast.SortBy, ast.Transform)


def cost_of_columns(columns: int) -> float:
    """Return the cost of an operation on some columns."""
    return _PER_COLUMN * columns


def cost_of_closure(part: Part) -> float:
    """Return the cost of one evaluation."""
    return _PER_EVALUATION + _PER_NODE * _turns(part.node)


def cost_of_spread(part: Part, layout: Layout, route: Strategy) -> float:
    """Return the cost of a part that is evaluated by its closure."""
    if route is Strategy.REMEMBERED:
        return _REMEMBERED
    return _TAKEN + _evaluations(part, layout) * cost_of_closure(part)


def strategy_of(part: Part, layout: Layout, *, requests: bool) -> Strategy:
    """Return the route of a part that is evaluated by its closure.

    Args:
        part: the part.
        layout: of the tables.
        requests: whether it reads the request, too.
    """
    if not requests:
        return Strategy.REMEMBERED
    few = _evaluations(part, layout) <= MOST_DISTINCT
    return Strategy.DISTINCT if few else Strategy.ROWS


def _evaluations(part: Part, layout: Layout) -> int:
    distinct = math.prod(layout.leaf(path).distinct for path in part.paths())
    return min(distinct, _ROWS)


def _turns(node: ast.Node) -> int:
    """Return how many nodes are evaluated, those of a loop's body as often as it may turn."""
    below = sum(map(_turns, ast.children(node)))
    return 1 + below * (_TURNS if isinstance(node, _LOOPS) else 1)
