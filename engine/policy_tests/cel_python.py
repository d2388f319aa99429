"""Another CEL engine, cel-python, as a witness of what expressions come to.

It is optional: `stowplan[cross-check]`. It knows the core of the language. Where that means the
same, it is helped: optional fields are given to it as conditions, numbers of unlike types as
doubles.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from functools import wraps
from importlib import import_module
from importlib.util import find_spec
from typing import Any, Final

from engine.cel import Duration, Program, Timestamp, UInt, ast
from engine.cel.times import format_duration, format_timestamp
from engine.cel.unparse import unparse

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
        """Import it."""
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
        """Return the value of a program, as a value of ours.

        Raises:
            UnreadableError: it cannot read the expression.
            WitnessError: there is none.
        """
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
        """Return one of its values as one of ours.

        Raises:
            TypeError: we have no such value.
        """
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
