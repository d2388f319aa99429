"""The cross-check: every expression of policies, for every case and node, by another engine too."""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import wraps
from importlib import import_module
from importlib.util import find_spec
from typing import Any, Final, Protocol

from engine.cel import CelError, Duration, Program, Timestamp, UInt, ast
from engine.cel.unparse import unparse
from engine.cel.values import format_duration, format_timestamp
from engine.policy import CompiledPolicy, NodeExpression, PolicySet, RuleContext
from engine.policy.node_statistics import nodes_value
from engine.policy.node_table import NodeTable
from engine.policy.policy_set import condition_part, variable_part
from engine.policy_tests.cases import Case

# Another CEL engine, cel-python, as a witness of what expressions come to.
#
# It is optional: `stowplan[cross-check]`. It knows the core of the language. Where that means the
# same, it is helped: optional fields are given to it as conditions, numbers of unlike types as
# doubles.


MODULE: Final = "celpy"
_COMPARISONS: Final = ("_==_", "_!=_", "_<_", "_<=_", "_>_", "_>=_")
_MICROS_PER_SECOND = 1_000_000
_NANOS_PER_MICRO = 1000


class WitnessError(Exception):
    """cel-python gives no value."""


class UnreadableError(WitnessError):
    """It does not know the functions or the syntax of an expression, however it is written."""


def is_installed() -> bool:
    """Return whether cel-python can be asked."""
    return find_spec(MODULE) is not None


class CelPython:
    """Evaluates programs by the interpreter of cel-python.

    Its compiled runner is quicker, and takes a missing field in `has` for an error.
    """

    def __init__(self) -> None:
        deepest = sys.getrecursionlimit()
        self._celpy: Any = import_module(MODULE)
        sys.setrecursionlimit(deepest)  # its import changes it for the whole process
        self._environment = self._celpy.Environment(runner_class=self._celpy.InterpretedRunner)
        types = self._celpy.celtypes
        known = import_module(f"{MODULE}.evaluation").base_functions
        self._functions = {
            "dyn": lambda value: value,
            **{name: self._comparison(known[name]) for name in _COMPARISONS},
        }
        self._known_functions = known.keys() | self._functions
        # In this order: its bools and unsigned numbers are ints of Python, too.
        self._scalars: tuple[tuple[type, Callable[[Any], object]], ...] = (
            (type(None), lambda _: None),
            (bool, bool),
            (types.BoolType, bool),
            (types.UintType, UInt),
            (types.DurationType, lambda value: Duration(_nanos(value.total_seconds()))),
            (types.TimestampType, lambda value: Timestamp(_nanos(value.timestamp()))),
            (int, int),
            (float, float),
            (str, str),
            (bytes, bytes),
        )
        self._runners: dict[str, Any] = {}  # None for a text that it cannot read

    def evaluate(self, program: Program, activation: Mapping[str, object]) -> object:
        if program.source not in self._runners:
            self._runners[program.source] = self._compiled(program)
        runner = self._runners[program.source]
        if runner is None:
            raise UnreadableError(program.source)
        try:
            return self._plain(runner.evaluate({k: self._own(v) for k, v in activation.items()}))
        except Exception as error:
            raise WitnessError(_first_line(error)) from error

    def _compiled(self, program: Program) -> Any:  # noqa: ANN401 - it has no types
        if not all(self._knows(node) for node, _ in ast.walk(program.root)):
            return None
        for text in (program.source, unparse(without_optionals(program.root))):
            try:
                tree = self._environment.compile(text)
                return self._environment.program(tree, functions=self._functions)
            except self._celpy.CELParseError:
                continue
        return None

    def _knows(self, node: ast.Node) -> bool:
        """Return whether it has the function or macro of a node, if that is one."""
        match node:
            case ast.Call():
                return node.function in self._known_functions
            case ast.Quantifier() | ast.Transform():
                return len(node.variables) == 1
            case ast.Bind() | ast.OptionalMap() | ast.SortBy():
                return False
        return True

    def _comparison(self, compare: Callable[[Any, Any], Any]) -> Callable[[Any, Any], Any]:
        """Return a comparison that takes numbers of unlike types, too: its own takes none."""
        types = self._celpy.celtypes
        numbers = types.IntType, types.UintType, types.DoubleType

        @wraps(compare)  # it shows names of functions
        def compared(left: object, right: object) -> Any:  # noqa: ANN401 - as above
            is_mixed = type(left) is not type(right)
            if is_mixed and type(left) in numbers and type(right) in numbers:
                return compare(types.DoubleType(left), types.DoubleType(right))
            return compare(left, right)

        return compared

    def _own(self, value: object) -> Any:  # noqa: ANN401 - the same
        """Return a value of ours as one of its."""
        types = self._celpy.celtypes
        match value:
            case None:
                return None
            case dict():
                return types.MapType({self._own(k): self._own(v) for k, v in value.items()})
            case list() | tuple():
                return types.ListType([self._own(item) for item in value])
            case Timestamp():
                return types.TimestampType(format_timestamp(value))
            case Duration():
                return types.DurationType(format_duration(value))
        return {
            bool: types.BoolType,
            int: types.IntType,
            UInt: types.UintType,
            float: types.DoubleType,
            str: types.StringType,
            bytes: types.BytesType,
        }[type(value)](value)

    def _plain(self, value: object) -> object:
        """Return one of its values as one of ours."""
        if isinstance(value, list):
            return [self._plain(item) for item in value]
        if isinstance(value, dict):
            return {self._plain(key): self._plain(item) for key, item in value.items()}
        for kind, plain in self._scalars:
            if isinstance(value, kind):
                return plain(value)
        raise TypeError(f"a value of type {type(value).__name__}")


def without_optionals(node: ast.Node) -> ast.Node:
    """Return a tree that means the same, with `m[?k].orValue(d)` as `k in m ? m[k] : d`.

    Optionals in other places stay as they are.
    """
    new = ast.with_children(node, map(without_optionals, ast.children(node)))
    match new:
        case ast.Alternative(operand=ast.Index(optional=True) as found, unwraps=True):
            there: ast.Node = ast.Binary("in", found.index, found.operand, offset=new.offset)
            plain: ast.Node = ast.Index(found.operand, found.index, offset=new.offset)
        case ast.Alternative(operand=ast.Select(optional=True) as found, unwraps=True):
            there = ast.Has(found.operand, found.field, offset=new.offset)
            plain = ast.Select(found.operand, found.field, offset=new.offset)
        case _:
            return new
    return ast.Conditional(there, plain, new.other, offset=new.offset)


def _nanos(seconds: float) -> int:
    """Return nanoseconds; its moments and spans are those of Python, in microseconds."""
    return round(seconds * _MICROS_PER_SECOND) * _NANOS_PER_MICRO


def _first_line(error: Exception) -> str:
    text = str(error.args[0]) if error.args else type(error).__name__
    return text.partition("\n")[0]


_LONGEST: Final = 60  # characters of a value that are shown


class Witness(Protocol):
    """Another CEL engine."""

    def evaluate(self, program: Program, activation: Mapping[str, object]) -> object:
        """Return the value of a program; raises WitnessError where there is none."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """What an expression comes to."""

    value: object = None  # meaningless where there is an error
    error: str = ""  # why there is no value, "" where there is one

    def __str__(self) -> str:
        """Return the value, or the error, as it is shown."""
        text = f"an error: {self.error}" if self.error else repr(self.value)
        return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}..."


@dataclass(frozen=True, slots=True)
class KnownDifference:
    """A difference from cel-python that is known, and explained in `docs/cel-environment.md`."""

    what: str  # as the page calls it
    # whether an outcome of ours and one of cel-python differ by it
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
        nodes = nodes_value(program, context)
        shared = _read(program, {**context.activation(program), **nodes})
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
