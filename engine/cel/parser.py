"""The parser: from tokens to a syntax tree with its macros expanded, within limits."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Final

from engine.cel import ast, lexer
from engine.cel.budget import DEFAULT_LIMITS, Limits
from engine.cel.hints import for_unexpected
from engine.cel.values import BOOL, BYTES, DOUBLE, INT, INT_MAX, NULL, STRING, UINT, CelType
from engine.errors import CelSyntaxError

# Expansion of macros: calls that bind variables or inspect the form of their arguments.
#
# The checker enforces `Limits.nesting`, because it knows which loop is in the body of another.


_Args = tuple[ast.Node, ...]
_Builder = Callable[[ast.Node, _Args, int], ast.Node]
"""Takes the receiver, the arguments and the offset of the call."""


def expand(function: str, receiver: ast.Node | None, args: _Args, offset: int) -> ast.Node | None:
    """Return the node for a call of a macro, None if it is another call."""
    if receiver is None:
        return _has(args[0]) if function == "has" and len(args) == 1 else None
    if function == "bind" and len(args) == 3 and _is_namespace(receiver, "cel"):  # noqa: PLR2004
        variable, value, body = args
        return ast.Bind(_variable(variable), value, body, offset=offset)
    build = _MACROS.get((function, len(args)))
    return build(receiver, args, offset) if build else None


def _is_namespace(node: ast.Node, name: str) -> bool:
    return isinstance(node, ast.Name) and node.name == name and not node.absolute


def _has(argument: ast.Node) -> ast.Node | None:
    """Return None for an argument that is no field: the checker, which knows types, reports it."""
    if not isinstance(argument, ast.Select) or argument.optional:
        return None
    return ast.Has(argument.operand, argument.field, offset=argument.offset)


def _variable(argument: ast.Node) -> str:
    if not isinstance(argument, ast.Name) or argument.absolute:
        raise CelSyntaxError(argument.offset, "expected a plain name for a variable of the macro")
    return argument.name


def _variables(arguments: _Args) -> tuple[str, ...]:
    names = tuple(_variable(argument) for argument in arguments)
    if len(set(names)) < len(names):
        raise CelSyntaxError(arguments[-1].offset, "the variables of a macro need different names")
    return names


def _quantifier(how_many: ast.HowMany) -> _Builder:
    def build(receiver: ast.Node, args: _Args, offset: int) -> ast.Node:
        *names, predicate = args
        variables = _variables(tuple(names))
        return ast.Quantifier(how_many, receiver, variables, predicate, offset=offset)

    return build


def _transform(shape: ast.Shape, variables: int) -> _Builder:
    def build(receiver: ast.Node, args: _Args, offset: int) -> ast.Node:
        names = _variables(args[:variables])
        condition = args[variables] if len(args) > variables + 1 else None
        return ast.Transform(shape, receiver, names, condition, args[-1], offset=offset)

    return build


def _filter(receiver: ast.Node, args: _Args, offset: int) -> ast.Node:
    element, condition = args
    variables = _variables((element,))
    return ast.Transform(ast.Shape.LIST, receiver, variables, condition, element, offset=offset)


def _sort_by(receiver: ast.Node, args: _Args, offset: int) -> ast.Node:
    return ast.SortBy(receiver, _variable(args[0]), args[1], offset=offset)


def _optional_map(*, flat: bool) -> _Builder:
    def build(receiver: ast.Node, args: _Args, offset: int) -> ast.Node:
        return ast.OptionalMap(receiver, _variable(args[0]), args[1], flat, offset=offset)

    return build


_MACROS: Final[Mapping[tuple[str, int], _Builder]] = {
    ("all", 2): _quantifier(ast.HowMany.ALL),
    ("all", 3): _quantifier(ast.HowMany.ALL),
    ("exists", 2): _quantifier(ast.HowMany.SOME),
    ("exists", 3): _quantifier(ast.HowMany.SOME),
    ("exists_one", 2): _quantifier(ast.HowMany.ONE),
    ("exists_one", 3): _quantifier(ast.HowMany.ONE),
    ("existsOne", 2): _quantifier(ast.HowMany.ONE),
    ("existsOne", 3): _quantifier(ast.HowMany.ONE),
    ("filter", 2): _filter,
    ("map", 2): _transform(ast.Shape.LIST, 1),
    ("map", 3): _transform(ast.Shape.LIST, 1),
    ("transformList", 3): _transform(ast.Shape.LIST, 2),
    ("transformList", 4): _transform(ast.Shape.LIST, 2),
    ("transformMap", 3): _transform(ast.Shape.MAP, 2),
    ("transformMap", 4): _transform(ast.Shape.MAP, 2),
    ("transformMapEntry", 3): _transform(ast.Shape.ENTRIES, 2),
    ("transformMapEntry", 4): _transform(ast.Shape.ENTRIES, 2),
    ("sortBy", 2): _sort_by,
    ("optMap", 2): _optional_map(flat=False),
    ("optFlatMap", 2): _optional_map(flat=True),
}
"""Macros of a receiver, by name and number of arguments."""

NAMES: Final = frozenset({"has", "bind", *(name for name, _ in _MACROS)})
"""Names of macros, for hints on calls with other arguments."""

# A Pratt parser from tokens to a syntax tree, which enforces limits while it reads.
#
# Recursion is bounded by `Limits.depth`, so no text can exhaust the stack.


# Reserved words; they may be fields, and functions of a receiver.
# fmt: off
RESERVED: Final = frozenset({
    "as", "break", "const", "continue", "else", "for", "function", "if", "import", "let",
    "loop", "namespace", "package", "return", "var", "void", "while",
})
# fmt: on

_RELATION: Final = 1
_PRECEDENCE: Final = {
    **dict.fromkeys(("==", "!=", "<", "<=", ">", ">=", "in"), _RELATION),
    **dict.fromkeys(("+", "-"), 2),
    **dict.fromkeys(("*", "/", "%"), 3),
}
_LITERALS: Final[dict[str, CelType]] = {
    lexer.INT: INT,
    lexer.UINT: UINT,
    lexer.DOUBLE: DOUBLE,
    lexer.STRING: STRING,
    lexer.BYTES: BYTES,
}
_CONSTANTS: Final = {"true": (True, BOOL), "false": (False, BOOL), "null": (None, NULL)}


def parse(
    source: str,
    limits: Limits = DEFAULT_LIMITS,
    *,
    macros: bool = True,
    hints: Mapping[str, str] = MappingProxyType({}),
) -> ast.Node:
    """Return the syntax tree of `source`, unresolved."""
    if len(source) > limits.source:
        raise CelSyntaxError(
            limits.source, f"the expression is longer than {limits.source} characters"
        )
    root = _Parser(source, limits, hints, macros=macros).whole()
    for node, depth in ast.walk(root):
        if depth > limits.depth:
            raise _too_deep(node.offset, limits)
    return root


def _too_deep(offset: int, limits: Limits) -> CelSyntaxError:
    return CelSyntaxError(offset, f"the expression is nested deeper than {limits.depth} levels")


class _Parser:
    def __init__(
        self, source: str, limits: Limits, hints: Mapping[str, str], *, macros: bool
    ) -> None:
        self._source = source
        self._hints = hints
        self._tokens = lexer.tokens(source)
        self._token = next(self._tokens)
        self._limits = limits
        self._macros = macros
        self._level = 0
        self._nodes_left = limits.nodes

    # Tokens.

    def _take(self) -> lexer.Token:
        token = self._token
        if token.kind != lexer.END:
            self._token = next(self._tokens)
        return token

    def _accept(self, kind: str) -> bool:
        if self._token.kind != kind:
            return False
        self._take()
        return True

    def _expect(self, kind: str) -> lexer.Token:
        if self._token.kind != kind:
            raise self._unexpected(f"expected {kind}" if kind in _NAMED else f"expected `{kind}`")
        return self._take()

    def _unexpected(self, hint: str = "") -> CelSyntaxError:
        kind, value, offset = self._token
        hint = for_unexpected(self._source, offset) or hint
        if kind == lexer.END:
            return CelSyntaxError(offset, "the expression ends too early", hint)
        text = f"`{value}`" if kind not in _LITERALS else f"{kind} literal"
        return CelSyntaxError(offset, f"unexpected {text}", hint)

    def _count(self, offset: int) -> int:
        """Count a node against the limit and return its offset, for its constructor."""
        self._nodes_left -= 1
        if self._nodes_left < 0:
            raise CelSyntaxError(offset, f"the expression has more than {self._limits.nodes} parts")
        return offset

    # Grammar, from the lowest precedence to the highest.

    def whole(self) -> ast.Node:
        root = self._expression()
        if self._token.kind != lexer.END:
            raise self._unexpected("expected an operator or the end of the expression")
        return root

    def _expression(self) -> ast.Node:
        self._level += 1
        if self._level > self._limits.depth:
            raise _too_deep(self._token.offset, self._limits)
        test = self._or()
        if self._token.kind == "?":
            offset = self._count(self._take().offset)
            then = self._or()
            self._expect(":")
            test = ast.Conditional(test, then, self._expression(), offset=offset)
        self._level -= 1
        return test

    def _or(self) -> ast.Node:
        first = self._and()
        if self._token.kind != "||":
            return first
        offset = self._count(self._token.offset)
        operands = [first]
        while self._accept("||"):
            operands.append(self._and())
        return ast.Or(tuple(operands), offset=offset)

    def _and(self) -> ast.Node:
        first = self._binary(_RELATION)
        if self._token.kind != "&&":
            return first
        offset = self._count(self._token.offset)
        operands = [first]
        while self._accept("&&"):
            operands.append(self._binary(_RELATION))
        return ast.And(tuple(operands), offset=offset)

    def _binary(self, lowest: int) -> ast.Node:
        left = self._unary()
        while (precedence := _PRECEDENCE.get(self._token.kind, 0)) >= lowest:
            operator, _, offset = self._take()
            right = self._binary(precedence + 1)
            left = ast.Binary(operator, left, right, offset=self._count(offset))
        return left

    def _unary(self) -> ast.Node:
        signs = []
        while self._token.kind in {"!", "-"}:
            sign = self._take()
            if sign.kind == "-" and self._token.kind in {lexer.INT, lexer.DOUBLE}:
                operand = self._postfix(self._number(sign.offset))
                break
            signs.append(sign)
        else:
            operand = self._postfix(self._primary())
        for kind, _, offset in reversed(signs):
            node = ast.Not if kind == "!" else ast.Negate
            operand = node(operand, offset=self._count(offset))
        return operand

    def _number(self, offset: int) -> ast.Literal:
        kind, value, _ = self._take()
        return ast.Literal(-value, _LITERALS[kind], offset=offset)  # type: ignore[operator]

    def _postfix(self, operand: ast.Node) -> ast.Node:
        while True:
            if self._accept("."):
                operand = self._member(operand)
            elif self._token.kind == "[":
                offset = self._count(self._take().offset)
                optional = self._accept("?")
                index = self._expression()
                self._expect("]")
                operand = ast.Index(operand, index, optional, offset=offset)
            elif self._token.kind == "{" and _is_qualified(operand):
                raise CelSyntaxError(
                    self._token.offset, "messages cannot be built here", "use a map, {'field': ..}"
                )
            else:
                return operand

    def _member(self, operand: ast.Node) -> ast.Node:
        optional = self._accept("?")
        if self._token.kind == lexer.QUOTED:
            _, name, offset = self._take()
        else:
            _, name, offset = self._expect(lexer.NAME)
            if self._token.kind == "(" and not optional:
                return self._call(str(name), offset, operand)
        return ast.Select(operand, str(name), optional, offset=self._count(offset))

    def _call(self, function: str, offset: int, receiver: ast.Node | None) -> ast.Node:
        self._count(offset)
        self._expect("(")
        args = tuple(self._items(")", trailing_comma=False))
        if self._macros:
            expanded = expand(function, receiver, args, offset)
            if expanded is not None:
                return expanded
        if receiver is None:
            return ast.Call(function, args, offset=offset)
        return ast.Call(function, (receiver, *args), member=True, offset=offset)

    def _items(self, closing: str, *, trailing_comma: bool) -> list[ast.Node]:
        items: list[ast.Node] = []
        while self._token.kind != closing:
            items.append(self._expression())
            if not self._accept(","):
                break
            if self._token.kind == closing and not trailing_comma:
                raise self._unexpected("expected an argument")
        self._expect(closing)
        return items

    def _primary(self) -> ast.Node:
        kind, value, offset = self._token
        if kind in _LITERALS:
            self._take()
            if kind == lexer.INT and value == INT_MAX + 1:
                raise CelSyntaxError(offset, f"`{value}` is out of range of `int`")
            return ast.Literal(value, _LITERALS[kind], offset=offset)
        if kind in _CONSTANTS:
            self._take()
            constant, of_type = _CONSTANTS[kind]
            return ast.Literal(constant, of_type, offset=offset)
        if kind == "(":
            self._take()
            inner = self._expression()
            if self._token.kind == ",":
                raise self._unexpected("a list is written `['a', 'b']`")
            self._expect(")")
            return inner
        if kind == "[":
            return self._list()
        if kind == "{":
            return self._map()
        if kind in {lexer.NAME, "."}:
            return self._name()
        raise self._unexpected()

    def _name(self) -> ast.Node:
        absolute = self._accept(".")
        _, name, offset = self._expect(lexer.NAME)
        if name in RESERVED:
            hint = self._hints.get(str(name)) or for_unexpected(self._source, offset)
            raise CelSyntaxError(offset, f"`{name}` is a reserved word", hint)
        if self._token.kind == "(":
            return self._call(f".{name}" if absolute else str(name), offset, None)
        return ast.Name(str(name), absolute, offset=self._count(offset))

    def _list(self) -> ast.Node:
        offset = self._count(self._take().offset)
        elements: list[ast.Node] = []
        optionals = set()
        while self._token.kind != "]":
            if self._accept("?"):
                optionals.add(len(elements))
            elements.append(self._expression())
            self._check_size(elements)
            if not self._accept(","):
                break
        self._expect("]")
        return ast.ListLiteral(tuple(elements), frozenset(optionals), offset=offset)

    def _map(self) -> ast.Node:
        offset = self._count(self._take().offset)
        entries: list[ast.Node] = []
        while self._token.kind != "}":
            optional = self._accept("?")
            key = self._expression()
            colon = self._expect(":").offset
            entries.append(ast.Entry(key, self._expression(), optional, offset=colon))
            self._check_size(entries)
            if not self._accept(","):
                break
        self._expect("}")
        return ast.MapLiteral(tuple(entries), offset=offset)  # type: ignore[arg-type]

    def _check_size(self, items: list[ast.Node]) -> None:
        if len(items) > self._limits.elements:
            raise CelSyntaxError(
                items[-1].offset, f"a literal has more than {self._limits.elements} elements"
            )


_NAMED: Final = frozenset({lexer.NAME, lexer.END})


def _is_qualified(node: ast.Node) -> bool:
    while isinstance(node, ast.Select) and not node.optional:
        node = node.operand
    return isinstance(node, ast.Name)
