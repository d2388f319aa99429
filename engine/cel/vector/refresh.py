"""Refresh of the columns of an expression that a table remembers for all requests."""

from __future__ import annotations

from contextlib import suppress

from engine.cel.errors import BudgetExhaustedError
from engine.cel.evaluate import new_frame
from engine.cel.vector.columns import NotVectorizableError, Table
from engine.cel.vector.loop_step import Loop
from engine.cel.vector.scalar_fallback import ScalarFallback
from engine.cel.vector.steps import EvalContext, Numbers, Presence, Step, TextLookup


def refresh(step: Step, table: Table) -> None:
    """Compute the columns below a step that depend on rows alone, unless they are remembered.

    Errors are left to the evaluation, which meets them again.
    """
    with suppress(BudgetExhaustedError, NotVectorizableError):
        match step:
            case Loop(reads_request=True):
                for elements, _ in table.elements(step.path, step.variable) or ():
                    _refresh_below(step, elements)
            case Loop() | ScalarFallback(constants=()):
                step.column(EvalContext(table, new_frame({}, None)), None)
            case _:
                _read_leaves(step, table)
                _refresh_below(step, table)


def _refresh_below(step: Step, table: Table) -> None:
    for below in step.below:
        refresh(below, table)


def _read_leaves(step: Step, table: Table) -> None:
    """Let a table remember the leaves that a step reads itself."""
    match step:
        case Numbers():
            table.numbers(step.path)
        case Presence():
            table.presence(step.path)
        case TextLookup():
            table.texts(step.path)
        case ScalarFallback():
            for path in step.paths:
                if table.dictionary(path) is None:
                    table.texts(path)
