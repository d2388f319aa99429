"""Expressions over tables: one evaluation for all rows, with the answers of the scalar evaluator.

What belongs here is how an expression is spread over rows: which part is the same for all, which
depends on few distinct values, which is arithmetic on whole columns. What never does is any
knowledge of what a table holds, and any meaning of the language but that of `kernels`: everything
else runs the closures of `engine.cel.evaluate`.

`parts` says what each part reads, `planner` chooses its route, `steps` and `spread` give its
column, and a `plan` evaluates all of them.
"""

from __future__ import annotations

from engine.cel.vector.columns import (
    FAILED,
    Bools,
    Column,
    DictColumn,
    Layout,
    Leaf,
    MissingPath,
    Path,
    Table,
    either,
    packed,
    unpacked,
)
from engine.cel.vector.eval_context import Strategy
from engine.cel.vector.plan import Plan, Routed
from engine.cel.vector.planner import plan_condition, plan_number
from engine.cel.vector.scalar_fallback import memory_key

__all__ = [
    "FAILED",
    "Bools",
    "Column",
    "DictColumn",
    "Layout",
    "Leaf",
    "MissingPath",
    "Path",
    "Plan",
    "Routed",
    "Strategy",
    "Table",
    "either",
    "memory_key",
    "packed",
    "plan_condition",
    "plan_number",
    "unpacked",
]
