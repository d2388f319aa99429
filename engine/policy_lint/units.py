"""Units: comparisons with numbers whose magnitude does not fit the unit of the other side.

The unit of a field is that of `engine.policy.environment`; arithmetic carries it along, so
`node.usage.memory / node.allocatable.memory * 100.0` is known to be in percent.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import Enum
from types import MappingProxyType
from typing import Final, NamedTuple, TypeAlias

from engine.cel import CelError, Program, ast, compile_node, new_frame
from engine.cel.unparse import unparse
from engine.cel.values import DOUBLE, INT, STRING
from engine.model.quantity import counts_bytes
from engine.policy import CompiledPolicy, ScoreRule
from engine.policy.environment import TABLE, ExpressionScope, environment
from engine.policy.policy_set import Finding
from engine.policy_lint.reads import EQUALITIES, ORDERS, Part, path_of, programs_of, references_of

_ENVIRONMENT: Final = environment(ExpressionScope.RULES)
_UNITS: Final[Mapping[str, str]] = {entry.path: entry.unit for entry in TABLE}

_COMPARISONS: Final = frozenset({"==", "!=", "<", "<=", ">", ">="})
_CONVERSIONS: Final = frozenset(
    {"double", "int", "uint", "math.abs", "math.ceil", "math.floor", "math.round", "math.trunc"}
)
_EXTREMES: Final = frozenset({"math.greatest", "math.least"})

_PERCENT = 100.0
_THRESHOLDS: Final = range(50, 101, 5)  # as are usual in percent
_GREATEST_SCALE: Final = 1e30
_MILLI: Final = 1000
_KIBI: Final = 1 << 10
_MEBI: Final = 1 << 20
_MOST_GIBI: Final = 512
_FEWEST_BYTES: Final = _MEBI
_LEAST_OF_A_NODE: Final = {
    "node.allocatable.cpu": 0.1,
    "node.allocatable.memory": 256 * _MEBI,
    "node.usage.memory": 128 * _MEBI,
}
_MOST_CORES_OF_A_POD: Final = 200
_MOST_CORES_LEFT: Final = 200  # of a node
_MOST_CORES_OF_A_NODE: Final = 1000
_LEAST_BYTES_LEFT: Final = 2**24  # of a node: nobody asks for 16 MiB and no more
_MOST_CORES_OF_LIMITS: Final = 4000  # of all pods of a node
_MOST_OVERCOMMIT: Final = 20  # limits of all pods of a node, as a multiple of what it offers
_MOST_SHARE: Final = 5  # of usage or requests in what a node offers
_LEAST_PERCENT: Final = 1
_GREATEST_WEIGHT: Final = 1000  # beyond it a factor converts one unit to another
_IN_USE: Final = frozenset({"node.limits", "node.requested", "node.usage"})
_OF_A_NODE: Final = _IN_USE | {"pod.requests"}


class _Unit(Enum):
    CORES = "cores"
    BYTES = "bytes"
    SHARE = "a fraction"


@dataclass(frozen=True, slots=True)
class Measured:
    """A number that measures something."""

    unit: _Unit  # its unit
    path: str  # the field that it was made of, or the first of them
    of: str = ""  # for a fraction, the field it was divided by
    scale: float = 1.0  # what it was multiplied by


Amount: TypeAlias = Measured | float | None
"""What is known of a value: what it measures, or the constant it is; None for anything else."""


def amount_of(program: Program, variables: Mapping[str, Amount] = MappingProxyType({})) -> Amount:
    """Return what is known of the value of a program."""
    return _Reader(variables).visit(program.root)


def unit_findings(
    part: str, program: Program, variables: Mapping[str, Amount] = MappingProxyType({})
) -> tuple[Finding, ...]:
    """Return a finding for each place in an expression that mixes up units."""
    reader = _Reader(variables)
    reader.visit(program.root)
    return tuple(
        Finding(part, f"unit? `{unparse(mix.node)}`{mix.message}", mix.hint, mix.node.offset)
        for mix in reader.mixes
    )


def absolute_findings(
    policy: CompiledPolicy, part: Part, variables: Mapping[str, Amount]
) -> Iterator[Finding]:
    """Yield a finding for a score that is an amount in use, whatever the node has of it."""
    amount = amount_of(part.program, variables)
    if not isinstance(amount, Measured) or amount.unit is _Unit.SHARE:
        return
    of, _, resource = amount.path.rpartition(".")
    reads = references_of(policy, part.program)
    if of not in _IN_USE or any(path[:2] == ("node", "allocatable") for path in reads):
        return
    share = f"{amount.path} / node.allocatable.{resource}"
    yield Finding(
        part.name,
        f"unit? `{amount.path}` is in {amount.unit.value}: a large node that is half full counts "
        "as fuller than a small one that is full",
        f"a share of the node is `{share}`; `1.0 - {share}` prefers the node where it is least",
        part.program.root.offset,
    )


def span_of(program: Program, variables: Mapping[str, Amount]) -> float:
    """Return by how much a score differs: of constants, or of a share of a node; 0 if unknown."""
    constants = list(_choices(program.root))
    if len(constants) > 1 and None not in constants:
        numbers = [number for number in constants if number is not None]
        return max(numbers) - min(numbers)
    amount = amount_of(program, variables)
    is_share = isinstance(amount, Measured) and amount.unit is _Unit.SHARE
    return abs(amount.scale) if is_share and isinstance(amount, Measured) else 0.0


def _choices(node: ast.Node) -> Iterator[float | None]:
    """Yield what a choice is between, None for anything but a constant."""
    match node:
        case ast.Conditional(then=then, otherwise=otherwise):
            yield from _choices(then)
            yield from _choices(otherwise)
        case ast.Negate(operand=ast.Literal() as operand):
            number = _constant(operand)
            yield None if number is None else -number
        case ast.Literal() | ast.Call():
            yield _constant(node)
        case _:
            yield None


class _Mix(NamedTuple):
    """A part of a tree that mixes up units; the message goes on from its text."""

    node: ast.Node
    message: str
    hint: str = ""


class _Advice(NamedTuple):
    """The unit of a field, and what to write for a constant in another one."""

    unit: str
    hint: str = ""


class _Reader:
    """Reads a tree.

    Attributes:
        mixes: what was found so far.
    """

    def __init__(self, variables: Mapping[str, Amount]) -> None:
        self.mixes: list[_Mix] = []
        self._variables = variables
        self._locals: dict[str, Amount] = {}

    def visit(self, node: ast.Node) -> Amount:
        """Return what is known of the value of a part, and note what is wrong below it."""
        if isinstance(node, ast.Literal | ast.Call) and (constant := _constant(node)) is not None:
            return constant
        match node:
            case ast.Select() | ast.Index():
                return self._field(node)
            case ast.Local():
                return self._locals.get(node.name)
            case ast.Bind():
                self._locals[node.variable] = self.visit(node.value)
                return self.visit(node.body)
            case ast.Binary():
                return self._binary(node)
        known = [self.visit(child) for child in ast.children(node)]
        if isinstance(node, ast.Call) and node.function in _EXTREMES and len(known) > 1:
            one, other = known[:2]
            if isinstance(one, Measured) and isinstance(other, Measured) and _differ(one, other):
                what = f" compares {one.unit.value} with {other.unit.value}"
                shares = tuple(map(_as_share, node.args, (one, other)))
                hint = f"compare shares: `{unparse(replace(node, args=shares))}`"
                self.mixes.append(_Mix(node, what, hint if _shares(one, other) else ""))
        if isinstance(node, ast.Call) and node.function in {"int", "uint"} and _is_share(known[0]):
            cut = unparse(node.args[0])
            hint = f"leave out `{node.function}`: write `{cut}`"
            self.mixes.append(_Mix(node, " is 0 for all that is less than the whole", hint))
        return _result(node, known)

    def _binary(self, node: ast.Binary) -> Amount:
        left, right = self.visit(node.left), self.visit(node.right)
        if (
            node.operator in {"+", "-"}
            and isinstance(left, Measured)
            and isinstance(right, Measured)
            and _differ(left, right)
        ):
            shares = _shares(left, right)
            hint = f"add up the shares: write {shares}" if shares else _all_divided(node)
            self.mixes.append(_Mix(node, " adds up different units", hint))
        if node.operator == "/" and isinstance(left, Measured) and isinstance(right, Measured):
            self._divide(node, left, right)
        if node.operator not in _COMPARISONS:
            return _arithmetic(node.operator, left, right)
        self._compare(node, left, right)
        return None

    def _divide(self, node: ast.Binary, left: Measured, right: Measured) -> None:
        of, _, resource = left.path.rpartition(".")
        is_offered = right.path.rpartition(".")[0] == "node.allocatable"
        if of in _IN_USE and is_offered and left.unit is not right.unit:
            hint = f"divide it by `node.allocatable.{resource}`"
            self.mixes.append(_Mix(node, f" divides {left.unit.value} by {right.unit.value}", hint))

    def _field(self, node: ast.Node) -> Amount:
        root, keys, _ = ast.field_path(node)
        if not isinstance(root, ast.Variable):
            for child in ast.children(node):
                self.visit(child)
            return None
        if root.name == "variables":
            return self._variables.get(keys[0]) if len(keys) == 1 else None
        parent, path = ".".join((root.name, *keys[:-1])), ".".join((root.name, *keys))
        unit = _UNITS.get(path, "")
        if f"{parent}.*" in _UNITS and keys and counts_bytes(keys[-1]):
            unit = "bytes"
        return Measured(_Unit(unit), path) if unit in {"cores", "bytes"} else None

    def _compare(self, node: ast.Binary, left: Amount, right: Amount) -> None:
        if isinstance(left, float):
            left, right = right, left
        if not isinstance(left, Measured) or right is None:
            return
        if isinstance(right, Measured):
            self._compare_measured(node, left, right)
        else:
            self._compare_constant(node, left, right)

    def _compare_measured(self, node: ast.Binary, left: Measured, right: Measured) -> None:
        if _is_never_reached(node):
            what = ": usage hardly ever reaches what the node offers"
            self.mixes.append(_Mix(node, what, f"compare it with a share: {_shares_of(node)}"))
        elif _differ(left, right):
            what = f" compares {left.unit.value} with {right.unit.value}"
            self.mixes.append(_Mix(node, what))
        elif left.unit is right.unit is not _Unit.SHARE:
            share = Measured(_Unit.SHARE, left.path, right.path)
            if advice := _share_advice(share, right.scale / left.scale):
                self.mixes.append(_Mix(node, f": {advice.unit}", advice.hint))

    def _compare_constant(self, node: ast.Binary, left: Measured, right: float) -> None:
        advice = (
            _ADVICE[left.unit](left, abs(right))
            or _advice_for_a_node(node, left, right)
            or _advice_for_an_inverse(node, left, right)
        )
        if advice is not None:
            self.mixes.append(_Mix(node, f": {advice.unit}", advice.hint))
        elif node.operator in ORDERS and _may_be_percent(left, right):
            what = f": `{left.path}` is in cores, and most nodes have less than {right:g}"
            self.mixes.append(_Mix(node, what, _in_percent(node, left, right)))
        elif node.operator in EQUALITIES and left.path.startswith("node.usage.") and right:
            less = unparse(replace(node, operator="<="))
            self.mixes.append(_Mix(node, ": usage is hardly ever just that", f"write `{less}`"))


def _result(node: ast.Node, known: Sequence[Amount]) -> Amount:
    """Return what is known of a value, by what is known of the parts directly below it."""
    match node:
        case ast.Negate():
            return -known[0] if isinstance(known[0], float) else known[0]
        case ast.Conditional():
            return _either(known[1], known[2])
        case ast.Alternative():
            return _either(known[0], known[1])
        case ast.Call(function=function) if function in _CONVERSIONS:
            return known[0]
        case ast.Call(function=function, args=(_, _)) if function in _EXTREMES:
            return _either(known[0], known[1])
    return None


def _may_be_percent(cores: Measured, number: float) -> bool:
    """Return whether cores in use are compared with what is a usual threshold in percent."""
    of, _, resource = cores.path.rpartition(".")
    is_whole = cores.scale == 1 and resource == "cpu" and of in {"node.requested", "node.usage"}
    return is_whole and number in _THRESHOLDS


def _advice_for_a_node(node: ast.Binary, measured: Measured, number: float) -> _Advice | None:
    """Return what to write for less than any node has, None if it may be meant."""
    is_rest = _has(node, "-")  # such as what is free
    of_a_rest = _LEAST_BYTES_LEFT if measured.unit is _Unit.BYTES else 0.0
    least = of_a_rest if is_rest else _LEAST_OF_A_NODE.get(measured.path, 0.0)
    if is_rest and measured.unit is _Unit.CORES and number / measured.scale >= _MOST_CORES_LEFT:
        what = f"`{measured.path}` is in cores, and nodes have fewer left"
        return _Advice(what, f"for {number:g} millicores write `{number / _MILLI:g}`")
    if measured.unit is _Unit.SHARE or not 0 < number / measured.scale < least:
        return None
    if is_rest:
        hint = f"1024 times as much is `{number * _KIBI}`"
        return _Advice(f"{number:g} bytes are next to nothing", hint)
    times = _KIBI if measured.unit is _Unit.BYTES else _MILLI
    meant = "Gi" if measured.unit is _Unit.BYTES else "cores"
    hint = f"for {number:g} {meant} write `{number * times:g}`" if measured.scale != 1 else ""
    if not hint and measured.unit is _Unit.BYTES:
        hint = f"1024 times as much is `{number * _KIBI}`"
    return _Advice(f"`{measured.path}` of nodes is more than that", hint)


def _advice_for_an_inverse(node: ast.Binary, share: Measured, number: float) -> _Advice | None:
    """Return what to write for what a node offers as a fraction of what is taken of it."""
    offered, _, resource = share.path.rpartition(".")
    taken, _, other = share.of.rpartition(".")
    is_inverse = offered == "node.allocatable" and taken in {"node.requested", "node.usage"}
    is_sum = _has(node, "+") or _has(node, "-")
    if not is_inverse or resource != other or is_sum or not 0 < number / share.scale < 1:
        return None
    what = f"`{share.path}` divided by `{share.of}` is hardly ever below 1"
    return _Advice(what, f"for a fraction of the node write `{share.of} / {share.path}`")


def _has(root: ast.Node, operator: str) -> bool:
    return any(
        isinstance(node, ast.Binary) and node.operator == operator for node, _ in ast.walk(root)
    )


def _is_never_reached(node: ast.Binary) -> bool:
    """Return whether all that is used of a node is compared with all that there is."""
    paths = sorted(path_of(side, {}) for side in (node.left, node.right))
    offered, used = paths
    is_whole = (offered[:2], used[:2]) == (("node", "allocatable"), ("node", "usage"))
    return is_whole and offered[2:] == used[2:]


def _shares_of(node: ast.Binary) -> str:
    """Return a comparison with four fifths of what a node offers."""
    share = ast.Literal(0.8, DOUBLE, offset=0)
    sides = [
        ast.Binary("*", share, side, offset=0)
        if path_of(side, {})[:2] == ("node", "allocatable")
        else side
        for side in (node.left, node.right)
    ]
    return f"`{unparse(replace(node, left=sides[0], right=sides[1]))}`"


def _in_percent(node: ast.Binary, measured: Measured, number: float) -> str:
    """Return how to compare an amount with so many percent of what there is."""
    if not any(isinstance(side, ast.Literal) for side in (node.left, node.right)):
        return f"for {number:g} % divide it by `node.allocatable.cpu`, and compare with a fraction"
    sides = [
        replace(side, value=number / _PERCENT, type=DOUBLE)
        if isinstance(side, ast.Literal)
        else _as_share(side, measured)
        for side in (node.left, node.right)
    ]
    return f"for {number:g} % write `{unparse(replace(node, left=sides[0], right=sides[1]))}`"


def _all_divided(node: ast.Binary) -> str:
    """Return how to divide all of a sum, of which the last part alone is; "" for another sum."""
    match node.right:
        case ast.Binary(operator="/", left=part, right=divisor):
            whole = ast.Binary("/", replace(node, right=part), divisor, offset=0)
            return f"to divide both write `{unparse(whole)}`"
    return ""


def _is_share(amount: Amount) -> bool:
    return isinstance(amount, Measured) and amount.unit is _Unit.SHARE and abs(amount.scale) <= 1


def _differ(left: Measured, right: Measured) -> bool:
    """Return whether two units differ, and neither side was converted, but weighted at most."""
    is_weighted = all(
        1 / _GREATEST_WEIGHT < abs(each.scale) < _GREATEST_WEIGHT for each in (left, right)
    )
    return left.unit is not right.unit and is_weighted


def _as_share(node: ast.Node, measured: Measured) -> ast.Node:
    """Return an amount divided by what a node offers of it."""
    offered = ast.Select(ast.Variable("node", offset=0), "allocatable", offset=0)
    resource = measured.path.rpartition(".")[2]
    return ast.Binary("/", node, ast.Select(offered, resource, offset=0), offset=0)


def _shares(left: Measured, right: Measured) -> str:
    """Return two amounts of one node as shares of it, "" for any others."""
    shares = []
    for each in (left, right):
        of, _, resource = each.path.rpartition(".")
        if each.unit is _Unit.SHARE or of not in _OF_A_NODE:
            return ""
        shares.append(f"`{each.path} / node.allocatable.{resource}`")
    return " and ".join(shares)


def _constant(node: ast.Literal | ast.Call) -> float | None:
    """Return a number that does not depend on anything, None if it does or is none."""
    parts = [part for part, _ in ast.walk(node)]
    if not all(isinstance(part, ast.Literal | ast.Call) for part in parts):
        return None
    try:
        value = compile_node(node, _ENVIRONMENT)(new_frame({}))
    except CelError:
        return None
    return float(value) if isinstance(value, int | float) and value is not bool(value) else None


def _arithmetic(operator: str, left: Amount, right: Amount) -> Amount:
    if left is None or right is None:
        return None
    if isinstance(left, float) and isinstance(right, float):
        return _calculated(operator, left, right)
    if operator in {"+", "-"}:
        return _either(left, right)
    if isinstance(left, float):  # and the other is measured: only a product keeps its unit
        left, right = (right, left) if operator == "*" else (None, None)
    if not isinstance(left, Measured):
        return None
    if isinstance(right, Measured):
        if operator != "/" or left.unit is not right.unit:
            return None
        share = Measured(_Unit.SHARE, left.path, right.path)
        return _scaled(share, left.scale / right.scale)
    if not right or operator not in {"*", "/"}:
        return None
    return _scaled(left, left.scale * right if operator == "*" else left.scale / right)


def _scaled(measured: Measured, scale: float) -> Measured | None:
    """Return what is measured with another scale, None if that converts to no unit in use."""
    is_conversion = 1 / _GREATEST_SCALE < abs(scale) < _GREATEST_SCALE
    return replace(measured, scale=scale) if is_conversion else None


def _calculated(operator: str, left: float, right: float) -> float | None:
    match operator:
        case "+":
            return left + right
        case "-":
            return left - right
        case "*":
            return left * right
        case "/" if right:
            return left / right
    return None


def _either(left: Amount, right: Amount) -> Amount:
    """Return what is known of a value that is one of two, or their sum."""
    if isinstance(left, Measured) and isinstance(right, Measured):
        return left if (left.unit, left.scale) == (right.unit, right.scale) else None
    if isinstance(left, Measured):
        return left if right is not None else None
    return right if isinstance(right, Measured) and left is not None else None


def _bytes_advice(measured: Measured, number: float) -> _Advice | None:
    if not 0 < number / measured.scale < _FEWEST_BYTES:
        return None
    unit = f"`{measured.path}` is in bytes"
    if number < 1:
        return _Advice(unit, "divide it by what the node offers for a fraction")
    if measured.scale != 1:
        return _Advice(unit)
    hint = f"for {number:g} Mi write `{number * _MEBI:.1f}`"
    if number <= _MOST_GIBI:
        hint += f", for {number:g} Gi `{number * (_MEBI << 10):.1f}`"
    return _Advice(unit, hint)


def _cores_advice(measured: Measured, number: float) -> _Advice | None:
    if 0 < number < 1 and measured.path.rpartition(".")[0] in _IN_USE and measured.scale == 1:
        unit = f"`{measured.path}` is in cores, and this is less than one"
        return _Advice(unit, "divide it by `node.allocatable.cpu` for a fraction")
    most = _MOST_CORES_OF_A_NODE
    if measured.path.startswith("pod."):
        most = _MOST_CORES_OF_A_POD
    elif measured.path.startswith("node.limits."):
        most = _MOST_CORES_OF_LIMITS
    if number / measured.scale < most:
        return None
    hint = f"for {number:g} millicores write `{number / 1000:g}`" if measured.scale == 1 else ""
    return _Advice(f"`{measured.path}` is in cores", hint)


def _share_advice(measured: Measured, number: float) -> _Advice | None:
    if not measured.of.startswith("node.allocatable."):
        return None
    what = f"`{measured.path}` divided by `{measured.of}`"
    most = _MOST_OVERCOMMIT if measured.path.startswith("node.limits.") else _MOST_SHARE
    if measured.scale == 1 and number >= most:
        return _Advice(f"{what} is a fraction", f"for {number:g} % write `{number / _PERCENT}`")
    if measured.scale == _PERCENT and 0 < number <= _LEAST_PERCENT:
        percent = number * _PERCENT
        return _Advice(
            f"{what}, times 100, is in percent", f"for {percent:g} % write `{percent:.1f}`"
        )
    return None


_ADVICE: Final = {
    _Unit.BYTES: _bytes_advice,
    _Unit.CORES: _cores_advice,
    _Unit.SHARE: _share_advice,
}
"""The advice for a constant that something measured is compared with, None if it fits."""


def division_findings(part: Part) -> Iterator[Finding]:
    """Yield a finding for each division of counted pods whose rest is missed."""
    root = part.program.root
    whole = {
        id(side)
        for node, _ in ast.walk(root)
        if isinstance(node, ast.Binary) and node.operator in EQUALITIES | ORDERS
        for side, other in ((node.left, node.right), (node.right, node.left))
        if isinstance(other, ast.Literal) and isinstance(other.value, int)
    }
    explained: set[int] = set()
    for node, _ in ast.walk(root):
        if id(node) in explained:
            continue
        sums = list(_arithmetic_in(node))
        explained |= {id(each) for each in sums}
        cut = [each for each in sums if each.operator == "/" and id(each) not in whole]
        cut = [
            each
            for each in cut
            if (_counts_pods(each.left) and _is_whole(each.right))
            or (_is_sum_of_pods(each.right) and isinstance(each.left, ast.Literal))
        ]
        if cut and id(node) not in whole:
            message = f"unit? `{unparse(cut[0])}` is a whole number: the rest is cut off"
            yield Finding(part.name, message, f"write `{unparse(_exact(node))}`", cut[0].offset)


def _arithmetic_in(node: ast.Node) -> Iterator[ast.Binary]:
    """Yield the calculations that a number is the result of."""
    if isinstance(node, ast.Binary) and node.operator in _ARITHMETIC:
        yield node
        yield from _arithmetic_in(node.left)
        yield from _arithmetic_in(node.right)


_ARITHMETIC: Final = frozenset({"+", "-", "*", "/"})


def _exact(node: ast.Node) -> ast.Node:
    """Return a calculation of whole numbers with doubles."""
    match node:
        case ast.Binary(operator=sign) if sign in _ARITHMETIC:
            return replace(node, left=_exact(node.left), right=_exact(node.right))
        case ast.Literal(value=int(number)):
            return replace(node, value=float(number), type=DOUBLE)
        case ast.Call(function="int"):
            return replace(node, function="double")
    return ast.Call("double", (node,), offset=node.offset)


def _counts_pods(node: ast.Node) -> bool:
    """Return whether a part is a number of pods, or what is more or less of them."""
    if isinstance(node, ast.Binary) and node.operator in {"+", "-"}:
        sides = (node.left, node.right)
        return any(map(_counts_pods, sides)) and all(map(_is_whole, sides))
    return _UNITS.get(".".join(path_of(node, {}))) == "pods"


def _is_sum_of_pods(node: ast.Node) -> bool:
    return isinstance(node, ast.Binary) and _counts_pods(node)


def _is_whole(node: ast.Node) -> bool:
    is_int = isinstance(node, ast.Call) and node.function == "int"
    return is_int or isinstance(node, ast.Literal) or _counts_pods(node)


def undone_findings(part: Part) -> Iterator[Finding]:
    """Yield a finding for what is divided by a number, and multiplied by it again."""
    for node, _ in ast.walk(part.program.root):
        factors: list[ast.Node] = []
        inner = node
        while isinstance(inner, ast.Binary) and inner.operator == "*":
            factors.append(inner.right)
            inner = inner.left
        if not factors or not isinstance(inner, ast.Binary) or inner.operator != "/":
            continue
        divisor = inner.right
        if isinstance(divisor, ast.Literal) and all(each == divisor for each in factors):
            for factor in factors:
                divisor = ast.Binary("*", divisor, factor, offset=0)
            meant = unparse(replace(inner, right=divisor))
            message = f"it is divided by `{unparse(inner.right)}`, and multiplied by it again"
            hint = f"to divide by all put them in parentheses: `{meant}`"
            yield Finding(part.name, message, hint, node.offset)
            return


_MAY_BE_ZERO: Final = frozenset(
    {
        *((of, name) for of, name in (("node", "limits"), ("node", "requested"))),
        *(("node", name) for name in ("podCount", "podsNotEvictable")),
        *(("node", name) for name in ("podsOfOwner", "podsOfOwnerInZone")),
        ("pod", "requests"),
    }
)


def zero_findings(policy: CompiledPolicy, part: Part) -> Iterator[Finding]:
    """Yield a finding for each division by an amount that is 0 for some nodes or pods."""
    asked = {
        path_of(side, {})
        for program in (*programs_of(policy, part.program), *policy.conditions.values())
        for node, _ in ast.walk(program.root)
        if isinstance(node, ast.Binary) and node.operator in EQUALITIES | ORDERS
        for side in (node.left, node.right)
    }
    for node, _ in ast.walk(part.program.root):
        if not isinstance(node, ast.Binary) or node.operator not in {"/", "%"}:
            continue
        by = node.right
        if isinstance(by, ast.Call) and by.function in _CONVERSIONS:
            by = by.args[0]
        path = path_of(by, {})
        if path[:2] in _MAY_BE_ZERO and path not in asked:
            of = "some pods" if path[0] == "pod" else "some nodes"
            zero = "0" if len(path) == len(("node", "podCount")) else "0.0"
            text = unparse(part.program.root)
            otherwise = "0" if part.program.result_type == INT else "0.0"
            rest = f"{text} : {otherwise if isinstance(part.rule, ScoreRule) else 'true'}"
            yield Finding(
                part.name,
                f"`{unparse(by)}` is 0 for {of}: what is divided by it is no number then",
                f"say what then holds: `{unparse(by)} > {zero} ? {rest}`",
                node.offset,
            )


_NUMBER: Final = re.compile(r"[0-9]+")
_DECIMAL: Final = re.compile(r"[0-9]*\.[0-9]+")
_VERSION: Final = re.compile(r"v?[0-9]+(?:\.[0-9]+)*(?:[-+].*)?")
_TEXTS: Final = frozenset({"annotations", "labels", "nodeSelector"})
_PARTS_OF_A_VERSION: Final = 3


def ordering_findings(policy: CompiledPolicy, part: Part) -> Iterator[Finding]:
    """Yield a finding for each order of strings that hold numbers or versions, or may."""
    for node, _ in ast.walk(part.program.root):
        if not isinstance(node, ast.Binary) or node.operator not in ORDERS:
            continue
        sides = (node.left, node.right)
        texts = [_text(side) for side in sides]
        written = next((text for text in texts if text is not None), None)
        if written is None and not all(_is_string(policy, side) for side in sides):
            continue
        if written is not None and not _VERSION.fullmatch(written):
            continue
        message = f"`{unparse(node)}` compares letter by letter: `10` comes before `9`"
        yield Finding(part.name, message, _hint(node, written), node.offset)


def _text(node: ast.Node) -> str | None:
    return node.value if isinstance(node, ast.Literal) and isinstance(node.value, str) else None


def _is_string(policy: CompiledPolicy, node: ast.Node) -> bool:
    path = path_of(node, {})
    if path[:1] == ("variables",) and path[1:2]:
        program = policy.variables.get(path[1])
        return program is not None and program.result_type == STRING
    return any(step in _TEXTS for step in path[:-1])


def _hint(node: ast.Binary, written: str | None) -> str:
    """Return the comparison of the numbers, of the quantities, or of the versions."""
    if any("resources" in path_of(side, {}) for side in (node.left, node.right)):
        one, other = (f"quantity({unparse(side)})" for side in (node.left, node.right))
        return f"compare quantities: `{one}.compareTo({other}) {node.operator} 0`"
    if written is None or _NUMBER.fullmatch(written):
        return f"compare numbers: `{_numbers(node, 'int')}`"
    one, other = (_semver(side) for side in (node.left, node.right))
    versions = f"compare versions: `{one}.compareTo({other}) {node.operator} 0`"
    if not _DECIMAL.fullmatch(written):
        return versions
    return f"{versions}; if it is no version, numbers: `{_numbers(node, 'double')}`"


def _numbers(node: ast.Binary, function: str) -> str:
    left, right = (_converted(side, function, "0") for side in (node.left, node.right))
    return unparse(replace(node, left=left, right=right))


def _converted(node: ast.Node, function: str, absent: str) -> ast.Node:
    text = _text(node)
    if text is not None:
        number = int(text) if _NUMBER.fullmatch(text) else float(text)
        return ast.Literal(number, INT, offset=node.offset)
    if isinstance(node, ast.Call) and node.function == "string":
        return node.args[0]
    if isinstance(node, ast.Alternative) and _text(node.other) == "":
        node = replace(node, other=ast.Literal(absent, STRING, offset=node.offset))
    return ast.Call(function, (node,), offset=node.offset)


def _semver(node: ast.Node) -> str:
    text = _text(node)
    if text is None:
        if isinstance(node, ast.Alternative):
            node = replace(node, other=ast.Literal("0.0.0", STRING, offset=node.offset))
        return f"semver({unparse(node)}, true)"
    numbers = text.removeprefix("v").split(".")
    numbers += ["0"] * (_PARTS_OF_A_VERSION - len(numbers))
    return f"semver('{'.'.join(numbers)}')"
