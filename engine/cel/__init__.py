"""The Common Expression Language: text to a checked program, and its evaluation on plain values.

What belongs here is the language and its functions, with limits on everything; what never does is
any knowledge of pods, nodes or policies. An expression goes through `lexer`, `parser` (with
`macros`) to the tree of `ast`, through `check` to a resolved tree with types, and through
`compiler` to Python closures; `columnar` evaluates it for all rows of a table at once. `operators`
is the single place where an operator gets its meaning.

The parser is our own, not that of cel-python: its grammar refuses 28 of the 193 parse cases of the
conformance suite and all of the optional syntax and quoted fields, it knows no limits, and it gives
a generic tree; extending it would have been more code than these 300 lines.
"""

from __future__ import annotations

from engine.cel.budget import Budget
from engine.cel.environment import Environment, ObjectType
from engine.cel.errors import (
    BudgetExhaustedError,
    CelError,
    CelProblem,
    CelProblemsError,
    CelSyntaxError,
)
from engine.cel.evaluate import BUDGET, Closure, Frame, compile_node, new_frame
from engine.cel.limits import Limits
from engine.cel.program import Program, Reference, compile_program, references
from engine.cel.static_types import can_be, list_of, map_of
from engine.cel.values import (
    BOOL,
    BYTES,
    DOUBLE,
    DURATION,
    DYN,
    INT,
    STRING,
    TIMESTAMP,
    UINT,
    CelType,
    Duration,
    OptionalValue,
    Timestamp,
    UInt,
)

__all__ = [
    "BOOL",
    "BUDGET",
    "BYTES",
    "DOUBLE",
    "DURATION",
    "DYN",
    "INT",
    "STRING",
    "TIMESTAMP",
    "UINT",
    "Budget",
    "BudgetExhaustedError",
    "CelError",
    "CelProblem",
    "CelProblemsError",
    "CelSyntaxError",
    "CelType",
    "Closure",
    "Duration",
    "Environment",
    "Frame",
    "Limits",
    "ObjectType",
    "OptionalValue",
    "Program",
    "Reference",
    "Timestamp",
    "UInt",
    "can_be",
    "compile_node",
    "compile_program",
    "list_of",
    "map_of",
    "new_frame",
    "references",
]
