"""Frames: the variables and the budget that closures run on."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

from engine.cel import ast
from engine.cel.budget import Budget
from engine.cel.errors import CelError

Frame = dict[str, Any]
"""Variables by name, with the budget under `BUDGET`.

Loops add their variables as `name@depth`, a name that no variable of an environment has.
"""

Closure = Callable[[Frame], object]
"""Returns a value or raises `CelError`; stateless."""

Compile = Callable[[ast.Node], Closure]
"""Compiles a child node."""

BUDGET: Final = "@budget"


def new_frame(activation: Mapping[str, object], budget: Budget | None = None) -> Frame:
    """Return a frame with the variables of `activation`, and a new budget if none is given."""
    frame: Frame = {**activation}
    frame[BUDGET] = Budget() if budget is None else budget
    return frame


def failing(message: str) -> Closure:
    """Return a closure that always fails."""

    def fail(_frame: Frame) -> object:
        raise CelError(message)

    return fail
