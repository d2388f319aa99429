"""Conditions that are always true or never, by their own logic, whatever the values in them.

Each value that is compared with constants takes all values that the comparisons tell apart; all
else that is true or false is both.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import combinations, pairwise, permutations, product
from typing import Any, Final, TypeAlias

from engine.cel import ast
from engine.cel.unparse import unparse
from engine.cel.values import LIST, STRING, Duration, Timestamp
from engine.model.selectors import Operator
from engine.model.well_known import NAMESPACE_NAME_LABEL
from engine.policy import CompiledPolicy, FilterRule
from engine.policy.policy_set import Finding
from engine.policy_lint.reads import EQUALITIES, MIRRORED, ORDERS, SAME, Part, parts_of, path_of

_MOST_STEPS: Final = 20_000  # of one condition: its cases times its size
_MOST_NODES: Final = 1_000  # of a condition with its variables
_MOST_LEVELS: Final = 100  # of the same; each variable may have fifty
_OTHER: Final = "\0"  # a string that no constant is
_OPERATORS: Final[Mapping[str, Callable[[Any, Any], bool]]] = {
    "==": operator.eq,
    "!=": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}
IsOver: TypeAlias = Callable[[], bool]
"""Whether the time for lint is up: what is not looked at by then is not warned about."""


def logic_findings(part: Part, is_over: IsOver) -> Iterator[Finding]:
    """Yield the innermost parts of an expression that are always true, or never."""
    yield from _constant_parts(part, part.program.root, is_over)


def conflict_findings(policy: CompiledPolicy, is_over: IsOver) -> Iterator[Finding]:
    """Yield the match conditions, and the filters, that another one excludes, or includes."""
    inlining = _Inlining(policy)
    trees = {
        part.name: inlining.inlined(part.program.root)
        for part in parts_of(policy)
        if not part.variable and inlining.is_small(part.program.root)
    }
    parts = [part for part in parts_of(policy) if part.name in trees]
    of_pods = [part for part in parts if part.is_condition]
    of_nodes = [part for part in parts if isinstance(part.rule, FilterRule)]
    for message, together in ((_NO_POD, of_pods), (_NO_NODE, of_nodes)):
        for index, part in enumerate(together):
            for other in together[:index]:
                if is_over():
                    return
                both = ast.And((trees[other.name], trees[part.name]), offset=0)
                if _Cases(both).constant is False and all(
                    _Cases(each.program.root).constant is None for each in (other, part)
                ):
                    hint = _hint(both)
                    dropped = other.name if other.is_condition else f"`{other.name}`"
                    hint = f"{hint}, and drop {dropped}" if hint else ""
                    yield Finding(part.name, message.format(other.name), hint)
                    return
    yield from _owners(of_pods, trees)
    for together in (of_pods, of_nodes):
        yield from _implied(together, trees, is_over)
    yield from _decided_by_match(policy, of_nodes, [trees[each.name] for each in of_pods], trees)


def _decided_by_match(
    policy: CompiledPolicy,
    filters: Sequence[Part],
    conditions: Sequence[ast.Node],
    trees: Mapping[str, ast.Node],
) -> Iterator[Finding]:
    """Yield the filters that are the same for all nodes, of the pods that the policy selects."""
    known = (*_selected(policy), *conditions)
    if not known or _Cases(ast.And(known, offset=0)).constant is not None:
        return
    for part in filters:
        tree = trees[part.name]
        if _Cases(tree).constant is not None or not _reads(tree, "node"):
            continue
        for truth, what in ((True, "true"), (False, "false")):
            other = ast.Not(tree, offset=0) if truth else tree
            if _Cases(ast.And((*known, other), offset=0)).constant is False:
                message = f"`match` selects only pods for which it is always {what}"
                hint = "drop what it asks of pods from `match`, or here"
                yield Finding(part.name, message, hint)


def _selected(policy: CompiledPolicy) -> Iterator[ast.Node]:
    """Yield what holds for the labels that selectors give one of several values."""
    for path, selector in (
        (("namespaceObject", "metadata", "labels"), policy.namespace_selector),
        (("pod", "labels"), policy.object_selector),
    ):
        for each in selector.requirements:
            if each.operator is not Operator.IN:
                continue
            name, *rest = path if each.key != NAMESPACE_NAME_LABEL else ("pod", "namespace")
            keys = [*rest, each.key] if each.key != NAMESPACE_NAME_LABEL else rest
            of: ast.Node = ast.Variable(name, offset=0)
            for key in keys:
                of = ast.Select(of, key, offset=0)
            values = tuple(ast.Literal(value, STRING, offset=0) for value in sorted(each.values))
            yield ast.Binary("in", of, ast.ListLiteral(values, offset=0), offset=0)


def _owners(parts: Sequence[Part], trees: Mapping[str, ast.Node]) -> Iterator[Finding]:
    """Yield that pods are to have owners of two kinds, where each has one owner."""
    asked: dict[ast.Node, Part] = {}
    for part in parts:
        tree = trees[part.name]
        for each in tree.operands if isinstance(tree, ast.And) else (tree,):
            match each:
                case ast.Binary(operator="in", left=ast.Literal(), right=of) if path_of(of, {}) == (
                    "pod",
                    "ownerKinds",
                ):
                    asked.setdefault(each, part)
    if len(asked) > 1:
        either = unparse(ast.Or(tuple(asked), offset=0))
        message = "no pod has owners of all these kinds: the policy applies to none"
        part = [*asked.values()][-1]
        yield Finding(part.name, message, f"for either of them write `{either}` in one condition")


def _implied(
    parts: Sequence[Part], trees: Mapping[str, ast.Node], is_over: IsOver
) -> Iterator[Finding]:
    """Yield the first part that is true wherever another one is."""
    for part, other in ((two, one) for one, two in combinations(parts, 2)):
        if trees[part.name] == trees[other.name]:
            name = other.name if other.is_condition else f"`{other.name}`"
            message = f"it has the same expression as {name}: it has no effect"
            yield Finding(part.name, message, "write what is meant here, or drop one of the two")
            return
    cases = {part.name: _Cases(trees[part.name]) for part in parts}
    open_ones = [part for part in parts if cases[part.name].constant is None]
    for part, other in permutations(open_ones, 2):
        one, two = trees[part.name], trees[other.name]
        if is_over():
            return
        if not cases[part.name].subjects <= cases[other.name].subjects:
            continue
        if _Cases(ast.And((two, ast.Not(one, offset=0)), offset=0)).constant is False:
            if part.is_condition:
                message = f"it is true wherever {other.name} is: it has no effect"
                hint = f"drop one of the two, this or {other.name}"
            else:
                message = f"filter `{other.name}` rejects all that it rejects: it has no effect"
                hint = f"drop one of the two, `{part.name}` or `{other.name}`"
            yield Finding(part.name, message, hint)
            return


_NO_POD: Final = "no pod meets both this and {}: the policy applies to none"
_NO_NODE: Final = "no node passes both this filter and `{}`"


class _Inlining:
    """Trees with what variables stand for in their place.

    A variable may read another one twice, so such a tree may be exponentially larger than what is
    written: its size is known before it is made.
    """

    def __init__(self, policy: CompiledPolicy) -> None:
        self._variables = policy.variables
        self._sizes: dict[str, tuple[int, int]] = {}  # nodes and levels of each variable
        for name, program in policy.variables.items():  # each reads earlier ones alone
            self._sizes[name] = self._size(program.root)

    def is_small(self, root: ast.Node) -> bool:
        """Return whether a tree may be made, and looked at."""
        nodes, levels = self._size(root)
        return nodes <= _MOST_NODES and levels <= _MOST_LEVELS

    def inlined(self, node: ast.Node) -> ast.Node:
        """Return the tree of a small one."""
        name = _variable_in(node)
        if name:
            return self.inlined(self._variables[name].root)
        return ast.with_children(node, [self.inlined(child) for child in ast.children(node)])

    def _size(self, node: ast.Node) -> tuple[int, int]:
        name = _variable_in(node)
        if name:
            return self._sizes[name]
        sizes = [self._size(child) for child in ast.children(node)]
        nodes = 1 + sum(nodes for nodes, _ in sizes)
        return nodes, 1 + max((levels for _, levels in sizes), default=0)


def _variable_in(node: ast.Node) -> str:
    """Return the name of the variable that a node is, "" for none."""
    match node:
        case ast.Select(operand=ast.Variable(name="variables"), field=name):
            return name
    return ""


def implication_findings(policy: CompiledPolicy, part: Part) -> Iterator[Finding]:
    """Yield that a filter asks something of the pod and of the node: other pods have no node."""
    root = part.program.root
    if not isinstance(part.rule, FilterRule) or not isinstance(root, ast.And):
        return
    of_pod = [each for each in root.operands if not _reads(each, "node")]
    if not of_pod or len(of_pod) == len(root.operands):
        return
    of_node = [each for each in root.operands if _reads(each, "node")]
    asked, rest = (
        each[0] if len(each) == 1 else ast.And(tuple(each), offset=0) for each in (of_pod, of_node)
    )
    for each in of_pod:
        if each in [program.root for program in policy.conditions.values()]:
            return
    meant = ast.Or((ast.Not(asked, offset=0), rest), offset=0)
    message = f"for a pod of which `{unparse(asked)}` is false it rejects all nodes"
    hint = f"for such a pod to go anywhere write `{unparse(meant)}`"
    yield Finding(part.name, message, hint, root.offset)


def subset_findings(part: Part) -> Iterator[Finding]:
    """Yield that a filter asks whether a pod's list has all that a node has, not the other way."""
    for node, _ in ast.walk(part.program.root):
        match node:
            case ast.Call(function="sets.contains", args=(of_pod, of_node)) if not _reads(
                of_pod, "node"
            ) and any(_reads_map(of_node, each) for each in ("annotations", "labels")):
                turned = unparse(replace(node, args=(of_node, of_pod)))
                message = "it is true if the first has all of the second: a node with more fails"
                yield Finding(part.name, message, f"write `{turned}`", node.offset)


def _reads_map(node: ast.Node, field: str) -> bool:
    """Return whether a part reads a map of the node."""
    return any(
        isinstance(each, ast.Select) and each.field == field and _reads(each, "node")
        for each, _ in ast.walk(node)
    )


def _reads(node: ast.Node, name: str) -> bool:
    return any(isinstance(each, ast.Variable) and each.name == name for each, _ in ast.walk(node))


def _constant_parts(part: Part, node: ast.Node, is_over: IsOver) -> list[Finding]:
    children = ast.children(node)
    below = [found for child in children for found in _constant_parts(part, child, is_over)]
    if below or is_over():
        return below
    match node:
        case ast.Conditional():
            return _idle_choices(part, node)
        case ast.Binary(operator=sign, left=left, right=right) if left == right:
            if sign in EQUALITIES | ORDERS and not isinstance(left, ast.Literal):
                message = f"`{unparse(node)}` compares `{unparse(left)}` with itself"
                return [Finding(part.name, message, offset=node.offset)]
        case ast.ListLiteral(elements=elements) if twice := _repeated(elements):
            message = f"`{unparse(twice)}` stands there twice"
            return [Finding(part.name, message, "drop it", twice.offset)]
        case ast.Binary() if (value := _constant_size(node)) is not None:
            message = (
                f"`{unparse(node)}` is {'always' if value else 'never'} true: no size is below 0"
            )
            return [Finding(part.name, message, offset=node.offset)]
        case ast.And() | ast.Or():
            return _constant_condition(part, node)
    return []


def _constant_condition(part: Part, node: ast.And | ast.Or) -> list[Finding]:
    """Return a finding for a condition that says something twice, or is always true or never."""
    if twice := _repeated(node.operands):
        message = f"`{unparse(twice)}` stands there twice"
        return [Finding(part.name, message, offset=twice.offset)]
    value = _Cases(node).constant
    if value is None:
        return []
    if not value and isinstance(node, ast.And) and (pair := _never_both(node.operands)):
        both = ast.And(pair, offset=pair[0].offset)
        message = f"`{unparse(both)}` is never true, whatever the values are"
        return [Finding(part.name, message, _in_parentheses(_hint(both)), node.offset)]
    always = "is always true" if value else "is never true"
    message = f"`{unparse(node)}` {always}, whatever the values are"
    return [Finding(part.name, message, _hint(node), node.offset)]


def _never_both(operands: Sequence[ast.Node]) -> tuple[ast.Node, ast.Node] | None:
    """Return the two of several operands that are never true together, None if it takes more."""
    if len(operands) <= len(("one", "other")):
        return None
    pairs = combinations(operands, 2)
    return next((each for each in pairs if _Cases(ast.And(each, offset=0)).constant is False), None)


def _in_parentheses(hint: str) -> str:
    """Return a hint with what it says to write in parentheses, beside other operands."""
    before, mark, text = hint.partition("write `")
    return f"{before}{mark}({text.removesuffix('`')})`" if mark else hint


def _idle_choices(part: Part, node: ast.Conditional) -> list[Finding]:
    """Return a finding for a choice that makes no difference, or that is never reached."""
    if node.then == node.otherwise:
        message = f"`{unparse(node)}` is `{unparse(node.then)}` either way"
        return [Finding(part.name, message, offset=node.offset)]
    tests = [node.test]
    while isinstance(node.otherwise, ast.Conditional):
        node = node.otherwise
        tests.append(node.test)
    twice = _repeated(tests)
    if twice is None:
        return _unreachable(part, tests)
    message = f"`{unparse(twice)}` is asked before: what follows it is never reached"
    return [Finding(part.name, message, "drop one of the two", twice.offset)]


def _unreachable(part: Part, tests: Sequence[ast.Node]) -> list[Finding]:
    """Return a finding for the first test that is never true where those before it are not."""
    for number, test in enumerate(tests):
        others = tuple(ast.Not(each, offset=0) for each in tests[:number])
        if not others or _Cases(test).constant is not None:
            continue
        if _Cases(ast.And((*others, test), offset=0)).constant is False:
            message = f"`{unparse(test)}` is never true here: what follows it is never reached"
            return [Finding(part.name, message, "ask for it before the others", test.offset)]
    return []


def _repeated(nodes: Sequence[ast.Node]) -> ast.Node | None:
    """Return the first that stood there before, None if all differ."""
    return next((each for n, each in enumerate(nodes) if each in nodes[:n]), None)


def precedence_findings(part: Part) -> Iterator[Finding]:
    """Yield the choices between values of one thing of which `&&` takes the last or first alone."""
    for node, _ in ast.walk(part.program.root):
        if not isinstance(node, ast.Or):
            continue
        for index, both in enumerate(node.operands):
            if not isinstance(both, ast.And) or _is_in_parentheses(both, part.program.source):
                continue
            for other, end in ((index - 1, 0), (index + 1, -1)):
                if not 0 <= other < len(node.operands):
                    continue
                alone, near = node.operands[other], both.operands[end]
                subject = _subject(alone)
                if subject is None or subject != _subject(near):
                    continue
                order = (near, alone) if end else (alone, near)
                rest = [each for each in both.operands if each is not near]
                either = ast.Or(order, offset=0)
                whole = (*rest, either) if end else (either, *rest)
                meant = unparse(ast.And(whole, offset=0))
                read = f"({unparse(both)})"
                read = f"{read} || {unparse(alone)}" if end else f"{unparse(alone)} || {read}"
                message = f"`&&` binds more tightly than `||`: it is `{read}`"
                hint = f"write `{meant}`, or put what is meant in parentheses"
                yield Finding(part.name, message, hint, near.offset)
                return


def choice_findings(part: Part) -> Iterator[Finding]:
    """Yield the choices of which the last value takes in what was to be added to the choice."""
    for node, _ in ast.walk(part.program.root):
        if not isinstance(node, ast.Conditional):
            continue
        found = _without_first_number(node.otherwise)
        if found is None or _is_in_parentheses(node.otherwise, part.program.source):
            continue
        number, rest = found
        if isinstance(node.otherwise, ast.Conditional) or not number.value:
            alone = replace(node, otherwise=number)
            meant = unparse(ast.Binary("+", alone, rest, offset=0))
            read = unparse(node.otherwise)
            yield Finding(
                part.name,
                f"all after `:` belongs to the choice: it is `.. : ({read})`",
                f"write `{meant}`, or put what is meant in parentheses",
                min(each.offset for each, _ in ast.walk(node.otherwise)),
            )
            return


def _without_first_number(node: ast.Node) -> tuple[ast.Literal, ast.Node] | None:
    """Return the number that a text begins with and adds to, and the rest; None if it does not."""
    match node:
        case ast.Conditional(test=test) if found := _without_first_number(test):
            return found[0], replace(node, test=found[1])
        case ast.Binary(operator="+", left=ast.Literal() as first, right=rest):
            return (first, rest) if _is_number(first.value) else None
        case ast.Binary(left=left) if found := _without_first_number(left):
            return found[0], replace(node, left=found[1])
    return None


def _is_in_parentheses(node: ast.Node, source: str) -> bool:
    start = min(each.offset for each, _ in ast.walk(node))
    return source[:start].rstrip().endswith("(")


def _subject(node: ast.Node) -> ast.Node | None:
    """Return what is asked whether it is, or is like, a constant; None for anything else."""
    match node:
        case ast.Call(function="startsWith" | "endsWith" | "contains" | "matches", args=(of, _)):
            return _plain(of)
    compared = _compared(node)
    return compared[0] if compared is not None and compared[1] in {"==", "in"} else None


def _constant_size(node: ast.Binary) -> bool | None:
    """Return what a comparison of a size with a constant always is, None if that depends on it."""
    compared = _compared(node)
    if compared is None or compared[1] not in _OPERATORS or not _is_number(compared[2][0]):
        return None
    subject, sign, (constant,) = compared
    if not isinstance(subject, ast.Call) or subject.function != "size":
        return None
    sizes = [each for each in _domain([constant]) if _is_number(each)]
    found = {_OPERATORS[sign](size, constant) for size in (0, *sizes) if size >= 0}
    return found.pop() if len(found) == 1 else None


def _hint(node: ast.And | ast.Or) -> str:
    """Return how to ask for one of several values, or for none of them."""
    sign = "==" if isinstance(node, ast.And) else "!="
    subjects_asked = {_subject(each) for each in node.operands}
    if (
        sign == "=="
        and len(subjects_asked) == 1
        and any(isinstance(each, ast.Call) for each in node.operands)
    ):
        return f"for any of them write `{unparse(ast.Or(node.operands, offset=node.offset))}`"
    ordered = {_ordered(each) for each in node.operands}
    if isinstance(node, ast.And) and len(ordered) == 1 and None not in ordered:
        return f"for either of them write `{unparse(ast.Or(node.operands, offset=0))}`"
    subjects, literals = [], []
    for each in node.operands:
        if not isinstance(each, ast.Binary) or each.operator != sign:
            return ""
        subjects.append(each.left)
        literals.append(each.right)
    if len(set(subjects)) > 1 or not all(isinstance(each, ast.Literal) for each in literals):
        return ""
    values = ast.ListLiteral(tuple(literals), offset=node.offset)
    among: ast.Node = ast.Binary("in", subjects[0], values, offset=node.offset)
    if sign == "==":
        return f"for any of them write `{unparse(among)}`"
    return f"for none of them write `{unparse(ast.Not(among, offset=node.offset))}`"


def _ordered(node: ast.Node) -> ast.Node | None:
    """Return what is asked whether it is more or less than a constant, None for anything else."""
    compared = _compared(node)
    return compared[0] if compared is not None and compared[1] in ORDERS else None


class _Cases:
    """All that a condition may come to.

    Attributes:
        constant: its value, if that is the same in all cases; None if not, or if they are too many.
        subjects: what its cases tell apart.
    """

    def __init__(self, root: ast.Node) -> None:
        self._constants: dict[ast.Node, list[object]] = {}
        self._free: dict[ast.Node, None] = {}
        self._collect(root)
        domains = {node: _domain(values) for node, values in self._constants.items()}
        domains |= {node: [True, False] for node in self._free}
        self.subjects = domains.keys()
        self.constant: bool | None = None
        cases = math.prod(len(values) for values in domains.values())
        if not 0 < cases * sum(1 for _ in ast.walk(root)) <= _MOST_STEPS:
            return
        values = (
            self._value(root, dict(zip(domains, case, strict=True)))
            for case in product(*domains.values())
        )
        first = next(values)
        if all(value == first for value in values):
            self.constant = first

    def _collect(self, node: ast.Node) -> None:
        match node:
            case ast.And() | ast.Or() | ast.Not() | ast.Conditional():
                for child in ast.children(node):
                    self._collect(child)
            case ast.Literal():
                pass
            case _ if (compared := _compared(node)) is not None:
                subject, _, constants = compared
                self._constants.setdefault(subject, []).extend(constants)
            case _:
                self._free[node] = None

    def _value(self, node: ast.Node, case: Mapping[ast.Node, Any]) -> bool:
        match node:
            case ast.And():
                return all(self._value(each, case) for each in node.operands)
            case ast.Or():
                return any(self._value(each, case) for each in node.operands)
            case ast.Not():
                return not self._value(node.operand, case)
            case ast.Conditional():
                taken = node.then if self._value(node.test, case) else node.otherwise
                return self._value(taken, case)
            case ast.Literal():
                return node.value is True
        if (compared := _compared(node)) is None:
            return bool(case[node])
        subject, sign, constants = compared
        value = case[subject]
        if sign == "in":
            return value in constants
        if sign == "startsWith":
            return str(value).startswith(constants[0])
        return _OPERATORS[sign](value, constants[0])


def _compared(node: ast.Node) -> tuple[ast.Node, str, list[Any]] | None:
    """Return what is compared, how, and with which constants; None for anything else."""
    match node:
        case ast.Call(function="startsWith", args=(of, ast.Literal(value=str(start)))):
            return _plain(of), "startsWith", [start, f"{start}{_OTHER}"]
    if not isinstance(node, ast.Binary):
        return None
    sign, left, right = node.operator, node.left, node.right
    if isinstance(left, ast.Literal):
        sign, left, right = MIRRORED.get(sign, sign), right, left
        if sign == "in":
            return None
    if isinstance(left, ast.Literal):
        return None
    left = _plain(left)
    if sign == "in" and isinstance(right, ast.ListLiteral) and not right.optionals:
        constants = [each.value for each in right.elements if isinstance(each, ast.Literal)]
        is_known = len(constants) == len(right.elements) and all(map(_is_text, constants))
        return (left, sign, constants) if is_known else None
    if sign not in _OPERATORS or not isinstance(right, ast.Literal) or right.type == LIST:
        return None
    value = right.value.nanos if isinstance(right.value, Duration | Timestamp) else right.value
    is_known = _is_number(value) or (sign in EQUALITIES and _is_text(value))
    return (left, sign, [value]) if is_known else None


def _plain(node: ast.Node) -> ast.Node:
    """Return a value as it is read without asking whether it is there: absent, it is empty."""
    if isinstance(node, ast.Alternative) and node.other == ast.Literal("", STRING, offset=0):
        node = node.operand
    root, keys, _ = ast.field_path(node)
    if isinstance(root, ast.Variable):
        name, *rest = SAME.get((root.name, *keys), (root.name, *keys))
        root, keys = replace(root, name=name), tuple(rest)
    for key in keys:
        root = ast.Select(root, key, offset=0)
    return root


def _domain(constants: list[Any]) -> list[Any]:
    """Return values that cover all that comparisons with constants tell apart.

    None where constants are of several kinds: what is compared with them is known to nobody.
    """
    if all(map(_is_text, constants)):
        return [*dict.fromkeys(constants), _OTHER]
    if not all(map(_is_number, constants)):
        return []
    numbers = sorted(set(constants))
    between = [(low + high) / 2 for low, high in pairwise(numbers)]
    return [numbers[0] - 1, *numbers, *between, numbers[-1] + 1]


def _is_text(value: object) -> bool:
    return isinstance(value, str)


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)
