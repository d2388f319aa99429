"""The checker: resolves names, infers types and finds all mistakes, in one pass.

It builds a new tree in which names are variables, locals or types, calls carry the full name of
their function, and constructor calls on literals are literals.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from engine.cel import ast, comprehensions, hints, signed_names, static_types
from engine.cel.environment import Environment, ObjectType
from engine.cel.errors import CelError, CelProblem
from engine.cel.functions import Overload
from engine.cel.functions.format_strings import check_template
from engine.cel.functions.k8s_lists import TYPED_SUM, ZEROS
from engine.cel.overloads import fits, folded, is_like_a_macro, mismatch, unknown_function
from engine.cel.scope import Scope, Typed
from engine.cel.static_types import (
    NUMERIC,
    are_unlike,
    can_be,
    join,
    list_of,
    map_of,
    optional_of,
    parameter,
    unwrapped,
)
from engine.cel.values import (
    BOOL,
    DOUBLE,
    DYN,
    INT,
    LIST,
    MAP,
    OPTIONAL,
    STRING,
    CelType,
)
from engine.errors import did_you_mean


@dataclass(frozen=True, slots=True)
class Checked:
    """A resolved tree, the type of its value, and what was found in it, in source order.

    Attributes:
        root: the tree.
        type: of its value.
        problems: the mistakes.
        warnings: what Kubernetes refuses where it checks types, and is accepted here.
    """

    root: ast.Node
    type: CelType
    problems: tuple[CelProblem, ...]
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
        return replace(node, operand=self.boolean(node.operand, is_negated=True)), BOOL

    def boolean(
        self, node: ast.Node, *, is_negated: bool = False, among: ast.And | ast.Or | None = None
    ) -> ast.Node:
        resolved, of_type = self.visit(node)
        if not can_be(of_type, BOOL):
            hint = self._hint_of_field(node) or hints.for_bool(
                node, of_type, is_negated=is_negated, among=among
            )
            self.report(node.offset, f"expected `bool`, not `{of_type}`", hint)
        return resolved

    def negate(self, node: ast.Negate) -> Typed:
        operand, of_type = self.visit(node.operand)
        if not can_be(of_type, INT, DOUBLE):
            self.report(node.offset, f"`-` does not apply to `{of_type}`")
        return replace(node, operand=operand), of_type

    def binary(self, node: ast.Binary) -> Typed:
        reported = len(self.problems)
        resolved = self._operands(node)
        name = signed_names.signed_name(node) if len(self.problems) > reported else None
        hint = signed_names.in_brackets(name.names, self._type_of) if name else ""
        if name is not None and hint:
            del self.problems[reported:]
            self.report(name.offset, f"a name ends before `{name.sign}`", hint)
        return resolved

    def _operands(self, node: ast.Binary) -> Typed:
        left, left_type = self.visit(node.left)
        right, right_type = self.visit(node.right)
        result = static_types.binary(node.operator, left_type, right_type)
        if result is None:
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
        operands = (self.boolean(each, among=node) for each in node.operands)
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
        if function is None and is_like_a_macro(node):
            self.visit(node.args[0])  # the others speak of names that the macro would bind
            self.report(node.offset, *unknown_function(node, self.environment))
            return node, DYN
        typed = [self.visit(arg) for arg in node.args]
        types = tuple(of_type for _, of_type in typed)
        node = replace(node, args=tuple(arg for arg, _ in typed))
        if function is None:
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
        if node.function == "sum" and (element := parameter(types[0])) in ZEROS:
            zero = ast.Literal(ZEROS[element], element, offset=node.offset)
            return ast.Call(TYPED_SUM, (*node.args, zero), offset=node.offset), element
        return self._folded(node, fitting), join(overload.result for overload in fitting)

    def _alternative(self, node: ast.Call) -> Typed:
        unwraps = node.function == "orValue"
        operand, of_type = self.optional(node.args[0])
        other, other_type = (self.visit if unwraps else self.optional)(node.args[1])
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


def _check_format(node: ast.Call) -> None:
    if node.member and node.function == "format":
        template, args = node.args
        text = template.value if isinstance(template, ast.Literal) else None
        if isinstance(text, str) and isinstance(args, ast.ListLiteral) and not args.optionals:
            check_template(text, len(args.elements))


_ALTERNATIVES: Final = frozenset({("or", 2), ("orValue", 2)})


def _wrapped(selected: CelType, operand: CelType, optional: bool) -> CelType:  # noqa: FBT001 (internal)
    """Type of a selection: optional if the selection or its operand is."""
    return optional_of(selected) if optional or operand.name == OPTIONAL.name else selected


_VISITS: Final[Mapping[type[ast.Node], Callable[[_Checker, Any], Typed]]] = {
    ast.And: _Checker.logic,
    ast.Binary: _Checker.binary,
    ast.Bind: comprehensions.bind,
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
    ast.OptionalMap: comprehensions.optional_map,
    ast.Or: _Checker.logic,
    ast.Quantifier: comprehensions.quantifier,
    ast.Select: _Checker.select,
    ast.SortBy: comprehensions.sort_by,
    ast.Transform: comprehensions.transform,
}
