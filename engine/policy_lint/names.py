"""Names: what that of a rule or condition says against what it does.

A name tells what its author means only where it speaks of what the rule asks for: `no-gpu` of a
filter on the label `gpu`. Of all other names nothing is said.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final, NamedTuple

from engine.cel import CelError, Timestamp, ast, compile_node, new_frame
from engine.cel.unparse import unparse
from engine.cel.values import Duration
from engine.model.time import NANOSECONDS_PER_SECOND
from engine.policy import CompiledPolicy, FilterRule, ScoreRule
from engine.policy.environment import ExpressionScope, environment
from engine.policy.policy_set import Finding
from engine.policy.schema import OnFilterError, named_plugin
from engine.policy_lint.reads import Part, ReadPath, path_of, references_of

_WORD: Final = re.compile(r"[A-Z]?[a-z]+|[0-9]+")
_NEGATIVE: Final = frozenset(
    {
        *("anti", "avoid", "away", "ban", "block", "deny", "drop", "except", "exclude", "forbid"),
        *("ignore", "never", "no", "non", "not", "off", "out", "penalize", "penalty", "refuse"),
        *("reject", "skip", "without"),
    }
)
_POSITIVE: Final = frozenset(
    {
        *("dedicated", "favor", "favour", "for", "must", "need", "needs", "on", "only", "prefer"),
        *("require", "requires", "use", "want", "wants", "with"),
    }
)
_UNCLEAR: Final = frozenset({"missing", "other", "others", "unknown", "unlabeled", "unlabelled"})
_FIRST_LAST: Final = {"first": 1, "last": -1}
_PREFIXES: Final = ("un", "non", "in", "im")
_LONG_ENOUGH: Final = 4  # letters that two words share to be one


class _Test(NamedTuple):
    """A question for one thing, such as a label: what it is about, and whether it asks for it."""

    words: frozenset[str]
    asks: bool  # whether it is true of what has it
    node: ast.Node


def name_findings(part: Part) -> Iterator[Finding]:
    """Yield that a part does the opposite of what its name says."""
    name = part.name.removeprefix("match condition ").strip("`")
    if part.is_condition or isinstance(part.rule, FilterRule):
        yield from _turned_round(part, name)
        yield from _at_another_time(part, name)
    if isinstance(part.rule, FilterRule):
        yield from _open_to_others(part, part.rule)
        yield from _one_too_many(part, name)
        yield from _sent_elsewhere(part, name)
        yield from _no_preference(part, name)
    if isinstance(part.rule, ScoreRule):
        yield from _preferred(part, name)
        yield from _no_requirement(part, name)


def alternative_findings(policy: CompiledPolicy) -> Iterator[Finding]:
    """Yield that terms of a node affinity are alternatives, where the rule's name says `and`."""
    if policy.places is None:
        return
    written: Any = policy.places.document.value
    for index, rule in enumerate(written["spec"].get("filters") or ()):
        name = str(rule.get("name") or "")
        if named_plugin(rule) != "NodeAffinity" or "and" not in _words(name):
            continue
        path: Sequence[str] = ("args", "addedAffinity", _REQUIRED, "nodeSelectorTerms")
        terms: Any = rule
        for key in path:
            terms = (terms or {}).get(key)
        if isinstance(terms, list) and len(terms) > 1:
            message = "terms are alternatives: a node needs one of them"
            hint = "for all of them write their `matchExpressions` into one term"
            at = ("spec", "filters", index)
            yield Finding(policy.places.part_at(at), message, hint, path=(*at, *path, 1))


def strategy_findings(policy: CompiledPolicy) -> Iterator[Finding]:
    """Yield that a score of NodeResourcesFit does the opposite of what its name says."""
    if policy.places is None:
        return
    written: Any = policy.places.document.value
    for index, rule in enumerate(written["spec"].get("scores") or ()):
        if named_plugin(rule) != "NodeResourcesFit":
            continue
        said = fullness_in(str(rule.get("name") or ""))
        strategy: Any = (rule.get("args") or {}).get("scoringStrategy") or {}
        kind = strategy.get("type", "LeastAllocated")
        at: Sequence[str | int] = ("spec", "scores", index, "args", "scoringStrategy")
        done, meant = _FILLS.get(kind, 0), _FILLING.get(said, "")
        hint = f"write `type: {meant}`"
        if kind == "RequestedToCapacityRatio":
            shape = (strategy.get("requestedToCapacityRatio") or {}).get("shape") or [{}]
            ends = sorted((each.get("utilization", 0), each.get("score", 0)) for each in shape)
            done = (ends[-1][1] > ends[0][1]) - (ends[-1][1] < ends[0][1])
            hint = f"let the scores of `shape` {'rise' if said > 0 else 'fall'}"
            at = (*at, "requestedToCapacityRatio")
        if said * done < 0:
            said_of, done_of = ("full", "emptiest") if said > 0 else ("empty", "fullest")
            message = f"by its name it prefers {said_of} nodes, yet it prefers the {done_of}"
            part = policy.places.part_at(("spec", "scores", index))
            yield Finding(part, message, hint, path=(*at,) if "args" in rule else (*at[:3],))


_FILLS: Final = {"LeastAllocated": -1, "MostAllocated": 1}
_FILLING: Final = {number: kind for kind, number in _FILLS.items()}
_REQUIRED: Final = "requiredDuringSchedulingIgnoredDuringExecution"


def _turned_round(part: Part, name: str) -> Iterator[Finding]:
    for test in _tests(part.program.root):
        said = _said(name, test.words)
        if not part.is_condition and "node" not in _roots(test.node):
            continue  # of a filter for some pods
        if not said or said == (1 if test.asks else -1):
            continue
        whole = ast.replaced(part.program.root, test.node, _opposite(test.node))
        if part.is_condition:
            message = "by its name it leaves such pods out, yet the policy applies to them alone"
            if said > 0:
                message = "by its name it is for such pods, yet the policy applies to the others"
        else:
            message = "by its name it rejects such nodes, yet it is true for them: it keeps them"
            if said > 0:
                message = (
                    "by its name it keeps such nodes, yet it is true for the others: it keeps those"
                )
        yield Finding(part.name, message, f"write `{unparse(whole)}`", test.node.offset)
        return


def _at_another_time(part: Part, name: str) -> Iterator[Finding]:
    """Yield that a condition of the time alone is true at other times than its name says."""
    words = _words(name)
    if part.program.references != {("now",)} or not words.isdisjoint(_NEGATIVE | {"outside"}):
        return
    root = part.program.root
    true_hours = {hour for hour in range(7 * 24) if _is_true_at(root, hour)}
    if not words.isdisjoint({"night", "nights", "nightly"}):
        if _NOON in true_hours and _NIGHT not in true_hours:
            message = "by its name it is true at night, yet it is true at noon alone"
            yield Finding(part.name, message, f"write `{unparse(_opposite(root))}`", root.offset)
        return
    for names, meant, numbers in _DAYS:
        if words & names and {hour // 24 for hour in true_hours} != meant:
            message = f"by its name it is true on {min(words & names)}, and it is on other days"
            hint = f"write `now.getDayOfWeek() in {numbers}`"
            yield Finding(part.name, message, hint, root.offset)


def _is_true_at(root: ast.Node, hour: int) -> bool:
    """Return whether a condition is true so many hours after the beginning of a week, in UTC."""
    now = Timestamp((_MONDAY + hour * 3600) * NANOSECONDS_PER_SECOND)
    try:
        return compile_node(root, _ENVIRONMENT)(new_frame({"now": now})) is True
    except CelError:
        return False


_ENVIRONMENT: Final = environment(ExpressionScope.RULES)
_MONDAY: Final = 1_767_571_200  # 2026-01-05, in seconds
_NOON, _NIGHT = 12, 2
_DAYS: Final = (
    (frozenset({"weekend", "weekends"}), {5, 6}, [0, 6]),
    (frozenset({"weekday", "weekdays", "workday", "workdays"}), {0, 1, 2, 3, 4}, [1, 2, 3, 4, 5]),
)
"""Words for days, the days from Monday on, and what `getDayOfWeek` gives for them."""


def _sent_elsewhere(part: Part, name: str) -> Iterator[Finding]:
    """Yield that a filter sends other pods to certain nodes than those of its name."""
    root = part.program.root
    words = _words(name)
    against = [each for each in _WORD.findall(name) if each.lower() in _NEGATIVE]
    if not isinstance(root, ast.Or) or words & _EXEMPT or len(against) > 1:
        return
    tests = [found for each in root.operands if (found := _test(each))]
    named = [found for found in tests if any(_is_among(word, found.words) for word in words)]
    of_pods = [found for found in named if "node" not in _roots(found.node)]
    of_nodes = [found for found in named if "node" in _roots(found.node)]
    if len(root.operands) != len(named) or len(of_pods) != 1 or len(of_nodes) != 1:
        return
    pod, node = of_pods[0], of_nodes[0]
    is_only = "only" in words
    if against:
        if (pod.asks, node.asks) == (False, True) and not is_only:
            turned = ast.Or((pod.node, _opposite(node.node)), offset=0)
            message = "by its name it keeps such pods off such nodes, yet it sends them there"
            yield Finding(part.name, message, f"write `{unparse(turned)}`", root.offset)
        return
    if (pod.asks, node.asks) == ((True, True) if not is_only else (False, False)):
        turned = ast.Or((_opposite(pod.node), node.node), offset=0)
        message = "by its name it sends such pods to such nodes, yet it sends all others there"
        if is_only:
            message = "by its name only such pods may go there, yet only they may not"
        yield Finding(part.name, message, f"write `{unparse(turned)}`", root.offset)


_EXEMPT: Final = frozenset(
    {"allow", "anywhere", "else", "everywhere", "exempt", "free", "or", "others", "unless"}
)


def _roots(node: ast.Node) -> set[str]:
    return {each.name for each, _ in ast.walk(node) if isinstance(each, ast.Variable)}


def _open_to_others(part: Part, rule: FilterRule) -> Iterator[Finding]:
    """Yield that a filter for certain nodes keeps those that have nothing of the kind."""
    for test in _tests(part.program.root):
        if _STRICT.isdisjoint(_words(part.name) - test.words):
            continue
        match test.node:
            case ast.Quantifier(how_many=ast.HowMany.ALL) as node if test.asks:
                some = replace(node, how_many=ast.HowMany.SOME)
                message = "`all` is true of a node without any: it keeps those, too"
                yield Finding(part.name, message, f"write `{unparse(some)}`", node.offset)
                return
            case ast.Binary(left=ast.Index() | ast.Select() as read) if (
                rule.on_error is OnFilterError.IGNORE_RULE
                and path_of(read, {})[:-1] == ("node", "labels")
                and test.asks
            ):
                message = f"a node without `{path_of(read, {})[-1]}` passes: reading it is an error"
                hint = "drop `onError`, which lets it pass"
                yield Finding(part.name, message, hint, test.node.offset)
                return


_STRICT: Final = frozenset(
    {"dedicated", "must", "need", "needs", "only", "require", "required", "requires"}
)


def _one_too_many(part: Part, name: str) -> Iterator[Finding]:
    """Yield that a filter lets as many pods be there already as its name allows in all."""
    numbers = {_NUMBERS[word] for word in _words(name) if word in _NUMBERS}
    numbers |= {int(word) for word in _words(name) if word.isdigit()}
    for node, _ in ast.walk(part.program.root):
        match node:
            case ast.Binary(operator="<=", left=of, right=ast.Literal(value=int() as most)) if (
                most in numbers and path_of(of, {}) in _COUNTS
            ):
                message = (
                    f"the pod itself is not counted: with it a node with {most} has {most + 1}"
                )
                less = unparse(replace(node, operator="<"))
                yield Finding(part.name, message, f"write `{less}`", node.offset)


_NUMBERS: Final = {
    **dict.fromkeys(("one", "once", "single"), 1),
    **{word: number for number, word in enumerate(("two", "three", "four", "five"), 2)},
}
_COUNTS: Final = frozenset(
    {("node", "podCount"), ("node", "podsOfOwner"), ("node", "podsOfOwnerInZone")}
)


def _no_preference(part: Part, name: str) -> Iterator[Finding]:
    """Yield that a filter is called a preference."""
    if not _words(name).isdisjoint({"favor", "favour", "prefer", "preferably", "preferred"}):
        root = part.program.root
        message = "by its name it prefers nodes, yet a filter rejects all others"
        hint = f"for a preference write below `scores`: `{unparse(root)} ? 1 : 0`"
        if isinstance(root, ast.Or | ast.Conditional):
            hint = f"for a preference write below `scores`: `({unparse(root)}) ? 1 : 0`"
        yield Finding(part.name, message, hint, root.offset)


def _no_requirement(part: Part, name: str) -> Iterator[Finding]:
    """Yield that a score is called a requirement."""
    if not _words(name).isdisjoint({"exclude", "forbid", "must", "never", "only", "require"}):
        message = "by its name it rejects nodes, yet a score only ranks them"
        yield Finding(part.name, message, "write it below `filters`", part.program.root.offset)


def _preferred(part: Part, name: str) -> Iterator[Finding]:
    """Yield that a score gives less to what its name prefers, or more to what it avoids."""
    root = part.program.root
    sign = 1
    while isinstance(root, ast.Negate):
        sign, root = -sign, root.operand
    if not isinstance(root, ast.Conditional):
        return
    then, otherwise = _number(root.then), _number(root.otherwise)
    if then is None or otherwise is None or then == otherwise:
        return
    for test in _tests(root.test):
        said = _said(name, test.words)
        done = sign * (1 if then > otherwise else -1) * (1 if test.asks else -1)
        if said and said != done:
            swapped = replace(root, then=root.otherwise, otherwise=root.then)
            whole = unparse(ast.replaced(part.program.root, root, swapped))
            what = ("prefers", "less") if said > 0 else ("avoids", "more")
            message = f"by its name it {what[0]} such nodes, yet these get {what[1]} points"
            yield Finding(part.name, message, f"write `{whole}`", root.offset)
            return


def _number(node: ast.Node) -> float | None:
    match node:
        case ast.Negate(operand=operand) if (number := _number(operand)) is not None:
            return -number
        case ast.Literal(value=int() | float() as number):
            return float(number)
    return None


def _tests(node: ast.Node) -> Iterator[_Test]:
    """Yield the questions of a condition that all must be answered with yes."""
    if isinstance(node, ast.And):
        for each in node.operands:
            yield from _tests(each)
    elif found := _test(node):
        yield found
        yield from _of_the_other(found)


def _test(node: ast.Node) -> _Test | None:
    match node:
        case ast.Select(operand=ast.Variable(name="variables"), field=name):
            return _Test(_words(name), asks=True, node=node)
        case ast.Not(operand=operand) if found := _test(operand):
            return found._replace(asks=not found.asks, node=node)
        case ast.Binary(operator="==" | "!=" as sign, left=of, right=ast.Literal(value=value)):
            path = path_of(of, {})
            if path[:2] not in _OF_WORDS or not isinstance(value, str | bool):
                return None
            is_no = str(value).lower() in {"", "false", "no"}
            words = _words(path[-1] if len(path) > 2 else "")  # noqa: PLR2004 - below the map
            words |= frozenset() if str(value).lower() in {"true", ""} else _words(str(value))
            return _Test(words, (sign == "==") is not is_no, node)
        case ast.Binary(operator="in", left=ast.Literal(value=str(key)), right=of):
            return _asked(node, of, [key])
        case ast.Binary(operator="in", left=of, right=ast.ListLiteral(elements=elements)):
            texts = [str(each.value) for each in elements if isinstance(each, ast.Literal)]
            return _asked(node, of, texts)
        case ast.Quantifier(range=of, predicate=predicate):
            below = [each for each, _ in ast.walk(predicate)]
            signs = {each.operator for each in below if isinstance(each, ast.Binary)}
            texts = [
                each.value
                for each in below
                if isinstance(each, ast.Literal) and isinstance(each.value, str)
            ]
            if texts and signs <= {"=="} and node.how_many is not ast.HowMany.ONE:
                return _asked(node, of, texts)
    return None


def _asked(node: ast.Node, of: ast.Node, texts: Iterable[str]) -> _Test | None:
    if path_of(of, {})[:2] not in _OF_WORDS:
        return None
    return _Test(frozenset[str]().union(*map(_words, texts)), asks=True, node=node)


_OF_WORDS: Final[frozenset[ReadPath]] = frozenset(
    {
        ("node", "labels"),
        ("node", "annotations"),
        ("node", "taints"),
        ("pod", "labels"),
        ("pod", "annotations"),
        ("pod", "namespace"),
        ("pod", "ownerKinds"),
        ("pod", "priorityClassName"),
        ("request", "userInfo"),
        ("namespaceObject", "metadata"),
    }
)


def _opposite(node: ast.Node) -> ast.Node:
    match node:
        case ast.Not(operand=operand):
            return operand
        case ast.Binary(operator="==" | "!=" as sign):
            return replace(node, operator="!=" if sign == "==" else "==")
    return ast.Not(node, offset=0)


def _said(name: str, topic: frozenset[str]) -> int:
    """Return 1 where a name is for what a test is about, -1 where it is against, else 0."""
    words = [word.lower() for word in _WORD.findall(name)]
    found = 0
    for word in words:
        stem = next(
            (word[len(each) :] for each in _PREFIXES if _is_among(word[len(each) :], topic)), ""
        )
        if stem:
            found = -1
        elif _is_among(word, topic):
            found = found or 1
    if not found or not _UNCLEAR.isdisjoint(words):
        return 0
    others = [word for word in words if not _is_among(word, topic)]
    signs = [-1 for word in others if word in _NEGATIVE]
    signs += [1 for word in others if word in _POSITIVE]
    signs += [_FIRST_LAST[word] for word in others if word in _FIRST_LAST]
    return found * math.prod(signs) if len(signs) == 1 else 0


def _is_among(word: str, topic: frozenset[str]) -> bool:
    """Return whether a word is one of others, in whatever form."""
    if word in topic or word.removesuffix("s") in topic:
        return True
    return len(word) >= _LONG_ENOUGH and any(
        each.startswith(word[:-1]) or word.startswith(each)
        for each in topic
        if len(each) >= _LONG_ENOUGH
    )


def _words(text: str) -> frozenset[str]:
    return frozenset(word.lower() for word in _WORD.findall(text.rpartition("/")[2]))


def fullness_in(name: str) -> int:
    """Return 1 for the name of a score that prefers full nodes, -1 for empty ones, else 0."""
    words = [word.lower() for word in _WORD.findall(name)]
    goals = [_FULLNESS[word] for word in words if word in _FULLNESS]
    degrees = [_DEGREES[word] for word in words if word in _DEGREES]
    if "pods" in words and degrees and not goals:
        goals = [1]  # such as `fewest-pods`
    is_clear = len(set(goals)) == 1 and len(degrees) <= 1 and _TURNING.isdisjoint(words)
    if not is_clear or (not degrees and not _OF_DEGREES.isdisjoint(words)):
        return 0
    return math.prod((goals[0], *degrees))


def size_in(name: str) -> int:
    """Return 1 for the name of a score that prefers large nodes, -1 for small ones, else 0."""
    return _goal(name, _SIZES)


def age_in(name: str) -> int:
    """Return 1 for the name of a score that prefers old nodes, -1 for new ones, else 0."""
    return _goal(name, _AGES)


def _goal(name: str, goals: Mapping[str, int]) -> int:
    words = [word.lower() for word in _WORD.findall(name)]
    found = [goals[word] for word in words if word in goals]
    is_clear = len(found) == 1 and _TURNING.isdisjoint({*words} - {"nodes"})
    return found[0] if is_clear else 0


_SIZES: Final = {
    **dict.fromkeys(("big", "biggest", "bigger", "large", "larger", "largest"), 1),
    **dict.fromkeys(("small", "smaller", "smallest"), -1),
}
_AGES: Final = {
    **dict.fromkeys(("old", "older", "oldest"), 1),
    **dict.fromkeys(("fresh", "new", "newer", "newest", "young", "youngest"), -1),
}
_OF_DEGREES: Final = frozenset({"allocated", "busy", "loaded", "requested", "used", "utilized"})
_FULLNESS: Final = {
    **dict.fromkeys(("binpack", "binpacking", "fill", "full", "fullest"), 1),
    **dict.fromkeys(("pack", "packed", "packing", *_OF_DEGREES), 1),
    **dict.fromkeys(("empty", "emptiest", "free", "spread", "spreading"), -1),
}
_DEGREES: Final = {
    **dict.fromkeys(("fewer", "fewest", "least", "less", "lowest"), -1),
    **dict.fromkeys(("highest", "more", "most"), 1),
}
_TURNING: Final = frozenset(
    {"against", "anti", "avoid", "drain", "keep", "last", "leave", "no", "nodes", "not", "up"}
)
"""Words of names such as `keep-free` or `empty-last`, which tell of the other nodes."""


# What a name measures.


_TOPICS: Final[Mapping[str, frozenset[str]]] = {
    "cpu": frozenset({"cores", "cpu", "cpus"}),
    "memory": frozenset({"mem", "memory", "ram"}),
}
_SUMS: Final[Mapping[str, frozenset[str]]] = {
    "limits": frozenset({"limits"}),
    "requested": frozenset({"requested", "requests"}),
}
_SCOPES: Final[Mapping[str, frozenset[str]]] = {
    "podsOfOwner": frozenset({"node", "host"}),
    "podsOfOwnerInZone": frozenset({"zone", "zones"}),
}
_READ: Final = frozenset({"limits", "requested", "usage"})
_FREE: Final = frozenset({"available", "free", "headroom", "left", "spare", "unused"})


def measure_findings(policy: CompiledPolicy, part: Part) -> Iterator[Finding]:
    """Yield that a rule measures something else than its name says."""
    if part.rule is None:
        return
    words = _words(part.name)
    read = {path[1:] for path in references_of(policy, part.program) if path[0] == "node"}
    fields = {step for path in read for step in path}
    for topics, alike in ((_TOPICS, _TOPICS.keys()), (_SUMS, _READ), (_SCOPES, _SCOPES.keys())):
        meant = [field for field, names in topics.items() if words & names]
        if len(meant) == 1 and meant[0] not in fields and (found := sorted(fields & alike)):
            message = f"by its name it is about `{meant[0]}`, yet it reads `{found[0]}` instead"
            hint = f"read `{meant[0]}` in place of `{found[0]}`, or name it for what it reads"
            yield Finding(part.name, message, hint, part.program.root.offset)
            return
    offered = {path[1:] for path in read if path[:1] == ("allocatable",) and path[1:]}
    if words & _FREE and offered and {path[0] for path in read if path} == {"allocatable"}:
        resource = min(offered)[0]
        step = f".{resource}" if resource.isidentifier() else f"['{resource}']"
        message = "`node.allocatable` is all that pods may request, whether it is free or not"
        hint = f"what is free is `node.allocatable{step} - node.requested{step}`"
        yield Finding(part.name, message, hint, part.program.root.offset)
    if isinstance(part.rule, FilterRule):
        yield from _of_another_number(part)


def _of_another_number(part: Part) -> Iterator[Finding]:
    """Yield that a filter compares with another number than the only one in its name."""
    said = [int(number) for number in _ALONE.findall(part.name)]
    numbers = [
        each
        for each, _ in ast.walk(part.program.root)
        if isinstance(each, ast.Literal) and type(each.value) in {int, float, Duration}
    ]
    if len(said) != 1 or len(numbers) != 1 or said[0] < _FEWEST_SAID:
        return
    value = numbers[0].value
    number = value.nanos / 1e9 if isinstance(value, Duration) else float(str(value))
    scales = _OF_TIME if isinstance(value, Duration) else _OF_NUMBERS
    meant = {round(number / scale, 6) for scale in scales} | {round(100 * (1 - number), 6)}
    if not any(said[0] in {each, each + 1, each - 1} for each in meant):
        text = unparse(numbers[0])
        message = f"by its name it is {said[0]}, yet it compares with `{text}`"
        hint = "write the number that is meant in both places"
        yield Finding(part.name, message, hint, numbers[0].offset)


_ALONE: Final = re.compile(r"(?<![A-Za-z0-9.])[0-9]+(?![0-9.])")  # as in `max-50`, not `gen10`
_FEWEST_SAID: Final = 10  # less may be a generation or a tier
_OF_TIME: Final = (1, 60, 3600, 86_400, 7 * 86_400)
_OF_NUMBERS: Final = (
    *(1, 0.01, 0.001, 60, 3600, 86_400, 1000, 1e6, 1e9, 1e12),
    *(2.0**10, 2.0**20, 2.0**30, 2.0**40),
)


def _of_the_other(test: _Test) -> Iterator[_Test]:
    """Yield what a question for one of two usual values asks of the other one."""
    for pair in _PAIRS:
        for one, other in (pair, pair[::-1]):
            if one in test.words and other not in test.words:
                yield test._replace(words=frozenset({other}), asks=not test.asks)


_PAIRS: Final = (("amd", "arm"), ("linux", "windows"), ("spot", "demand"))
"""Words of the values of labels that most clusters have two of."""
