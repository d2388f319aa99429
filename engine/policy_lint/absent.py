"""Fields that most pods lack: reading one is an error, and the whole part fails for such a pod.

What a pod has when it is admitted is what its author wrote, the defaults of the API, and what the
admission plugins of the API server add before they call webhooks (kubernetes
pkg/apis/core/v1/defaults.go, pkg/kubeapiserver/options/plugins.go).
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Final

from engine.cel import CelError, ast, compile_node, new_frame
from engine.cel.unparse import unparse
from engine.cel.values import NULL, STRING
from engine.model.selectors import Operator
from engine.policy import CompiledPolicy, FilterRule, ScoreRule
from engine.policy.environment import ExpressionScope, environment
from engine.policy.policy_set import Finding
from engine.policy.schema import OnFilterError, OnScoreError
from engine.policy_lint.reads import (
    ANY,
    EQUALITIES,
    ORDERS,
    Comparison,
    KeyRead,
    Part,
    ReadPath,
    Reads,
    path_of,
    programs_of,
)

_ENVIRONMENT: Final = environment(ExpressionScope.RULES)
_CONTAINER: Final = frozenset(
    {
        "image",
        "imagePullPolicy",
        "name",
        "resources",
        "terminationMessagePath",
        "terminationMessagePolicy",
    }
)
_NOTHING: Final = frozenset[str]()
_SPEC: Final = ("object", "spec")
_ALWAYS_THERE: Final[Mapping[ReadPath, frozenset[str]]] = {
    ("pod", "labels"): _NOTHING,
    ("pod", "annotations"): _NOTHING,
    ("pod", "nodeSelector"): _NOTHING,
    ("pod", "limits"): _NOTHING,
    ("pod", "requests"): frozenset({"cpu", "memory"}),
    ("namespaceObject", "metadata", "labels"): frozenset({"kubernetes.io/metadata.name"}),
    ("object", "metadata"): frozenset({"namespace"}),
    ("object", "metadata", "labels"): _NOTHING,
    ("object", "metadata", "annotations"): _NOTHING,
    _SPEC: frozenset(
        {
            "containers",
            "dnsPolicy",
            "enableServiceLinks",
            "preemptionPolicy",
            "priority",
            "restartPolicy",
            "schedulerName",
            "securityContext",
            "serviceAccount",
            "serviceAccountName",
            "terminationGracePeriodSeconds",
        }
    ),
    (*_SPEC, "nodeSelector"): _NOTHING,
    (*_SPEC, "securityContext"): _NOTHING,
    (*_SPEC, "containers", ANY): _CONTAINER,
    (*_SPEC, "containers", ANY, "resources"): _NOTHING,
    (*_SPEC, "containers", ANY, "resources", "limits"): _NOTHING,
    (*_SPEC, "containers", ANY, "resources", "requests"): _NOTHING,
    (*_SPEC, "initContainers", ANY): _CONTAINER,
}
"""The keys that each pod has, by the map that has them; the others may be absent."""

_MAPS: Final = frozenset({"annotations", "labels", "limits", "nodeSelector", "requests"})
_TEXTS: Final = frozenset({"annotations", "labels", "nodeSelector"})
_IMPLY_LIMITS: Final = frozenset({"qosClass", "limits"})
_LONGEST: Final = 160  # characters of an expression that a hint repeats


def absent_findings(policy: CompiledPolicy, part: Part) -> Iterator[Finding]:
    """Yield a finding for each key of the pod that is read without asking whether it is there."""
    if part.rule is not None and part.rule.on_error in {
        OnFilterError.IGNORE_RULE,
        OnScoreError.IGNORE_RULE,
    }:
        return
    asked = _asked_of(policy, part)
    reads = Reads(part.program.root)
    explained = {each.path for each in reads.comparisons if _is_null(each) or _is_amount(each)}
    for read in dict.fromkeys(_reads_at_risk(part.program.root)):
        path = (*read.path, read.key)
        if asked.isdisjoint({path, read.path}) and not any(
            _is_below(each, path) for each in explained
        ):
            message = f"for a pod without `{_text(read)}` {_consequence(part)}"
            yield Finding(part.name, message, _hint(part, read), read.offset)


def unanswered_findings(policy: CompiledPolicy, part: Part) -> Iterator[Finding]:
    """Yield a finding for each question that is no answer to whether something is there, or less.

    An absent value is not null, and what `has` asks for must be a field of something that is there.
    """
    asked = _asked_of(policy, part)
    reads = Reads(part.program.root)
    nulls = {each.path: each.operator for each in reads.comparisons if _is_null(each)}
    for read in dict.fromkeys(reads.keys):
        path = (*read.path, read.key)
        if path in nulls and path not in asked and path[0] in _NEVER_NULL:
            there = _lacks(read) if nulls[path] == "==" else _asks(read)
            message = f"`{_text(read)}` is never null: to read it where it is absent is an error"
            yield Finding(part.name, message, f"write `{there}`", read.offset)
    for node, _ in ast.walk(part.program.root):
        if isinstance(node, ast.Has) and path_of(node.operand, {}) == _USAGE not in asked:
            message = f"`{unparse(node)}` fails for a node without a report: that has no usage"
            yield Finding(part.name, message, "write `has(node.usage)`", node.offset)


_NEVER_NULL: Final = frozenset({"namespaceObject", "node", "object", "pod"})
_USAGE: Final = ("node", "usage")


def _is_null(compared: Comparison) -> bool:
    return compared.operator in EQUALITIES and compared.literal.type == NULL


def amount_findings(part: Part) -> Iterator[Finding]:
    """Yield a finding for each amount of the pod as it was sent that is compared as a number."""
    reads = Reads(part.program.root)
    amounts = {each.path: each for each in reads.comparisons if _is_amount(each)}
    for read in dict.fromkeys(reads.keys):
        compared = amounts.get((*read.path, read.key))
        if compared is not None and isinstance(read.of, ast.Select):
            is_same = compared.operator not in ORDERS and isinstance(compared.literal.value, int)
            number = "asInteger" if is_same else "asApproximateFloat"
            of, kind = unparse(read.of.operand), read.path[-1]
            text = f"{of}.?{kind}{_step(read.key)}.orValue('0')"
            total = f"pod.{kind}{_step(read.key)}"
            message = f"`{_text(read)}` is a text, such as `'500m'`: it is compared with no number"
            hint = f"write `quantity({text}).{number}()`; of all containers `{total}`"
            yield Finding(part.name, message, hint, read.offset)


def order_findings(part: Part) -> Iterator[Finding]:
    """Yield a finding for each amount of the pod as it was sent that is ordered as a text."""
    names: dict[str, ReadPath] = {}
    for node, _ in ast.walk(part.program.root):
        if isinstance(node, ast.Quantifier | ast.Transform):
            names |= dict.fromkeys(node.variables, (*path_of(node.range, names), ANY))
        match node:
            case ast.Binary(operator=sign, left=of, right=ast.Literal(value=str()) as text) if (
                sign in ORDERS and path_of(of, names)[-3:-2] == ("resources",)
            ):
                compared = f"quantity({unparse(of)}).compareTo(quantity({unparse(text)})) {sign} 0"
                message = "it compares letter by letter: `'16Gi'` comes before `'8Gi'`"
                yield Finding(part.name, message, f"write `{compared}`", node.offset)


def _is_amount(compared: Comparison) -> bool:
    """Return whether a quantity of `object` is compared with a number."""
    path, value = compared.path, compared.literal.value
    is_quantity = path[:1] == ("object",) and path[-3:-2] == ("resources",)
    return is_quantity and isinstance(value, int | float) and not isinstance(value, bool)


def default_findings(part: Part) -> Iterator[Finding]:
    """Yield a finding for each default that the function around it cannot read."""
    for node, _ in ast.walk(part.program.root):
        match node:
            case ast.Call(
                function=function, args=(ast.Alternative(other=ast.Literal() as other), *more)
            ) if function in _DEFAULTS:
                default = replace(node, args=(other, *more))
                try:
                    compile_node(default, _ENVIRONMENT)(new_frame({}))
                except CelError as error:
                    meant = unparse(_with_default(node))
                    message = f"`{unparse(default)}` fails, where nothing else is there: {error}"
                    yield Finding(part.name, message, f"write `{meant}`", other.offset)


def failure_findings(part: Part) -> Iterator[Finding]:
    """Yield a finding for each call of constants alone that always fails."""
    for node, _ in ast.walk(part.program.root):
        if isinstance(node, ast.Call) and all(isinstance(each, ast.Literal) for each in node.args):
            try:
                compile_node(node, _ENVIRONMENT)(new_frame({}))
            except CelError as error:
                yield Finding(part.name, f"always fails: {error}", offset=node.offset)


def _with_default(node: ast.Call) -> ast.Call:
    """Return a call whose default it can read: the same as a number, or the least there is."""
    read, *more = node.args
    assert isinstance(read, ast.Alternative)  # noqa: S101 - INVARIANT: it was matched
    assert isinstance(read.other, ast.Literal)  # noqa: S101 - likewise
    if node.function in {"int", "uint"} and _FRACTION.fullmatch(str(read.other.value)):
        return replace(node, function="double")
    other = replace(read.other, value=_DEFAULTS[node.function])
    return replace(node, args=(replace(read, other=other), *more))


_FRACTION: Final = re.compile(r"-?[0-9]*\.[0-9]+")


def element_findings(part: Part) -> Iterator[Finding]:
    """Yield a finding for each question to the first of a list, and to all of one that is empty."""
    for node, _ in ast.walk(part.program.root):
        match node:
            case ast.Binary(
                operator="==" | "!=" as sign,
                left=ast.Select(
                    operand=ast.Index(operand=of, index=ast.Literal(value=int())), field=field
                ) as read,
            ) if path_of(of, {}) in _UNORDERED:
                element = ast.Select(ast.Local("e", offset=0), field, offset=0)
                how_many = ast.HowMany.ALL if sign == "!=" else ast.HowMany.SOME
                predicate = replace(node, left=element)
                any_of = ast.Quantifier(how_many, of, ("e",), predicate, offset=0)
                message = f"`{unparse(read)}` is of one element, and fails where there is none"
                yield Finding(part.name, message, f"write `{unparse(any_of)}`", node.offset)
            case ast.Quantifier(
                how_many=ast.HowMany.ALL, range=of, predicate=ast.Binary(operator="==" | "in")
            ) if path_of(of, {}) == ("pod", "ownerKinds"):
                message = f"`{unparse(node)}` is also true of a pod that nothing owns"
                some = replace(node, how_many=ast.HowMany.SOME)
                yield Finding(part.name, message, f"write `{unparse(some)}`", node.offset)


def report_findings(part: Part) -> Iterator[Finding]:
    """Yield a finding for each loop over all nodes that fails for one without a report of usage."""
    for node, _ in ast.walk(part.program.root):
        if not isinstance(node, ast.Transform) or path_of(node.range, {}) != ("nodes",):
            continue
        below = [each for each, _ in ast.walk(node)]
        name = {node.variables[-1]: ("node",)}
        reads = [each for each in below if path_of(each, name) == _USAGE]
        if not reads or any(isinstance(each, ast.Has) for each in below):
            continue
        asks = ast.Has(ast.Local(node.variables[-1], offset=0), _USAGE[-1], offset=0)
        tests = (asks,) if node.condition is None else (asks, node.condition)
        meant = replace(node, condition=asks if len(tests) == 1 else ast.And(tests, offset=0))
        message = f"`{unparse(reads[0])}` fails for all nodes where one has no report of its usage"
        yield Finding(part.name, message, f"write `{unparse(meant)}`", reads[0].offset)


_UNORDERED: Final = frozenset(
    {("node", "conditions"), ("node", "taints"), ("pod", "tolerations"), (*_SPEC, "tolerations")}
)
"""Lists of maps whose order means nothing."""

_DEFAULTS: Final = {
    "bool": "false",
    "double": "0",
    "duration": "0s",
    "int": "0",
    "quantity": "0",
    "semver": "0.0.0",
    "timestamp": "1970-01-01T00:00:00Z",
    "uint": "0",
}
"""What each function that reads a text reads as the least."""


def _reads_at_risk(root: ast.Node) -> Iterator[KeyRead]:
    """Yield the reads of keys that may be absent, of a chain of them the first."""
    risky: set[ReadPath] = set()
    found = [
        read
        for read in Reads(root).keys
        if not read.asks and read.key not in _ALWAYS_THERE.get(read.path, {read.key})
    ]
    for read in sorted(found, key=lambda read: len(read.path)):
        path = (*read.path, read.key)
        if not any(path[:end] in risky for end in range(len(path))):
            risky.add(path)
            yield read


def _asked_of(policy: CompiledPolicy, part: Part) -> set[ReadPath]:
    """Return what is asked for, by the part itself or by what selects the pods."""
    asked: set[ReadPath] = set()
    for program in (*programs_of(policy, part.program), *policy.conditions.values()):
        asked |= {(*read.path, read.key) for read in Reads(program.root).keys if read.asks}
        for path in program.references:
            # By its class or all of its limits at once, an author knows what a pod has.
            if path[:1] == ("pod",) and len(path) == 2 and path[1] in _IMPLY_LIMITS:  # noqa: PLR2004
                asked.add(("pod", "limits"))
    for path, selector in (
        (("pod", "labels"), policy.object_selector),
        (("object", "metadata", "labels"), policy.object_selector),
        (("namespaceObject", "metadata", "labels"), policy.namespace_selector),
    ):
        for requirement in selector.requirements:
            if requirement.operator in {Operator.IN, Operator.EXISTS}:
                asked.add((*path, requirement.key))
    return asked


def _consequence(part: Part) -> str:
    if part.is_condition:
        return "it fails, and the policy does not apply"
    if part.rule is None:
        return "it fails"
    return "no node gets points" if isinstance(part.rule, ScoreRule) else "no node passes"


def _text(read: KeyRead) -> str:
    """Return a read as it is written."""
    return f"{unparse(read.of)}{_step(read.key)}"


def _step(key: str) -> str:
    return f".{key}" if key.isidentifier() else f"['{key}']"


def _asks(read: KeyRead) -> str:
    """Return the question whether something is there."""
    return f"'{read.key}' in {unparse(read.of)}" if _is_of_map(read) else f"has({_text(read)})"


def _lacks(read: KeyRead) -> str:
    return f"!({_asks(read)})" if _is_of_map(read) else f"!{_asks(read)}"


def _is_of_map(read: KeyRead) -> bool:
    return read.path[-1] in _MAPS or not read.key.isidentifier()


def _hint(part: Part, read: KeyRead) -> str:
    """Return the part with the question before it, or what to read instead of the absent."""
    if read.key == "ownerReferences":
        return "read `pod.ownerKinds` instead, which is always there: `'Job' in pod.ownerKinds`"
    if read.path == _SPEC and read.key == "nodeName":
        return "a pod that is being placed has no node: drop it"
    if read.path == ("object", "metadata") and read.key == "creationTimestamp":
        return "a pod that is being created has no age yet: drop it"
    if optional := _optional(part, read):
        return f"write `{optional}`"
    asks = _asks(read)
    root, text = part.program.root, unparse(part.program.root)
    if ANY in read.path or len(text) > _LONGEST:
        return f"ask `{asks}` first"
    if isinstance(part.rule, ScoreRule):
        return f"write `{asks} ? double({text}) : 0.0`"
    if part.rule is not None:
        inner = text if isinstance(root, ast.Or | ast.Binary | ast.Call) else f"({text})"
        return f"write `{_lacks(read)} || {inner}`: such a pod may then go anywhere"
    inner = text if isinstance(root, ast.And | ast.Binary | ast.Call) else f"({text})"
    return f"write `{asks} && {inner}`" if part.is_condition else f"ask `{asks}` first"


def _optional(part: Part, read: KeyRead) -> str:
    """Return what is never absent, where it is compared with a constant or searched; "" elsewhere.

    It is the string, number, list or map that no pod names.
    """
    path, root = (*read.path, read.key), part.program.root
    if part.variable and path_of(root, {}) == path and read.path[-1] in _TEXTS:
        return f"{_start_of(read)}.orValue('')"
    if _is_test(root, path):
        return f"{_start_of(read)}.orValue(false)"
    if any(_is_element(node, path) for node, _ in ast.walk(root)):
        return ""  # of an empty list there is no element either
    for node, _ in ast.walk(root):
        match node:
            case ast.Binary(
                operator="==" | "!=",
                left=left,
                right=ast.ListLiteral(elements=()) | ast.MapLiteral(entries=()) as empty,
            ) if path_of(left, {}) == path:
                return f"{_start_of(read)}.orValue({unparse(empty)})"
    reads = Reads(root)
    found = {
        each.path[len(path) :]: each for each in reads.comparisons if _is_below(each.path, path)
    }
    rest, compared = min(found.items(), default=((), None), key=lambda item: len(item[0]))
    is_list = any(_is_below(each.path, (*path, ANY)) for each in reads.keys) or ANY in rest
    if is_list:
        rest, default = (), "[]"
    elif compared is None:
        return ""
    else:
        default = _default(compared.literal.value, read)
    return f"{_start_of(read)}{''.join(map(_step, rest))}.orValue({default})"


def _start_of(read: KeyRead) -> str:
    """Return a read that is an optional."""
    of = unparse(read.of)
    return f"{of}[?'{read.key}']" if _is_of_map(read) else f"{of}.?{read.key}"


def _is_test(root: ast.Node, path: ReadPath) -> bool:
    """Return whether a value is true or false by itself."""
    tests = [root]
    for node, _ in ast.walk(root):
        match node:
            case ast.Not(operand=test) | ast.Conditional(test=test):
                tests.append(test)
            case ast.And(operands=operands) | ast.Or(operands=operands):
                tests += operands
    return any(path_of(test, {}) == path for test in tests)


def _is_element(node: ast.Node, path: ReadPath) -> bool:
    """Return whether a part is an element of a list by its number."""
    is_index = isinstance(node, ast.Index) and not node.optional
    return is_index and path_of(node, {}) == (*path, ANY)


def _is_below(path: ReadPath, start: ReadPath) -> bool:
    return path[: len(start)] == start


def _default(compared: object, read: KeyRead) -> str:
    """Return what stands for an absent value that is compared with a constant."""
    match compared:
        case bool():
            return "false"
        case int() if read.path[0] != "pod":
            return "0"
        case int() | float():
            return "0.0"
    return "'0'" if "resources" in read.path else "''"  # there, a string is a quantity


def wish_findings(policy: CompiledPolicy, part: Part) -> Iterator[Finding]:
    """Yield that a filter leaves no node to a pod without the label that says which it wants."""
    if not isinstance(part.rule, FilterRule):
        return
    root = part.program.root
    for each in root.operands if isinstance(root, ast.And) else (root,):
        if not isinstance(each, ast.Binary) or each.operator != "==":
            continue
        for wish, of_node in ((each.left, each.right), (each.right, each.left)):
            path = path_of(of_node, {})
            if path[:-1] == ("node", "labels") and path[-1] in _ON_EACH_NODE:
                variable = path_of(wish, {})[1:] if path_of(wish, {})[:1] == ("variables",) else ()
                said = policy.variables[variable[0]].root if variable else wish
                if _is_empty_without_label(said):
                    lacks = ast.Binary("==", wish, _EMPTY, offset=0)
                    meant = unparse(ast.Or((lacks, each), offset=0))
                    meant = meant if each is root else f"({meant})"
                    message = f"it rejects all nodes for a pod without what `{unparse(wish)}` reads"
                    yield Finding(part.name, message, f"write `{meant}`", each.offset)


def _is_empty_without_label(node: ast.Node) -> bool:
    """Return whether a value is a label or annotation of the pod, and empty where it is absent."""
    is_label = path_of(node, {})[:2] in {("pod", "labels"), ("pod", "annotations")}
    return is_label and isinstance(node, ast.Alternative) and node.other == _EMPTY


_EMPTY: Final = ast.Literal("", STRING, offset=0)
_ON_EACH_NODE: Final = frozenset(
    {
        "kubernetes.io/arch",
        "kubernetes.io/hostname",
        "kubernetes.io/os",
        "node.kubernetes.io/instance-type",
        "topology.kubernetes.io/region",
        "topology.kubernetes.io/zone",
    }
)
