"""The cross-check: every expression of policies, for every case and node, by another engine too."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final, Protocol

from engine.cel import CelError, Program, ast
from engine.policy import CompiledPolicy, NodeExpression, PolicySet, RuleContext
from engine.policy.node_table import NodeTable
from engine.policy.part_places import condition_part, variable_part
from engine.policy_tests.cases import Case
from engine.policy_tests.cel_python import CelPython, UnreadableError, WitnessError

_LONGEST: Final = 60  # characters of a value that are shown


class Witness(Protocol):
    """Another CEL engine."""

    def evaluate(self, program: Program, activation: Mapping[str, object]) -> object:
        """Return the value of a program; raises WitnessError where there is none."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """What an expression comes to.

    Attributes:
        value: meaningless where there is an error.
        error: why there is no value, "" where there is one.
    """

    value: object = None
    error: str = ""

    def __str__(self) -> str:
        """Return the value, or the error, as it is shown."""
        text = f"an error: {self.error}" if self.error else repr(self.value)
        return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}..."


@dataclass(frozen=True, slots=True)
class KnownDifference:
    """A difference from cel-python that is known, and explained in `docs/cel-environment.md`.

    Attributes:
        what: as the page calls it.
        applies: whether an outcome of ours and one of cel-python differ by it.
    """

    what: str
    applies: Callable[[Program, Outcome, Outcome], bool]


def _is_arithmetic(_: Program, ours: Outcome, theirs: Outcome) -> bool:
    return ours.error.startswith("no such overload") and isinstance(theirs.value, int | float)


def _is_equality(program: Program, ours: Outcome, theirs: Outcome) -> bool:
    return not ours.error and "overload" in theirs.error and _has(program, "==", "!=", "in")


def _is_nan(_: Program, ours: Outcome, theirs: Outcome) -> bool:
    return ours.error == "NaN has no order" and isinstance(theirs.value, bool)


def _is_text_of_bool(_: Program, ours: Outcome, theirs: Outcome) -> bool:
    return {"true": "True", "false": "False"}.get(str(ours.value)) == theirs.value


def _is_milliseconds(program: Program, ours: Outcome, theirs: Outcome) -> bool:
    return not (ours.error or theirs.error) and _has(program, "getMilliseconds")


def _has(program: Program, *names: str) -> bool:
    """Return whether an expression has one of these operators or functions."""
    return any(
        (isinstance(node, ast.Binary) and node.operator in names)
        or (isinstance(node, ast.Call) and node.function in names)
        for node, _ in ast.walk(program.root)
    )


KNOWN_DIFFERENCES: Final = (
    KnownDifference("arithmetic of numbers of unlike types", _is_arithmetic),
    KnownDifference("equality of values of unlike types", _is_equality),
    KnownDifference("order of NaN", _is_nan),
    KnownDifference("text of a bool", _is_text_of_bool),
    KnownDifference("milliseconds of a duration", _is_milliseconds),
)
"""In the order in which they are tried; the first that applies counts."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Difference:
    """An expression that comes to something else in cel-python.

    Attributes:
        file: of the case.
        case: its name.
        node: of a rule; "" for variables and match conditions.
    """

    file: str
    case: str
    policy: str
    part: str
    node: str
    expression: str
    ours: Outcome
    theirs: Outcome


@dataclass(slots=True)
class CrossCheck:
    """What was compared so far.

    Attributes:
        compared: the values, or errors, that were compared.
        expressions: the texts that they are of.
        unreadable: the texts that cel-python cannot read.
        known: how often each known difference was met.
        differences: all others.
        witness: the other engine.
    """

    compared: int = 0
    expressions: set[str] = field(default_factory=set)
    unreadable: set[str] = field(default_factory=set)
    known: dict[str, int] = field(default_factory=dict)
    differences: list[Difference] = field(default_factory=list)
    witness: Witness = field(default_factory=CelPython)

    def examine(self, case: Case, policies: PolicySet) -> None:
        """Compare all expressions of policies for one case."""
        view = case.state.view()
        for policy in policies:
            context = policy.context(case.request, view, case.now)
            for part, program, node, activation in _evaluations(policy, context):
                self._compare(case, policy, part, program, node, activation)

    def _compare(
        self,
        case: Case,
        policy: CompiledPolicy,
        part: str,
        program: Program,
        node: str,
        activation: Mapping[str, object],
    ) -> None:
        try:
            theirs = Outcome(self.witness.evaluate(program, activation))
        except UnreadableError:
            self.unreadable.add(program.source)
            return
        except WitnessError as error:
            theirs = Outcome(error=str(error))
        ours = _outcome(program, activation)
        self.compared += 1
        self.expressions.add(program.source)
        if _agree(ours, theirs):
            return
        for known in KNOWN_DIFFERENCES:
            if known.applies(program, ours, theirs):
                self.known[known.what] = self.known.get(known.what, 0) + 1
                return
        self.differences.append(
            Difference(
                file=case.file,
                case=case.name,
                policy=policy.name,
                part=part,
                node=node,
                expression=program.source,
                ours=ours,
                theirs=theirs,
            )
        )


def _evaluations(
    policy: CompiledPolicy, context: RuleContext
) -> Iterator[tuple[str, Program, str, Mapping[str, object]]]:
    """Yield each expression with the values it reads: its part, program, node and activation."""
    for name, program in policy.conditions.items():
        yield condition_part(name), program, "", _read(program, context.activation(program))
    for name, program in policy.variables.items():
        yield variable_part(name), program, "", _read(program, context.activation(program))
    table = NodeTable(context.view, context.now, context.request.pod)
    for rule in policy.rules:
        if not isinstance(rule.evaluator, NodeExpression):
            continue
        program, references = rule.evaluator.program, rule.evaluator.references
        shared = _read(program, context.activation(program))
        for row in context.view.valid.nonzero()[0].tolist():
            node = table.row(row, references)
            yield rule.name, program, context.view.names[row], {**shared, **node}


def _read(program: Program, activation: Mapping[str, object]) -> dict[str, object]:
    """Return those values of an activation that a program reads."""
    roots = {path[0] for path in program.references}
    return {name: value for name, value in activation.items() if name in roots}


def _outcome(program: Program, activation: Mapping[str, object]) -> Outcome:
    try:
        return Outcome(program.evaluate(activation))
    except CelError as error:
        return Outcome(error=str(error))


def _agree(ours: Outcome, theirs: Outcome) -> bool:
    if ours.error or theirs.error:
        return bool(ours.error) == bool(theirs.error)
    return _same(ours.value, theirs.value)


def _same(left: object, right: object) -> bool:
    """Return whether two values are the same, of the same types; NaN is NaN."""
    if isinstance(left, list | tuple) and isinstance(right, list | tuple):
        return len(left) == len(right) and all(map(_same, left, right))
    if isinstance(left, Mapping) and isinstance(right, Mapping):
        return left.keys() == right.keys() and all(
            _same(value, right[key]) for key, value in left.items()
        )
    if isinstance(left, float) and isinstance(right, float):
        return left == right or (math.isnan(left) and math.isnan(right))
    return type(left) is type(right) and left == right
