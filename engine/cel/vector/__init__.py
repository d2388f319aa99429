"""Vectorized evaluation: one evaluation for all rows of a table, equal to the scalar one.

Strategies for computing an expression over rows belong here: once for all rows, once for each
distinct value, or as arithmetic on whole columns. Knowledge of what a table holds never does, nor
any semantics of the language beyond `kernels`: the rest runs the closures of `engine.cel.evaluate`.

A `plan` finds the dependencies of each part and chooses its strategy; `steps` compute its column.
"""

from __future__ import annotations

from engine.cel.vector.columns import (
    FAILED,
    MOMENTS,
    Bools,
    Column,
    DictColumn,
    Elements,
    Layout,
    Leaf,
    MissingPath,
    Path,
    Table,
    TextColumn,
    either,
    packed,
    unpacked,
)
from engine.cel.vector.plan import (
    Plan,
    PlannedPart,
    evaluated_calls,
    evaluation_cost,
    plan_condition,
    plan_number,
)
from engine.cel.vector.steps import Strategy, memory_key

__all__ = [
    "FAILED",
    "MOMENTS",
    "Bools",
    "Column",
    "DictColumn",
    "Elements",
    "Layout",
    "Leaf",
    "MissingPath",
    "Path",
    "Plan",
    "PlannedPart",
    "Strategy",
    "Table",
    "TextColumn",
    "either",
    "evaluated_calls",
    "evaluation_cost",
    "memory_key",
    "packed",
    "plan_condition",
    "plan_number",
    "unpacked",
]
