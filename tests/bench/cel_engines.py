"""Other CEL engines, asked the same of the same nodes.

Each is asked in a process of its own, `python -m tests.bench.cel_engines NAME`, that reads a
`Question` and writes an `Answer`: cel-python changes the recursion limit of its process. The engine
of Kubernetes is asked by `cel_go.go`, built with the modules of the end-to-end tests where Go is.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Final, Protocol, TypeAlias

import msgspec

from engine.model.quantity import base_units

Activation: TypeAlias = dict[str, Any]

_ROUNDS = 5
_MODULES: Final = {"cel-expr-python": "cel_expr_python", "cel-python": "celpy"}
_GO_PROGRAM: Final = Path(__file__).parent / "cel_go.go"
_GO_MODULES: Final = Path(__file__).parents[1] / "e2e" / "controlplane"

CEL_GO: Final = "cel-go"
"""The engine of Kubernetes, in Go."""

NAMES: Final = (CEL_GO, *_MODULES)
"""The engines, as the packages are called."""


class Question(msgspec.Struct, frozen=True):
    """Expressions by name, and the activations to evaluate each for."""

    expressions: dict[str, str]
    activations: list[Activation]


class Answer(msgspec.Struct, frozen=True):
    """What one expression takes, CPU time in microseconds.

    Attributes:
        compiling: to compile it.
        fresh: to evaluate it once, with the conversion of the activation to the engine's values.
        ready: the same with an activation that was converted before.
        values: of each activation; None where there is an error.
    """

    compiling: float
    fresh: float
    ready: float
    values: list[float | None]


class _Engine(Protocol):
    """An engine, and what it raises where an expression gives no value."""

    error: tuple[type[Exception], ...]

    def compiled(self, text: str) -> Callable[[Any], float]:
        """Return what evaluates an expression for a converted activation."""

    def converted(self, activation: Activation) -> object:
        """Return an activation as the engine wants it."""


class _CelExprPython:
    """Google's C++ engine, with types checked where they are known."""

    error: tuple[type[Exception], ...] = (RuntimeError, ValueError)

    def __init__(self) -> None:
        cel = import_module("cel_expr_python.cel")
        quantity = cel.Overload("quantity_string", cel.Type.INT, [cel.Type.STRING], impl=_quantity)
        self._environment = cel.NewEnv(
            variables=dict.fromkeys(("node", "object", "pod"), cel.Type.DYN),
            functions=[cel.FunctionDecl("quantity", [quantity])],
        )

    def compiled(self, text: str) -> Callable[[Any], float]:
        expression = self._environment.compile(text)

        def evaluate(activation: object) -> float:
            found = expression.eval(activation)
            if found.type().name() == "ERROR":
                raise ValueError(found)
            return float(found.value())

        return evaluate

    def converted(self, activation: Activation) -> object:
        return self._environment.Activation(data=activation)


class _CelPython:
    """The engine in Python, by its interpreter: its compiled runner takes `has` for an error."""

    def __init__(self) -> None:
        self._celpy: Any = import_module("celpy")
        self.error: tuple[type[Exception], ...] = (self._celpy.CELEvalError,)
        self._environment = self._celpy.Environment(runner_class=self._celpy.InterpretedRunner)

    def compiled(self, text: str) -> Callable[[Any], float]:
        integer = self._celpy.celtypes.IntType
        program = self._environment.program(
            self._environment.compile(text),
            functions={"quantity": lambda value: integer(_quantity(value))},
        )
        return lambda activation: float(program.evaluate(activation))

    def converted(self, activation: Activation) -> object:
        return {name: self._celpy.json_to_cel(value) for name, value in activation.items()}


_ENGINES: Final[Mapping[str, Callable[[], _Engine]]] = {
    "cel-expr-python": _CelExprPython,
    "cel-python": _CelPython,
}


def is_installed(name: str) -> bool:
    """Return whether an engine can be asked."""
    if name == CEL_GO:
        return shutil.which("go") is not None
    return find_spec(_MODULES[name]) is not None


def ask(name: str, question: Question) -> dict[str, Answer]:
    """Return the answers of an engine by expression."""
    command, folder = [sys.executable, "-m", __spec__.name, name], None
    if name == CEL_GO:
        command, folder = ["go", "run", str(_GO_PROGRAM)], _GO_MODULES
    done = subprocess.run(  # noqa: S603 (our own programs)
        command,
        cwd=folder,
        env={**os.environ, "CGO_ENABLED": "0"},
        input=msgspec.json.encode(question),
        stdout=subprocess.PIPE,
        check=True,
    )
    return msgspec.json.decode(done.stdout, type=dict[str, Answer])


def least_time(act: Callable[[], object], rounds: int = _ROUNDS) -> float:
    """Return the least CPU time that something takes, in microseconds."""
    best = float("inf")
    for _ in range(rounds):
        start = time.process_time_ns()
        act()
        best = min(best, (time.process_time_ns() - start) / 1000)
    return best


def _quantity(text: str) -> int:
    return base_units("", str(text))


def _answer(engine: _Engine, text: str, activations: Sequence[Activation]) -> Answer:
    evaluate = engine.compiled(text)

    def value(activation: object) -> float | None:
        try:
            return evaluate(activation)
        except engine.error:
            return None

    converted = [engine.converted(one) for one in activations]
    fresh = least_time(lambda: [value(engine.converted(one)) for one in activations])
    ready = least_time(lambda: [value(one) for one in converted])
    return Answer(
        compiling=least_time(lambda: engine.compiled(text)),
        fresh=fresh / len(activations),
        ready=ready / len(activations),
        values=[value(one) for one in converted],
    )


def _main() -> None:
    engine = _ENGINES[sys.argv[1]]()
    question = msgspec.json.decode(sys.stdin.buffer.read(), type=Question)
    answers = {
        name: _answer(engine, text, question.activations)
        for name, text in question.expressions.items()
    }
    sys.stdout.buffer.write(msgspec.json.encode(answers))


if __name__ == "__main__":
    _main()
