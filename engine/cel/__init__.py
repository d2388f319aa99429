"""The Common Expression Language (CEL): compilation of text, and evaluation on plain values.

The language, its functions and its limits belong here; knowledge of pods, nodes or policies never
does. `lexer` and `parser` (with `macros`) build the tree of `ast`, `check` resolves its names and
infers types, `evaluate` compiles it to Python closures, and `vector` evaluates it for all rows of a
table at once. The semantics of operators are defined in `operators` alone.

The parser is not that of cel-python, whose grammar refuses 28 of the 193 parse cases of the
conformance suite, the optional syntax and quoted fields, has no limits, and gives a generic tree:
extending it would have been more code than these 300 lines.
"""

from __future__ import annotations

from engine.cel.budget import Budget, Limits
from engine.cel.environment import Environment, ObjectType
from engine.cel.evaluate import BUDGET, Closure, Frame, compile_node, new_frame
from engine.cel.program import Program, Reference, compile_program, references, resolved_program
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
    plain_value,
)
from engine.errors import (
    BudgetExhaustedError,
    CelError,
    CelProblem,
    CelProblemsError,
    CelSyntaxError,
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
    "plain_value",
    "references",
    "resolved_program",
]
