"""One expression of a policy, compiled for its place, or every mistake in it."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Final

from engine.cel import CelProblem, CelProblemsError, CelType, Program, compile_program
from engine.cel.static_types import NUMERIC, can_be
from engine.cel.values import BOOL, STRING
from engine.policy.environment import ExpressionScope, environment, misspelt_resources, scope_of

_IDENTIFIER = re.compile(r"\w+")


@dataclass(frozen=True, slots=True)
class ResultType:
    """The required type of an expression: in words, and as types (none: any)."""

    text: str = ""
    types: tuple[CelType, ...] = ()


ANY: Final = ResultType()
CONDITION: Final = ResultType("a condition must be a `bool`", (BOOL,))
FILTER: Final = ResultType("a filter must be a `bool`, true for nodes that pass", (BOOL,))
SCORE: Final = ResultType("a score must be a number", tuple(NUMERIC))

_CONVERSIONS: Final = {
    (SCORE, BOOL): "write `test ? 1 : 0`",
    (SCORE, STRING): "convert it, with `double(..)`, or write `x == 'a' ? 1 : 0`",
    (FILTER, STRING): "compare it, as `x == 'a'`",
    (CONDITION, STRING): "compare it, as `x == 'a'`",
}
"""Hints for a type that a place does not take."""


def compile_expression(
    source: str,
    scope: ExpressionScope,
    variables: Mapping[str, CelType],
    required: ResultType = ANY,
    later: Collection[str] = (),
) -> Program:
    """Compile an expression of a policy.

    Args:
        source: its text.
        scope: its place.
        variables: the types of the policy's variables that it may read.
        required: the type that its place requires.
        later: the policy's variables that it may not read, because it is not after them.

    Raises:
        CelProblemsError: it has mistakes; carries all of them.
    """
    try:
        program = compile_program(source, environment(scope, variables, later))
    except CelProblemsError as error:
        problems = [_with_hint(problem, source, scope) for problem in error.problems]
        raise CelProblemsError(problems) from error
    problems = [*misspelt_resources(program), *_wrong_type(program, required)]
    if problems:
        raise CelProblemsError(problems)
    return program


def _wrong_type(program: Program, required: ResultType) -> Iterator[CelProblem]:
    """Yield the problem of an expression that can never be of the required type."""
    if required.types and not can_be(program.result_type, *required.types):
        hint = _CONVERSIONS.get((required, program.result_type), "")
        yield CelProblem(0, f"{required.text}, not `{program.result_type}`", hint)


def _with_hint(problem: CelProblem, source: str, scope: ExpressionScope) -> CelProblem:
    """Return a problem; for a name unknown here, with the hint where it is known."""
    name = _IDENTIFIER.match(source, problem.offset)
    if name is None or problem.message != f"unknown name `{name[0]}`":
        return problem
    known_from = scope_of(name[0])
    if known_from is None or known_from <= scope:
        return problem
    return replace(problem, hint=f"`{name[0]}` is known in {known_from.text} alone")
