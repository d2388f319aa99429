"""Name resolution: variables, types and functions by lexical scope."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace

from engine.cel import ast, hints
from engine.cel.environment import Environment, ObjectType
from engine.cel.functions import Function
from engine.cel.values import TYPE, CelType
from engine.errors import did_you_mean

Typed = tuple[ast.Node, CelType]
"""A resolved node with the type of its value."""


class Scope:
    """The names visible at a place: those of the environment and of the enclosing macros.

    The variable of a macro hides every name that begins with it, unless that has a leading dot. A
    dotted path refers to the longest declared name, in the innermost namespace.
    """

    def __init__(self, environment: Environment) -> None:
        self.loops = 0  # that enclose this place
        self._environment = environment
        self._locals: dict[str, tuple[ast.Local, CelType]] = {}
        self._alive = 0  # variables of enclosing macros, shadowed ones included

    def hint(self, name: str) -> str:
        """Return what to write instead of an unknown name, "" if that is not known."""
        environment = self._environment
        if name in environment.hints:
            return environment.hints[name]
        fields = [
            f"`{variable}.{name}`"
            for variable, of_type in environment.variables.items()
            if isinstance(of_type, ObjectType) and name in of_type.fields
        ]
        if fields:
            return f"write {' or '.join(fields)}"
        known = (*self._locals, *environment.variables)
        return hints.NAMES.get(name) or did_you_mean(name, known)

    @contextmanager
    def variables(
        self, names: Sequence[str], types: Sequence[CelType], *, loop: bool = False
    ) -> Iterator[tuple[str, ...]]:
        """Declare the variables of a macro within the block, under the unique names yielded."""
        before, alive = self._locals, self._alive
        unique = tuple(f"{name}@{alive + position}" for position, name in enumerate(names))
        self._locals = before | {
            name: (ast.Local(full, offset=0), of_type)
            for name, full, of_type in zip(names, unique, types, strict=True)
        }
        self._alive += len(names)
        if loop:
            self.loops += 1
        yield unique
        self._locals, self._alive = before, alive
        if loop:
            self.loops -= 1

    def name(self, node: ast.Name) -> Typed | None:
        """Resolve a plain name, None if it is unknown."""
        if not node.absolute and node.name in self._locals:
            local, of_type = self._locals[node.name]
            return replace(local, offset=node.offset), of_type
        return self._declared(node.name, node)

    def path(self, node: ast.Select) -> Typed | None:
        """Resolve a dotted path as one name, None if it is not one."""
        qualified = self._qualified(node)
        return None if qualified is None else self._declared(*qualified)

    def function(self, call: ast.Call) -> tuple[Function | None, ast.Call]:
        """Resolve the function of a call, moving a namespace from the receiver into its name."""
        functions = self._environment.functions
        path, absolute = call.function.removeprefix("."), call.function.startswith(".")
        args = call.args
        qualified = None
        if call.member:
            qualified = self._qualified(args[0])
            if qualified is None:
                return functions.get((path, True)), call
            path, absolute = f"{qualified[0]}.{path}", qualified[1].absolute
            args = args[1:]
        for full in self._environment.candidates(path, absolute=absolute):
            if (full, False) in functions:
                return functions[full, False], replace(call, function=full, args=args, member=False)
        if qualified is not None and self._is_namespace(qualified[0]):
            return None, replace(call, function=path, args=args, member=False)
        return functions.get((call.function, True)) if call.member else None, call

    def _is_namespace(self, path: str) -> bool:
        """Return whether names of functions begin with a path, and no variable does."""
        if path.partition(".")[0] in self._environment.variables:
            return False
        if path in hints.NAMESPACES:
            return True
        return any(name.startswith(f"{path}.") for name, _ in self._environment.functions)

    def _declared(self, path: str, root: ast.Name) -> Typed | None:
        for full in self._environment.candidates(path, absolute=root.absolute):
            if full in self._environment.variables:
                variable = ast.Variable(full, offset=root.offset)
                return variable, self._environment.variables[full]
            if full in self._environment.types:
                of_type = self._environment.types[full]
                return ast.Literal(of_type, TYPE, offset=root.offset), TYPE
        return None

    def _qualified(self, node: ast.Node) -> tuple[str, ast.Name] | None:
        """Return the dotted path that `node` may be, with its root, unless the root is a local."""
        fields: list[str] = []
        while isinstance(node, ast.Select) and not node.optional:
            fields.append(node.field)
            node = node.operand
        if not isinstance(node, ast.Name) or (not node.absolute and node.name in self._locals):
            return None
        return ".".join((node.name, *reversed(fields))), node
