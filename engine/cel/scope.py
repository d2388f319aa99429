"""Which variable, type or function a name stands for, at one place of an expression."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace

from engine.cel import ast
from engine.cel.environment import Environment
from engine.cel.functions import Function
from engine.cel.values import TYPE, CelType

Typed = tuple[ast.Node, CelType]
"""A resolved node with the type of its value."""


class Scope:
    """The names visible at a place: those of the environment and of the macros around it.

    The variable of a macro hides every name that begins with it, unless it is written with a
    leading dot. A dotted path is the longest name declared, in the innermost namespace.
    """

    def __init__(self, environment: Environment) -> None:
        self.loops = 0  # how many loops are around this place
        self._environment = environment
        self._locals: dict[str, tuple[ast.Local, CelType]] = {}
        self._alive = 0  # macro variables around this place, shadowed ones included

    def known(self) -> tuple[str, ...]:
        """Return the names of all variables that are visible here."""
        return (*self._locals, *self._environment.variables)

    @contextmanager
    def variables(
        self, names: Sequence[str], types: Sequence[CelType], *, loop: bool = False
    ) -> Iterator[tuple[str, ...]]:
        """Add the variables of a macro for the time of the block; give the names they get."""
        before, alive = self._locals, self._alive
        unique = tuple(f"{name}@{alive + position}" for position, name in enumerate(names))
        self._locals = before | {
            name: (ast.Local(full, offset=0), of_type)
            for name, full, of_type in zip(names, unique, types, strict=True)
        }
        self._alive += len(names)
        self.loops += loop
        yield unique
        self._locals, self._alive = before, alive
        self.loops -= loop

    def name(self, node: ast.Name) -> Typed | None:
        """Return what a plain name stands for, or None if it is unknown."""
        if not node.absolute and node.name in self._locals:
            local, of_type = self._locals[node.name]
            return replace(local, offset=node.offset), of_type
        return self._declared(node.name, node)

    def path(self, node: ast.Select) -> Typed | None:
        """Return what a dotted path stands for as a whole, or None if it is not one name."""
        qualified = self._qualified(node)
        return None if qualified is None else self._declared(*qualified)

    def function(self, call: ast.Call) -> tuple[Function | None, ast.Call]:
        """Return the function called, and the call with a namespace moved into its name."""
        functions = self._environment.functions
        path, absolute = call.function.removeprefix("."), call.function.startswith(".")
        args = call.args
        if call.member:
            qualified = self._qualified(args[0])
            if qualified is None:
                return functions.get((path, True)), call
            path, absolute = f"{qualified[0]}.{path}", qualified[1].absolute
            args = args[1:]
        for full in self._environment.candidates(path, absolute=absolute):
            if (full, False) in functions:
                return functions[full, False], replace(call, function=full, args=args, member=False)
        return functions.get((call.function, True)) if call.member else None, call

    def _declared(self, path: str, root: ast.Name) -> Typed | None:
        for full in self._environment.candidates(path, absolute=root.absolute):
            if full in self._environment.variables:
                variable = ast.Variable(full, offset=root.offset)
                return variable, self._environment.variables[full]
            if full in self._environment.types:
                named = self._environment.types[full]
                return ast.Literal(named, TYPE, offset=root.offset), TYPE
        return None

    def _qualified(self, node: ast.Node) -> tuple[str, ast.Name] | None:
        """Return the dotted path that `node` may be, with its root, unless that is a local."""
        fields: list[str] = []
        while isinstance(node, ast.Select) and not node.optional:
            fields.append(node.field)
            node = node.operand
        if not isinstance(node, ast.Name) or (not node.absolute and node.name in self._locals):
            return None
        return ".".join((node.name, *reversed(fields))), node
