"""What expressions read, and the constants that they compare it with, in their syntax trees."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final, NamedTuple, TypeAlias

from engine.cel import Program, Reference, ast
from engine.policy import CompiledPolicy, FilterRule, NodeExpression, ScoreRule
from engine.policy.policy_set import condition_part, variable_part


@dataclass(frozen=True, slots=True)
class Part:
    """An expression of a policy."""

    name: str  # what warnings call it
    program: Program  # the expression
    # the filter or score that it is, None for a variable or a match condition
    rule: FilterRule | ScoreRule | None = None
    variable: str = ""  # the name of the variable that it is, "" for none

    @property
    def is_condition(self) -> bool:
        """Whether it is a match condition."""
        return self.rule is None and not self.variable


def parts_of(policy: CompiledPolicy) -> Iterator[Part]:
    """Yield the expressions of a policy: variables, match conditions, filters, scores."""
    for name, program in policy.variables.items():
        yield Part(variable_part(name), program, variable=name)
    for name, program in policy.conditions.items():
        yield Part(condition_part(name), program)
    for rule in policy.rules:
        if isinstance(rule.evaluator, NodeExpression):
            yield Part(rule.name, rule.evaluator.program, rule)


def references_of(policy: CompiledPolicy, program: Program) -> frozenset[Reference]:
    """Return what a program reads, by itself and through variables."""
    found: set[Reference] = set()
    for each in programs_of(policy, program):
        found |= {path for path in each.references if path[0] != "variables"}
    return frozenset(found)


def programs_of(policy: CompiledPolicy, program: Program) -> tuple[Program, ...]:
    """Return a program and those of the variables that it reads, directly or not."""
    found = [program]
    seen: set[str] = set()
    for each in found:
        for path in each.references:
            if path[0] != "variables":
                continue
            names = path[1:2] or tuple(policy.variables)
            new = [name for name in names if name in policy.variables and name not in seen]
            seen.update(new)
            found += (policy.variables[name] for name in new)
    return tuple(found)


ReadPath: TypeAlias = tuple[str, ...]
"""A variable and the fields below it; `[]` stands for any element of a list, or key of a map."""

ANY: Final = "[]"

SAME: Final[Mapping[ReadPath, ReadPath]] = {
    ("request", "namespace"): ("pod", "namespace"),
    ("namespaceObject", "metadata", "name"): ("pod", "namespace"),
    ("object", "metadata", "namespace"): ("pod", "namespace"),
    ("object", "spec", "priorityClassName"): ("pod", "priorityClassName"),
    ("object", "spec", "schedulerName"): ("pod", "schedulerName"),
    ("object", "spec", "priority"): ("pod", "priority"),
}
"""Fields that have the values of another one."""

LABELS: Final[frozenset[ReadPath]] = frozenset(
    {
        ("node", "labels"),
        ("pod", "labels"),
        ("pod", "nodeSelector"),
        ("object", "metadata", "labels"),
        ("namespaceObject", "metadata", "labels"),
    }
)
"""The maps of labels."""

EQUALITIES: Final = frozenset({"==", "!="})
ORDERS: Final = frozenset({"<", "<=", ">", ">="})
MIRRORED: Final = {"<": ">", "<=": ">=", ">": "<", ">=": "<="}
"""Each order with its sides changed over."""


class Comparison(NamedTuple):
    """A value that is compared with a constant."""

    path: ReadPath  # what is read
    operator: str  # `==`, `!=`, an order, or `in` for one element of a list of constants
    literal: ast.Literal  # the constant


class KeyRead(NamedTuple):
    """A key of a map that is read."""

    path: ReadPath  # what leads to the map
    of: ast.Node  # the map, in the tree
    key: str  # the key
    offset: int  # where the key stands
    asks: bool  # whether it is no error if the key is absent


class Reads:
    """What a resolved tree reads.

    Attributes:
        comparisons: with constants.
        searches: for a constant, the operator being the function.
        keys: that are constant.
    """

    def __init__(self, root: ast.Node) -> None:
        self.comparisons: list[Comparison] = []
        self.searches: list[Comparison] = []
        self.keys: list[KeyRead] = []
        self._visit(root, {})

    def _visit(self, node: ast.Node, names: Mapping[str, ReadPath]) -> None:
        """Note what a part reads; `names` are the variables of macros around it."""
        match node:
            case ast.Quantifier(range=of) | ast.Transform(range=of) | ast.SortBy(range=of):
                names = {**names, **_elements(node, path_of(of, names))}
            case ast.Bind(value=of) | ast.OptionalMap(operand=of):
                names = {**names, **dict.fromkeys(ast.bound_variables(node), path_of(of, names))}
            case ast.Binary():
                self._binary(node, names)
            case ast.Select(operand=of, field=key) | ast.Has(operand=of, field=key):
                asks = isinstance(node, ast.Has) or node.optional
                self._key(of, key, node.offset, names, asks=asks)
            case ast.Call(function=name, args=(of, ast.Literal() as literal)):
                self.searches.append(Comparison(path_of(of, names), name, literal))
            case ast.Index(operand=of, index=ast.Literal(value=str(key))):
                self._key(of, key, node.index.offset, names, asks=node.optional)
        for child in ast.children(node):
            self._visit(child, names)

    def _key(
        self, of: ast.Node, key: str, offset: int, names: Mapping[str, ReadPath], *, asks: bool
    ) -> None:
        if path := path_of(of, names):
            self.keys.append(KeyRead(path, of, key, offset, asks or _is_optional(of)))

    def _binary(self, node: ast.Binary, names: Mapping[str, ReadPath]) -> None:
        left, right = path_of(node.left, names), path_of(node.right, names)
        if node.operator == "in":
            if isinstance(node.left, ast.Literal) and right:
                if isinstance(node.left.value, str):
                    key, offset = node.left.value, node.left.offset
                    self.keys.append(KeyRead(right, node.right, key, offset, asks=True))
                self.comparisons.append(Comparison((*right, ANY), "in", node.left))
            elif left and isinstance(node.right, ast.ListLiteral):
                elements = (each for each in node.right.elements if isinstance(each, ast.Literal))
                self.comparisons += (Comparison(left, "in", each) for each in elements)
        elif node.operator in EQUALITIES | ORDERS:
            for path, other in ((left, node.right), (right, node.left)):
                match other:
                    case ast.Literal() if path:
                        self.comparisons.append(Comparison(path, node.operator, other))
                    case ast.ListLiteral(elements=(ast.Literal() as element,)) if path:
                        self.comparisons.append(Comparison((*path, ANY), node.operator, element))


def path_text(path: ReadPath) -> str:
    """Return a path as expressions have it, with `[]` for any element."""
    steps = (
        step if step == ANY else f".{step}" if step.isidentifier() else f"['{step}']"
        for step in path
    )
    return "".join(steps).removeprefix(".")


def path_of(node: ast.Node, names: Mapping[str, ReadPath]) -> ReadPath:
    """Return what leads to a value, whatever stands in for it where it is absent; () if nothing."""
    match node:
        case ast.Variable(name=name):
            return (name,)
        case ast.Local(name=name):
            return names.get(name, ())
        case ast.Select(operand=of, field=key):
            return _below(path_of(of, names), key)
        case ast.Index(operand=of, index=ast.Literal(value=key)):
            return _below(path_of(of, names), key if isinstance(key, str) else ANY)
        case ast.Alternative(operand=of):
            return path_of(of, names)
        case ast.Call(function="value" | "lowerAscii" | "upperAscii" | "trim", args=(of, *_)):
            return path_of(of, names)
        case ast.Binary(operator="+", left=of) if path_of(of, names)[-1:] == ("containers",):
            return path_of(of, names)  # with the others, which are alike
        case ast.Transform(range=of, variables=(name,), result=ast.Local(name=result)):
            return path_of(of, names) if name == result else ()
    return ()


def _below(path: ReadPath, key: str) -> ReadPath:
    return (*path, key) if path else ()


def _elements(
    node: ast.Quantifier | ast.Transform | ast.SortBy, path: ReadPath
) -> dict[str, ReadPath]:
    *first, last = ast.bound_variables(node)
    return {**dict.fromkeys(first, ()), last: _below(path, ANY)}


def _is_optional(node: ast.Node) -> bool:
    """Return whether a selection from a value gives an optional, as the value is one."""
    match node:
        case ast.Select(operand=of) | ast.Index(operand=of):
            return node.optional or _is_optional(of)
    return False
