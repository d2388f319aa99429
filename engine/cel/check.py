"""The checker: resolves names, infers types and finds all mistakes, in one pass.

It builds a new tree in which names are variables, locals or types, calls carry the full name of
their function, and constructor calls on literals are literals.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any, Final

from engine.cel import ast, hints, parser, static_types
from engine.cel.environment import Environment, ObjectType
from engine.cel.functions import Function, Overload
from engine.cel.functions.lists import STATISTICS_BY_NAME, TYPED_SUM, ZEROS
from engine.cel.functions.strings import check_template
from engine.cel.static_types import (
    NUMERIC,
    are_unlike,
    can_be,
    join,
    kind_of,
    list_of,
    loop_variables,
    map_of,
    optional_of,
    parameter,
    unwrapped,
)
from engine.cel.values import (
    BOOL,
    BYTES,
    DOUBLE,
    DURATION,
    DYN,
    INT,
    LIST,
    MAP,
    NULL,
    OPTIONAL,
    STRING,
    TIMESTAMP,
    TYPE,
    UINT,
    CelType,
    Duration,
    Opaque,
    OptionalValue,
    Timestamp,
    UInt,
    type_of,
)
from engine.errors import CelError, CelProblem, did_you_mean

_CLASSES: Final[Mapping[CelType, type]] = {
    BOOL: bool,
    BYTES: bytes,
    DOUBLE: float,
    DURATION: Duration,
    INT: int,
    LIST: list,
    MAP: dict,
    NULL: type(None),
    OPTIONAL: OptionalValue,
    STRING: str,
    TIMESTAMP: Timestamp,
    TYPE: CelType,
    UINT: UInt,
}

_WRITABLE: Final = frozenset({BOOL, BYTES, DOUBLE, DURATION, INT, NULL, STRING, TIMESTAMP, UINT})
"""Types whose values have literals, or a function that makes them of one."""


def fits(overload: Overload, args: tuple[CelType, ...], opaque: Mapping[str, type[Opaque]]) -> bool:
    """Return whether a call with arguments of these types may dispatch to the overload."""
    if not overload.takes(len(args)):
        return False
    params = overload.params + overload.params[-1:] * (len(args) - len(overload.params))
    return all(
        object in {param, given} or param is given
        for param, given in zip(params, (_class_of(arg, opaque) for arg in args), strict=True)
    )


def _class_of(of_type: CelType, opaque: Mapping[str, type[Opaque]]) -> type:
    """Return the Python class of values of the type, `object` if it is not certain."""
    kind = kind_of(of_type)
    known = _CLASSES.get(kind)
    return opaque.get(kind.name, object) if known is None else known


def folded(call: ast.Call, fitting: Iterable[Overload]) -> ast.Node:
    """Return what literal arguments allow to evaluate at load; the call itself if they do not."""
    literals = {
        position: arg.value
        for position, arg in enumerate(call.args)
        if isinstance(arg, ast.Literal)
    }
    for overload in fitting:
        preparation = overload.preparation
        if preparation is not None and preparation.position in literals:
            preparation.prepare(literals[preparation.position])
        if overload.folds and len(literals) == len(call.args):
            value = overload.impl(*literals.values())
            of_type = type_of(value)
            said = None if of_type in _WRITABLE else call
            return ast.Literal(value, of_type, call=said, offset=call.offset)
    return call


def is_like_a_macro(call: ast.Call) -> bool:
    """Return whether a call of an unknown function has the name of a macro, or one much like it."""
    return call.member and (
        call.function in parser.NAMES or bool(did_you_mean(call.function, parser.NAMES))
    )


def unknown_function(call: ast.Call, environment: Environment) -> tuple[str, str]:
    """Return the message and hint for a call of an unknown function."""
    name = call.function.removeprefix(".")
    functions = environment.functions
    if hint := hints.for_function(call):
        return f"unknown function `{name}`", hint
    if name in environment.variables and not call.args:
        return f"`{name}` is no function", f"write `{name}`"
    if (name, not call.member) in functions:
        hint = f"write `{name}(x)`" if call.member else f"write `x.{name}()`"
    elif name in parser.NAMES and environment.macros:
        hint = f"the macro `{name}` takes other arguments"
    else:
        names = {known for known, member in functions if member is call.member}
        if call.member and environment.macros:
            names |= parser.NAMES
        hint = did_you_mean(name, sorted(names - {TYPED_SUM}))
    return f"unknown function `{name}`", hint


def mismatch(function: Function, types: Sequence[CelType]) -> str:
    """Return the message for a call that no overload accepts; `types` begin with the receiver."""
    receiver = 1 if function.member else 0
    if not function.with_arity(len(types)):
        counts = sorted({len(overload.params) - receiver for overload in function.overloads})
        expected = " or ".join(map(str, counts))
        more = " or more" if any(overload.variadic for overload in function.overloads) else ""
        plural = "" if expected == "1" and not more else "s"
        given = len(types) - receiver
        return f"`{function.name}` takes {expected}{more} argument{plural}, not {given}"
    given_types = ", ".join(map(str, types[receiver:]))
    if function.member:
        return f"`{types[0]}` has no function `{function.name}({given_types})`"
    return f"`{function.name}` does not take ({given_types})"


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


@dataclass(frozen=True, slots=True)
class Checked:
    """A resolved tree, the type of its value, and what was found in it, in source order."""

    root: ast.Node  # the tree
    type: CelType  # of its value
    problems: tuple[CelProblem, ...]  # the mistakes
    # what Kubernetes refuses where it checks types, and is accepted here
    warnings: tuple[CelProblem, ...] = ()


def check(root: ast.Node, environment: Environment) -> Checked:
    """Resolve and check a parsed tree; never raises.

    A part with a mistake remains in the tree and fails when it is evaluated.
    """
    checker = _Checker(environment)
    resolved, of_type = checker.visit(root)
    warnings = tuple(sorted(set(checker.warnings)))
    return Checked(resolved, of_type, tuple(sorted(checker.problems)), warnings)


class _Checker:
    def __init__(self, environment: Environment) -> None:
        self.problems: list[CelProblem] = []
        self.warnings: list[CelProblem] = []
        self.environment = environment
        self.scope = Scope(environment)

    def visit(self, node: ast.Node) -> Typed:
        return _VISITS[type(node)](self, node)

    def report(self, offset: int, message: str, hint: str = "") -> None:
        self.problems.append(CelProblem(offset, message, hint))

    def literal(self, node: ast.Literal) -> Typed:
        return node, node.type

    def name(self, node: ast.Name) -> Typed:
        resolved = self.scope.name(node)
        if resolved is not None:
            return resolved
        self.report(node.offset, f"unknown name `{node.name}`", self.scope.hint(node.name))
        return node, DYN

    # Fields and elements.

    def select(self, node: ast.Select) -> Typed:
        resolved = self.scope.path(node)
        if resolved is not None:
            return resolved
        operand, of_type = self.visit(node.operand)
        field_type = self._field(unwrapped(of_type), node)
        return replace(node, operand=operand), _wrapped(field_type, of_type, node.optional)

    def has(self, node: ast.Has) -> Typed:
        operand, of_type = self.visit(node.operand)
        self._field(unwrapped(of_type), ast.Select(node.operand, node.field, offset=node.offset))
        return replace(node, operand=operand), BOOL

    def _field(self, of_type: CelType, node: ast.Select) -> CelType:
        """Return the type of a field, `of_type` being that of what has it."""
        if isinstance(of_type, ObjectType):
            return self._declared_field(of_type, node.field, node.offset)
        if of_type.name == MAP.name:
            return parameter(of_type, 1)
        if of_type != DYN:
            hint = hints.for_field(node, self._type_of)
            self.report(node.offset, f"a value of type `{of_type}` has no fields", hint)
        return DYN

    def _declared_field(self, of_type: ObjectType, field: str, offset: int) -> CelType:
        if field in of_type.fields:
            return of_type.fields[field]
        hint = of_type.hints.get(field) or did_you_mean(field, of_type.fields)
        self.report(offset, f"`{of_type}` has no field `{field}`", hint)
        return DYN

    def _type_of(self, node: ast.Node) -> CelType:
        """Return the type of a part, its mistakes left unreported."""
        reported = len(self.problems)
        _, of_type = self.visit(node)
        del self.problems[reported:]
        return of_type

    def index(self, node: ast.Index) -> Typed:
        operand, of_type = self.visit(node.operand)
        if isinstance(node.index, ast.Name) and self.scope.name(node.index) is None:
            name = node.index.name
            hint = hints.for_unquoted(node, unwrapped(of_type)) or self.scope.hint(name)
            self.report(node.index.offset, f"unknown name `{name}`", hint)
            return node, DYN
        index, index_type = self.visit(node.index)
        inner = unwrapped(of_type)
        element = DYN
        if isinstance(inner, ObjectType):
            if isinstance(index, ast.Literal) and index.type == STRING:
                element = self._declared_field(inner, str(index.value), index.offset)
        elif inner.name == MAP.name:
            element = parameter(inner, 1)
        elif inner.name == LIST.name:
            element = parameter(inner)
            if not can_be(index_type, *NUMERIC):
                hint = hints.for_index(node, element)
                self.report(index.offset, f"a list has no index of type `{index_type}`", hint)
        elif inner != DYN:
            self.report(node.offset, f"a value of type `{inner}` has no elements")
        resolved = replace(node, operand=operand, index=index)
        return resolved, _wrapped(element, of_type, node.optional)

    def list_literal(self, node: ast.ListLiteral) -> Typed:
        typed = [
            self.optional(element) if position in node.optionals else self.visit(element)
            for position, element in enumerate(node.elements)
        ]
        types = [of_type for _, of_type in typed]
        self._warn_of_mixture(node, types)
        resolved = replace(node, elements=tuple(element for element, _ in typed))
        return resolved, list_of(join(types)) if types else LIST

    def _warn_of_mixture(self, node: ast.Node, types: Sequence[CelType]) -> None:
        if are_unlike(types):
            message = (
                f"values of the types {', '.join(map(str, dict.fromkeys(types)))} in one literal"
            )
            self.warnings.append(CelProblem(node.offset, message))

    def optional(self, node: ast.Node) -> Typed:
        """Visit a node that must give an optional; return the type of its value."""
        resolved, of_type = self.visit(node)
        if not can_be(of_type, OPTIONAL):
            self.report(node.offset, f"expected an optional, not `{of_type}`")
        return resolved, parameter(of_type)

    def map_literal(self, node: ast.MapLiteral) -> Typed:
        entries: list[ast.Entry] = []
        keys: list[CelType] = []
        values: list[CelType] = []
        for entry in node.entries:
            key, key_type = self.visit(entry.key)
            visit = self.optional if entry.optional else self.visit
            value, value_type = visit(entry.value)
            entries.append(replace(entry, key=key, value=value))
            keys.append(key_type)
            values.append(value_type)
        self._warn_of_mixture(node, keys)
        self._warn_of_mixture(node, values)
        resolved = replace(node, entries=tuple(entries))
        return resolved, map_of(join(keys), join(values)) if keys else MAP

    # Operators.

    def not_(self, node: ast.Not) -> Typed:
        return replace(node, operand=self.boolean(node.operand)), BOOL

    def boolean(self, node: ast.Node, among: ast.And | ast.Or | None = None) -> ast.Node:
        resolved, of_type = self.visit(node)
        if not can_be(of_type, BOOL):
            hint = self._hint_of_field(node) or hints.for_bool(node, of_type, among)
            self.report(node.offset, f"{_NO_BOOL} `{of_type}`", hint)
        return resolved

    def negate(self, node: ast.Negate) -> Typed:
        operand, of_type = self.visit(node.operand)
        if not can_be(of_type, INT, DOUBLE):
            self.report(node.offset, f"`-` does not apply to `{of_type}`")
        return replace(node, operand=operand), of_type

    def binary(self, node: ast.Binary) -> Typed:
        reported = len(self.problems)
        resolved = self._operands(node)
        name = hints.signed_name(node) if len(self.problems) > reported else None
        hint = hints.in_brackets(name.names, self._type_of) if name else ""
        if name is not None and hint:
            del self.problems[reported:]
            self.report(name.offset, f"a name ends before `{name.sign}`", hint)
        return resolved

    def _operands(self, node: ast.Binary) -> Typed:
        reported = len(self.problems)
        left, left_type = self.visit(node.left)
        hint = hints.for_negated_operand(node)
        if hint and any(each.message.startswith(_NO_BOOL) for each in self.problems[reported:]):
            self.problems[-1] = replace(self.problems[-1], hint=hint)
        right, right_type = self.visit(node.right)
        result = static_types.binary(node.operator, left_type, right_type)
        if result is None:
            if len(self.problems) > reported and DYN in {left_type, right_type}:
                return replace(node, left=left, right=right), DYN  # of what failed nothing is known
            message = f"`{node.operator}` does not apply to `{left_type}` and `{right_type}`"
            hint = (
                self._hint_of_field(node.left)
                or self._hint_of_field(node.right)
                or hints.for_operands(node, left_type, right_type)
            )
            self.report(node.offset, message, hint)
        elif node.operator in {"==", "!="} and are_unlike((left_type, right_type)):
            message = f"`{node.operator}` of `{left_type}` and `{right_type}`: convert one of them"
            self.warnings.append(CelProblem(node.offset, message))
        elif node.operator == "in" and right_type.name in {LIST.name, MAP.name}:
            element = parameter(right_type)
            is_plain = kind_of(element) in {BOOL, STRING, *NUMERIC}
            if is_plain and _are_unlike_for_good(left_type, element):
                message = f"no `{left_type}` is among values of `{element}`: it is never true"
                self.warnings.append(CelProblem(node.offset, message))
        resolved = replace(node, left=left, right=right)
        if node.operator == "in" and isinstance(right, ast.ListLiteral) and not right.elements:
            # As cel-go, which does not ask for an element of nothing: an error of it has no effect.
            return ast.Literal(value=False, type=BOOL, call=resolved, offset=node.offset), BOOL
        return resolved, result or DYN

    def _hint_of_field(self, node: ast.Node) -> str:
        """Return what the environment says of a declared field that is used as another type."""
        if not isinstance(node, ast.Select):
            return ""
        of_type = self._type_of(node.operand)
        return of_type.hints.get(node.field, "") if isinstance(of_type, ObjectType) else ""

    def logic(self, node: ast.And | ast.Or) -> Typed:
        operands = (self.boolean(each, node) for each in node.operands)
        return replace(node, operands=tuple(operands)), BOOL

    def conditional(self, node: ast.Conditional) -> Typed:
        test = self.boolean(node.test)
        then, then_type = self.visit(node.then)
        otherwise, other_type = self.visit(node.otherwise)
        resolved = replace(node, test=test, then=then, otherwise=otherwise)
        return resolved, join((then_type, other_type))

    # Calls.

    def call(self, node: ast.Call) -> Typed:
        function, node = self.scope.function(node)
        if function is None and (node.function, len(node.args)) in _ALTERNATIVES and node.member:
            return self._alternative(node)
        if function is None and node.function == "has" and len(node.args) == 1:
            hint = hints.for_has(node.args[0], self._type_of)
            self.report(node.args[0].offset, "`has` needs a field", hint)
            return node, DYN
        reported = len(self.problems)
        if function is None and is_like_a_macro(node):
            self.visit(node.args[0])  # the others speak of names that the macro would bind
            if len(self.problems) == reported:
                self.report(node.offset, *unknown_function(node, self.environment))
            return node, DYN
        typed = [self.visit(arg) for arg in node.args]
        types = tuple(of_type for _, of_type in typed)
        node = replace(node, args=tuple(arg for arg, _ in typed))
        if function is None:
            # Of what is called on an unknown name nothing is known.
            if not node.member or len(self.problems) == reported:
                self.report(node.offset, *unknown_function(node, self.environment))
            return node, DYN
        fitting = [
            overload
            for overload in function.overloads
            if fits(overload, types, self.environment.opaque_classes)
        ]
        if not fitting:
            hint = hints.for_mismatch(node, types)
            self.report(node.offset, mismatch(function, types), hint)
            return node, DYN
        if node.function in STATISTICS_BY_NAME and not can_be(parameter(types[0]), *NUMERIC):
            message = f"only numbers have a {node.function}, no `{parameter(types[0])}`"
            self.report(node.offset, message)
        if node.function == "sum" and (element := parameter(types[0])) in ZEROS:
            zero = ast.Literal(ZEROS[element], element, offset=node.offset)
            return ast.Call(TYPED_SUM, (*node.args, zero), offset=node.offset), element
        return self._folded(node, fitting), join(overload.result for overload in fitting)

    def _alternative(self, node: ast.Call) -> Typed:
        unwraps = node.function == "orValue"
        operand, of_type = self.optional(node.args[0])
        other, other_type = (self.visit if unwraps else self.optional)(node.args[1])
        value_type = unwrapped(of_type)
        if unwraps and _are_unlike_for_good(value_type, other_type):
            hint = hints.for_default(node, value_type)
            message = f"the value is of type `{value_type}`, its default of type `{other_type}`"
            self.warnings.append(CelProblem(node.args[1].offset, message, hint))
        result = join((of_type, other_type))
        result = result if unwraps else optional_of(result)
        return ast.Alternative(operand, other, unwraps, offset=node.offset), result

    def _folded(self, node: ast.Call, fitting: Iterable[Overload]) -> ast.Node:
        """Evaluate at load what literal arguments allow; a failure is a mistake."""
        try:
            _check_format(node)
            return folded(node, fitting)
        except CelError as error:
            self.report(node.offset, str(error), hints.for_failure(node))
        return node

    # Macros.

    def _range(self, node: ast.Node, variables: int) -> tuple[ast.Node, CelType, list[CelType]]:
        """Return a resolved range, its type, and the types of one or two loop variables over it."""
        resolved, of_type = self.visit(node)
        if not can_be(of_type, LIST, MAP):
            self.report(node.offset, f"a value of type `{of_type}` cannot be looped over")
        if self.scope.loops >= self.environment.limits.nesting:
            limit = self.environment.limits.nesting
            self.report(node.offset, f"loops are nested deeper than {limit} levels")
        return resolved, of_type, loop_variables(of_type, variables)

    def quantifier(self, node: ast.Quantifier) -> Typed:
        range_, _, types = self._range(node.range, len(node.variables))
        with self.scope.variables(node.variables, types, loop=True) as names:
            predicate = self.boolean(node.predicate)
        return replace(node, range=range_, variables=names, predicate=predicate), BOOL

    def transform(self, node: ast.Transform) -> Typed:
        range_, _, types = self._range(node.range, len(node.variables))
        with self.scope.variables(node.variables, types, loop=True) as names:
            condition = None if node.condition is None else self.boolean(node.condition)
            result, result_type = self.visit(node.result)
        resolved = replace(node, range=range_, variables=names, condition=condition, result=result)
        if node.shape is ast.Shape.LIST:
            return resolved, list_of(result_type)
        if node.shape is ast.Shape.MAP:
            return resolved, map_of(types[0], result_type)
        if not can_be(result_type, MAP):
            self.report(node.result.offset, f"expected a map, not `{result_type}`")
        return resolved, MAP

    def sort_by(self, node: ast.SortBy) -> Typed:
        range_, of_type, types = self._range(node.range, 1)
        if not can_be(of_type, LIST):
            self.report(node.offset, f"a value of type `{of_type}` cannot be sorted")
        with self.scope.variables((node.variable,), types, loop=True) as (name,):
            key, _ = self.visit(node.key)
        return replace(node, range=range_, variable=name, key=key), of_type

    def bind(self, node: ast.Bind) -> Typed:
        value, of_type = self.visit(node.value)
        with self.scope.variables((node.variable,), (of_type,)) as (name,):
            body, body_type = self.visit(node.body)
        return replace(node, variable=name, value=value, body=body), body_type

    def optional_map(self, node: ast.OptionalMap) -> Typed:
        operand, of_type = self.optional(node.operand)
        with self.scope.variables((node.variable,), (of_type,)) as (name,):
            body, body_type = self.visit(node.body)
        resolved = replace(node, operand=operand, variable=name, body=body)
        return resolved, body_type if node.flat else optional_of(body_type)


def _check_format(node: ast.Call) -> None:
    if node.member and node.function == "format":
        template, args = node.args
        text = template.value if isinstance(template, ast.Literal) else None
        if isinstance(text, str) and isinstance(args, ast.ListLiteral) and not args.optionals:
            check_template(text, len(args.elements))


def _are_unlike_for_good(one: CelType, other: CelType) -> bool:
    """Return whether values are never equal: numbers of all types may be."""
    return are_unlike((one, other)) and not {one, other} <= NUMERIC


_NO_BOOL: Final = "expected `bool`, not"
_ALTERNATIVES: Final = frozenset({("or", 2), ("orValue", 2)})


def _wrapped(selected: CelType, operand: CelType, optional: bool) -> CelType:  # noqa: FBT001 (internal)
    """Type of a selection: optional if the selection or its operand is."""
    return optional_of(selected) if optional or operand.name == OPTIONAL.name else selected


_VISITS: Final[Mapping[type[ast.Node], Callable[[_Checker, Any], Typed]]] = {
    ast.And: _Checker.logic,
    ast.Binary: _Checker.binary,
    ast.Bind: _Checker.bind,
    ast.Call: _Checker.call,
    ast.Conditional: _Checker.conditional,
    ast.Has: _Checker.has,
    ast.Index: _Checker.index,
    ast.ListLiteral: _Checker.list_literal,
    ast.Literal: _Checker.literal,
    ast.MapLiteral: _Checker.map_literal,
    ast.Name: _Checker.name,
    ast.Negate: _Checker.negate,
    ast.Not: _Checker.not_,
    ast.OptionalMap: _Checker.optional_map,
    ast.Or: _Checker.logic,
    ast.Quantifier: _Checker.quantifier,
    ast.Select: _Checker.select,
    ast.SortBy: _Checker.sort_by,
    ast.Transform: _Checker.transform,
}
