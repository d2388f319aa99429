"""What a closure runs on."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

from engine.cel import ast
from engine.cel.budget import Budget
from engine.cel.errors import CelError

Frame = dict[str, Any]
"""Variables by name, the budget under `BUDGET`, and the variables of macros.

Loops write their variables there, as `name@depth`, a name that no variable of an environment has.
"""

Closure = Callable[[Frame], object]
"""Returns a value or raises `CelError`; keeps nothing between calls."""

Compile = Callable[[ast.Node], Closure]
"""How a node gets the closures of the nodes below it."""

BUDGET: Final = "@budget"


def new_frame(activation: Mapping[str, object], budget: Budget | None = None) -> Frame:
    """Return a frame with the variables of `activation`, and a fresh budget if none is given."""
    frame: Frame = {**activation}
    frame[BUDGET] = Budget() if budget is None else budget
    return frame


def failing(message: str) -> Closure:
    """Return the closure of a part that cannot be evaluated."""

    def fail(_frame: Frame) -> object:
        raise CelError(message)

    return fail
