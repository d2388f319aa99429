"""Effects: what the rules of a policy come to, where they are tried.

On the built-in cluster only what is varied as far as real clusters go is judged: numbers, bools and
moments. Where an expression reads texts, such as labels, that cluster may lack what decides it, so
what holds for the labels of any cluster is found by `labels`. On a recording all rules are judged.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from typing import Final

import numpy as np
from numpy.typing import NDArray

from engine.cel import DOUBLE, CelError, CelProblemsError, CelType, Program, Reference, ast
from engine.cel.unparse import unparse
from engine.errors import counted
from engine.model.decision import PlacementRequest
from engine.plugins import FAULT, PASS, PLUGINS
from engine.policy import (
    SCHEDULER_FILTERS,
    CompiledPolicy,
    FilterRule,
    NodeExpression,
    RuleContext,
    ScoreRule,
)
from engine.policy.compile import SCORE, compile_expression
from engine.policy.environment import OWNER_FIELDS, ExpressionScope
from engine.policy.policy_set import Finding, condition_part, variable_part
from engine.policy.rules import (
    FilterEvaluator,
    FilterExpression,
    PluginFilter,
    ScoreEvaluator,
    ScoreExpression,
)
from engine.policy.schema import OnFilterError
from engine.policy_lint.names import age_in, fullness_in, size_in
from engine.policy_lint.reads import (
    ANY,
    EQUALITIES,
    MIRRORED,
    ORDERS,
    Reads,
    programs_of,
    references_of,
)
from engine.policy_lint.samples import (
    FAULTS,
    REASONS,
    TAINTS,
    Samples,
    have_numbers,
    have_resources,
    why_left_alone,
)
from engine.view import BoolColumn

_PLUGINS: Final = frozenset({"LimitAware", "LoadAware", "NodeResourcesFit", "TargetLoadPacking"})
"""Those whose answers rest on such alone."""

_VARIED: Final = frozenset(
    {
        *(("node", name) for name in ("allocatable", "requested", "limits", "usage")),
        *(("node", name) for name in ("creationTimestamp", "podCount", "ready", "unschedulable")),
        *(("node", name) for name in OWNER_FIELDS),
        *(("pod", name) for name in ("limits", "priority", "qosClass", "requests")),
        ("nodes",),
        ("now",),
    }
)
"""What the built-in cluster varies as far as real clusters do."""

_Values = NDArray[np.float64]


_TYPICAL_CORES: Final = (4, 32)  # of the nodes that parts of a score are compared on
_NEGLIGIBLE: Final = 0.02  # of what another part differs by
_SAME_ORDER: Final = 0.95  # the rank correlation of what ranks nodes alike
_FEWEST_RANKED: Final = 3  # nodes that an order is seen of
_AN_HOUR: Final = 3600.0  # seconds


_FIT: Final = "NodeResourcesFit"
_SCHEDULER: Final = [rule for rule in SCHEDULER_FILTERS if rule.name in {_FIT, "NodeUnschedulable"}]
_FAULTY: Final = f"node.conditions.exists(c, c.type in {list(FAULTS)} && c.status == 'True')"


class Trials:
    """The rules of a policy, evaluated on each node for each pod.

    Attributes:
        policy: the policy.
        samples: the cluster and its pods.
    """

    def __init__(self, policy: CompiledPolicy, samples: Samples) -> None:
        """Evaluate nothing yet."""
        self.policy = policy
        self.samples = samples
        (self._rows,) = samples.view.valid.nonzero()
        self._known: dict[int, list[_Values]] = {}

    def of(self, rule: FilterRule | ScoreRule) -> list[_Values]:
        """Return a number for each node, by pod: of a filter 1 where a node passes, else 0.

        It is not finite where the rule could not be evaluated.
        """
        if id(rule) not in self._known:
            requests = self.samples.in_time(self.samples.requests)
            self._known[id(rule)] = [self.values(rule.evaluator, each)[0] for each in requests]
        return self._known[id(rule)]

    def values(
        self, evaluator: FilterEvaluator | ScoreEvaluator, request: PlacementRequest
    ) -> tuple[_Values, str]:
        """Return a number for each node, and why the first such node has none."""
        context = self.policy.context(request, self.samples.view, self.samples.now)
        if isinstance(evaluator, PluginFilter | FilterExpression):
            codes = evaluator.filter(context).codes.take(self._rows)
            values = np.where(codes == FAULT, np.nan, codes == PASS)
        else:
            raw, faulty = evaluator.score(context, self._rows)
            values = np.asarray(raw, np.float64)
            values = values if faulty is None else np.where(faulty, np.nan, values)
        failed = self._rows[~np.isfinite(values)]
        error = evaluator.fault(context, int(failed[0])) if failed.size else ""
        return values, next(iter(context.errors), error)

    def left(self, filters: Iterable[FilterRule]) -> list[BoolColumn]:
        """Return which nodes all of some filters keep, by pod."""
        kept = [np.ones(self._rows.size, np.bool_) for _ in self.samples.requests]
        for rule in filters:
            pairs = zip(kept, self.of(rule), strict=True)
            kept = [nodes & passing(rule, values) for nodes, values in pairs]
        return kept

    @cached_property
    def takeable(self) -> list[BoolColumn]:
        """Which nodes the scheduler may take by itself, by pod."""
        sound = self.number(f"node.ready && !({_FAULTY}) ? 1 : 0") == 1
        return [
            sound & ~np.any([rule.rejects(context)[self._rows] for rule in _SCHEDULER], axis=0)
            for context in self._contexts
        ]

    @cached_property
    def with_room(self) -> list[BoolColumn]:
        """Which nodes have room, by pod."""
        (fit,) = (rule for rule in _SCHEDULER if rule.name == _FIT)
        return [~fit.rejects(context)[self._rows] for context in self._contexts]

    @property
    def _contexts(self) -> Iterator[RuleContext]:
        for request in self.samples.in_time(self.samples.requests):
            yield self.policy.context(request, self.samples.view, self.samples.now)

    def number(self, expression: str) -> _Values:
        """Return the number that an expression of the node alone has on each node."""
        program = compile_expression(expression, ExpressionScope.RULES, {})
        return self.values(ScoreExpression(program), self.samples.requests[0])[0]

    def name_of(self, index: int) -> str:
        """Return the name of a node by its place among the values."""
        return self.samples.view.names[int(self._rows[index])]


def passing(rule: FilterRule, values: _Values) -> BoolColumn:
    """Return which nodes a filter keeps, by its values."""
    ignores_errors = rule.on_error is OnFilterError.IGNORE_RULE
    kept: BoolColumn = (values == 1) | (np.isnan(values) & ignores_errors)
    return kept


def effect_findings(policy: CompiledPolicy, samples: Samples) -> Iterator[Finding]:
    """Yield a finding for each part of a policy that does nothing, or hardly what is meant."""
    if not samples.is_recorded:
        if not policy.rules and not policy.placement.hold_reasons:
            yield Finding("", "it has neither filters nor scores: it has no effect")
        for name, program in policy.conditions.items():
            for message in _condition_warnings(policy, samples, program):
                yield Finding(condition_part(name), message)
    if not samples.requests:
        yield from _applies_to_none(samples)
        return
    broken: set[str] = set()
    for name, program in policy.variables.items():
        if error := _failure_of_variable(policy, samples, program):
            broken.add(name)
            yield Finding(variable_part(name), f"always fails: {error}")
    trials = Trials(policy, samples)
    judged = [
        rule
        for rule in policy.rules
        if (samples.is_recorded or _is_tried(policy, rule))
        and broken.isdisjoint(_variables_of(rule))
        and not _is_of_the_moment(policy, rule)
        and not _may_act_elsewhere(trials, rule)
    ]
    explained: set[str] = set()
    finders = (
        _useless,
        _unreachable,
        _inverted,
        _negligible,
        _repeated,
        _of_no_use_beside_others,
        _drowning,
    )
    for find in finders:
        found = [each for each in find(trials, judged) if each.part not in explained]
        explained |= {each.part for each in found}
        yield from found
    yield from _for_nobody(trials, explained)
    yield from _moves_nothing(trials)


def _is_of_the_moment(policy: CompiledPolicy, rule: FilterRule | ScoreRule) -> bool:
    """Return whether a rule does something else at another time of the day or year."""
    return isinstance(rule.evaluator, NodeExpression) and any(
        _asks_the_time(program.root) for program in programs_of(policy, rule.evaluator.program)
    )


def _asks_the_time(node: ast.Node) -> bool:
    """Return whether a part reads the moment, other than for the age of a node."""
    if isinstance(node, ast.Variable):
        return node.name == "now"
    if isinstance(node, ast.Binary) and any(
        isinstance(each, ast.Variable) and each.name == "node" for each, _ in ast.walk(node)
    ):
        return False
    return any(map(_asks_the_time, ast.children(node)))


def _may_act_elsewhere(trials: Trials, rule: FilterRule | ScoreRule) -> bool:
    """Return whether a rule may do something else in a cluster that has what this one lacks.

    That is so of one that tells pods apart by a number, or that treats all nodes alike here.
    """
    if trials.samples.is_recorded or not isinstance(rule.evaluator, NodeExpression):
        return False
    programs = programs_of(trials.policy, rule.evaluator.program)
    if have_numbers(program.root for program in programs) or not _reads_nodes(
        _reads_of(trials.policy, rule)
    ):
        return False
    if any(_tells_pods_apart(program.root) for program in programs):
        return True
    found = trials.of(rule)
    if not any(np.isfinite(values).any() for values in found):
        return False
    if isinstance(rule, ScoreRule):
        return all(map(_is_constant, found))
    kept = {bool(each) for values in found for each in np.unique(passing(rule, values))}
    return len(kept) == 1


def _tells_pods_apart(root: ast.Node) -> bool:
    """Return whether an expression compares a number of the pod alone with another than zero."""
    return any(
        isinstance(node, ast.Binary)
        and node.operator in EQUALITIES | ORDERS
        and not _reads_nodes(map(_path, (each for each, _ in ast.walk(node))))
        and not have_numbers([node])
        for node, _ in ast.walk(root)
    )


def _variables_of(rule: FilterRule | ScoreRule) -> Iterator[str]:
    if isinstance(rule.evaluator, NodeExpression):
        for path in rule.evaluator.program.references:
            if path[0] == "variables":
                yield from path[1:2]


def _reads_of(policy: CompiledPolicy, rule: FilterRule | ScoreRule) -> frozenset[Reference]:
    """Return what a rule reads; of a plugin everything."""
    if not isinstance(rule.evaluator, NodeExpression):
        return frozenset({("node",), ("pod",)})
    return references_of(policy, rule.evaluator.program)


def _is_tried(policy: CompiledPolicy, rule: FilterRule | ScoreRule) -> bool:
    """Return whether all that a rule rests on is varied in the built-in cluster."""
    if not isinstance(rule.evaluator, NodeExpression):
        return any(PLUGINS[name] is rule.evaluator.entry for name in _PLUGINS)
    references = set(references_of(policy, rule.evaluator.program))
    if not _reads_nodes(references):
        return True
    if not have_resources(programs_of(policy, rule.evaluator.program)):
        return False
    for path, known in _KNOWN_STATES.items():
        words = {
            each.literal.value
            for program in programs_of(policy, rule.evaluator.program)
            for each in Reads(program.root).comparisons
            if each.path == path
        }
        if words and words <= known:
            references = {each for each in references if each[:2] != path[:2]}
    return _are_varied(references)


_KNOWN_STATES: Final = {
    ("node", "conditions", ANY, "type"): frozenset({"Ready", *FAULTS}),
    ("node", "conditions", ANY, "reason"): frozenset(REASONS.values()),
    ("node", "taints", ANY, "key"): frozenset(key for keys in TAINTS.values() for key in keys),
}
"""The states of nodes that are varied, by what names one."""


def _is_varied(policy: CompiledPolicy, program: Program) -> bool:
    """Return whether all that an expression rests on is varied in the built-in cluster."""
    programs = programs_of(policy, program)
    return _are_varied(references_of(policy, program)) and have_resources(programs)


def _are_varied(references: Iterable[Reference]) -> bool:
    return all(path[:2] in _VARIED or path[:1] in _VARIED for path in references)


# Pods.


def _applies_to_none(samples: Samples) -> Iterator[Finding]:
    at = ("spec", "match")
    if samples.left_alone:
        why = " and ".join(dict.fromkeys(map(why_left_alone, samples.left_alone)))
        message = f"it applies to no pod that is placed: {why}"
        yield Finding("", message, "select other pods, or drop it", path=at)
    elif samples.is_recorded and samples.all_pods:
        count = counted(samples.all_pods, "pod")
        yield Finding("", f"it applies to none of the {count} of the {samples.where}", path=at)


def _condition_warnings(
    policy: CompiledPolicy, samples: Samples, program: Program
) -> Iterator[str]:
    is_of_text = samples.has_all_texts and _is_of_one_text(program)
    if not samples.selected or not (_is_varied(policy, program) or is_of_text):
        return
    values, error = _values_of_pods(policy, samples, program, samples.selected)
    is_of_hours = program.references == {("now",)} and _is_of_hours(program)
    if is_of_hours:
        for moment in samples.moments:
            at = replace(samples, now=moment)
            values += _values_of_pods(policy, at, program, samples.selected[:1])[0]
    if not values:
        yield f"always fails: {error}"
    elif not is_of_hours and (("now",) in program.references or not have_numbers([program.root])):
        return
    elif len(values) >= len(samples.selected) and all(value is True for value in values):
        yield "true for all pods: it has no effect"
    elif True not in values:
        if policy.namespace:
            where = f"of namespace `{policy.namespace}`, where the policy is"
            yield f"true for no pod {where}: it applies to none"
        else:
            yield "true for no pod: the policy applies to none"


def _is_of_hours(program: Program) -> bool:
    """Return whether of the moment only such is read as the moments of samples have in full."""
    nodes = [node for node, _ in ast.walk(program.root)]
    now = [each for each in nodes if isinstance(each, ast.Variable) and each.name == "now"]
    read = [
        each.function
        for each in nodes
        if isinstance(each, ast.Call) and any(each.args[0] is moment for moment in now)
    ]
    return len(read) == len(now) and any(set(read) <= each for each in _OF_MOMENTS)


_OF_MOMENTS: Final = (frozenset({"getDayOfWeek", "getHours"}), frozenset({"getMonth"}))
"""What the moments of samples have in all values, and all combinations."""


def _is_of_one_text(program: Program) -> bool:
    """Return whether a condition compares one text of a pod with constants, and does no more."""
    reads = Reads(program.root)
    compared = {each.path for each in reads.comparisons} - _PARTIAL
    calls = {node.function for node, _ in ast.walk(program.root) if isinstance(node, ast.Call)}
    is_text = all(isinstance(each.literal.value, str) for each in reads.comparisons)
    return (
        len(compared) == 1
        and len(program.references) == 1
        and is_text
        and not calls
        and min(compared)[:2] in _TEXTS
    )


_PARTIAL: Final = frozenset({("pod", "labels", ANY), ("pod", "annotations", ANY)})
_TEXTS: Final = frozenset(
    {
        *(("pod", name) for name in ("labels", "namespace", "ownerKinds")),
        *(("pod", name) for name in ("priorityClassName", "schedulerName")),
        ("namespaceObject", "metadata"),
    }
)
"""What pods have in all values that it is compared with."""


def _failure_of_variable(policy: CompiledPolicy, samples: Samples, program: Program) -> str:
    """Return why a variable cannot be evaluated for any pod, "" if it can be for some."""
    values, error = _values_of_pods(policy, samples, program, samples.requests)
    return "" if values or not _is_varied(policy, program) else error


def _values_of_pods(
    policy: CompiledPolicy,
    samples: Samples,
    program: Program,
    requests: Iterable[PlacementRequest],
) -> tuple[list[object], str]:
    """Return the values of an expression over pods, and why it has none for the last without."""
    values: list[object] = []
    error = ""
    for request in samples.in_time(requests):
        context = policy.context(request, samples.view, samples.now)
        try:
            values.append(program.evaluate(context.activation(program), context.budget))
        except CelError as failed:
            error = str(failed)
    return values, error


# Rules by themselves.


_Rules = Sequence[FilterRule | ScoreRule]


def _useless(trials: Trials, judged: _Rules) -> Iterator[Finding]:
    """Yield the rules that always fail, or treat all nodes alike."""
    nodes, no_effect = trials.samples.nodes, trials.samples.no_effect
    for rule in judged:
        found, reads = trials.of(rule), _reads_of(trials.policy, rule)
        if not any(np.isfinite(values).any() for values in found):
            if (
                trials.samples.is_recorded
                or not isinstance(rule.evaluator, NodeExpression)
                or _is_varied(trials.policy, rule.evaluator.program)
            ):
                _, error = trials.values(rule.evaluator, trials.samples.requests[0])
                yield Finding(rule.name, f"always fails: {error}")
        elif not _reads_nodes(reads):
            yield _reads_no_node(rule, reads)
        elif isinstance(rule, ScoreRule):
            if all(map(_is_constant, found)):
                numbers = {values[np.isfinite(values)][0] for values in found if values.size}
                is_number = len(numbers) == 1 and isinstance(rule.evaluator, NodeExpression)
                points = f"{numbers.pop():g}" if is_number else "for each pod"
                message = f"it gives all {nodes} the same, {points}: {no_effect}"
                yield Finding(rule.name, message)
        elif all(bool(passing(rule, values).all()) for values in found):
            yield Finding(rule.name, f"it keeps all {nodes}, for each pod: {no_effect}")
        elif not any(bool(passing(rule, values).any()) for values in found):
            yield Finding(rule.name, f"it rejects all {nodes}, for each pod")


def _reads_nodes(references: Iterable[Reference]) -> bool:
    return any(path[:1] == ("node",) for path in references)


def _reads_no_node(rule: FilterRule | ScoreRule, references: Collection[Reference]) -> Finding:
    if isinstance(rule, ScoreRule):
        message = "it reads nothing of the node, so all nodes get the same: it has no effect"
        return Finding(rule.name, message, "read a value of `node`, or drop it")
    message = "it reads nothing of the node: for a pod it keeps all nodes, or none"
    hint = "write what chooses pods in `match.matchConditions`" if references else "drop it"
    return Finding(rule.name, message, hint)


def _is_constant(values: _Values) -> bool:
    """Return whether all nodes that could be evaluated have the same value."""
    sound = values[np.isfinite(values)]
    return sound.size == 0 or bool((sound == sound[0]).all())


def _unreachable(trials: Trials, judged: _Rules) -> Iterator[Finding]:
    """Yield the filters that keep what the scheduler never takes, or reject nothing else."""
    # Of pods that few nodes of the built-in cluster could take, others may be all that it has not.
    least = 0.0 if trials.samples.is_recorded else _FEWEST_TAKEABLE
    pods = [index for index, nodes in enumerate(trials.takeable) if nodes.mean() > least]
    for rule in judged:
        if not isinstance(rule, FilterRule) or not pods:
            continue
        reads = {each[:2] for each in _reads_of(trials.policy, rule)}
        what = next((what for what, paths in _HEEDED.items() if reads and reads <= paths), "")
        kept = [passing(rule, trials.of(rule)[index]) for index in pods]
        if not any((nodes & trials.takeable[i]).any() for i, nodes in zip(pods, kept, strict=True)):
            message = (
                f"it keeps only nodes of the {trials.samples.where} that take no pods:"
                " they are cordoned, not ready or full"
            )
            hint = "drop it: the scheduler sees to that itself" if what else _negated(rule)
            yield Finding(rule.name, message, hint)
        elif what:
            left = trials.with_room if what == _WITHOUT_ROOM else trials.takeable
            every = [passing(rule, values) for values in trials.of(rule)]
            if all((nodes | ~able).all() for nodes, able in zip(every, left, strict=True)):
                message = f"it rejects only nodes {what}, which the scheduler leaves out itself"
                yield Finding(rule.name, message, "drop it")


def _negated(rule: FilterRule) -> str:
    """Return the hint to write the opposite of a filter, "" for a plugin."""
    if not isinstance(rule.evaluator, NodeExpression):
        return ""
    match rule.evaluator.program.root:
        case ast.Not(operand=opposite):
            pass
        case ast.Binary(operator=sign) as root if sign in _OPPOSITES:
            opposite = replace(root, operator=_OPPOSITES[sign])
        case root:
            opposite = ast.Not(root, offset=0)
    return f"for the others write `{unparse(opposite)}`"


_OPPOSITES: Final = {"<": ">=", "<=": ">", ">": "<=", ">=": "<", "==": "!=", "!=": "=="}
_FEWEST_TAKEABLE: Final = 0.2  # of all nodes
_WITHOUT_ROOM: Final = "without room"
_HEEDED: Final = {
    _WITHOUT_ROOM: frozenset(
        {("node", "allocatable"), ("node", "requested"), ("pod", "requests"), ("node", "podCount")}
    ),
    "with such a taint": frozenset({("node", "taints")}),
}
"""Nodes that the scheduler leaves out itself, with what tells them."""


_USAGE: Final = ("node", "usage")
_REQUESTED: Final = ("node", "requested")
_POD_COUNT: Final = ("node", "podCount")
_LOADS: Final = {
    _USAGE: "in use",
    ("node", "limits"): "promised by limits",
}
_SHARES: Final = ("cpu", "memory")
_AGE: Final = "double(int(now) - int(node.creationTimestamp))"


def _inverted(trials: Trials, judged: _Rules) -> Iterator[Finding]:
    """Yield the rules that choose the nodes that are in heaviest use, or that just came."""
    for rule in judged:
        if not isinstance(rule.evaluator, NodeExpression):
            continue
        references = _reads_of(trials.policy, rule)
        yield from _towards_its_own(trials, rule, references)
        for path, what in _LOADS.items():
            if any(each[:2] == path for each in references):
                yield from _towards(trials, rule, ".".join(path), what)
                break
        else:
            if isinstance(rule, ScoreRule):
                yield from _against_its_name(trials, rule, references)
        if isinstance(rule, ScoreRule) and any(each[:2] == _USAGE for each in references):
            yield from _best_without_report(trials, rule)
        if isinstance(rule, FilterRule) and ("node", "creationTimestamp") in references:
            ages = trials.number(_AGE)
            if all(_parts(values, -ages) for values in trials.of(rule)) and all(
                ages[values == 1].max() < _AN_HOUR for values in trials.of(rule)
            ):
                message = "it keeps only nodes younger than an hour, and rejects all others"
                yield Finding(rule.name, message, _turned(rule, ("node",)))


def _towards_its_own(
    trials: Trials, rule: FilterRule | ScoreRule, references: Collection[Reference]
) -> Iterator[Finding]:
    """Yield that a rule chooses the nodes with most pods of the same owner, or needs one there."""
    for field in sorted(field for field in OWNER_FIELDS if ("node", field) in references):
        program = compile_expression(f"node.{field}", ExpressionScope.RULES, {})
        requests, values = trials.samples.in_time(trials.samples.requests), trials.of(rule)
        pods = [trials.values(ScoreExpression(program), each)[0] for each in requests]
        replicas = [index for index, each in enumerate(pods) if each.any()]
        if isinstance(rule, FilterRule):
            first = [index for index, each in enumerate(pods) if not each.any()]
            kept = [bool(passing(rule, each).any()) for each in values]
            if first and not any(kept[index] for index in first) and any(kept):
                message = "it rejects all nodes for the first pod of an owner"
                yield Finding(rule.name, message, _negated(rule))
                return
        elif replicas and all(_prefers(values[index], pods[index]) for index in replicas):
            text = unparse(rule.evaluator.program.root)  # type: ignore[union-attr]
            message = "it prefers nodes with pods of the same owner: replicas fail together"
            yield Finding(rule.name, message, f"to keep them apart write `-({text})`")
            return


def _towards(
    trials: Trials, rule: FilterRule | ScoreRule, path: str, what: str
) -> Iterator[Finding]:
    """Yield that a rule chooses the nodes with the greatest shares."""
    shares = _shares_of(trials, path)
    alike = _parts if isinstance(rule, FilterRule) else _prefers
    for share, resource in zip(shares, (*_SHARES, "cpu"), strict=True):
        if not all(alike(values, share) for values in trials.of(rule)):
            continue
        if isinstance(rule, FilterRule) and any(map(_keeps_most, trials.of(rule))):
            continue
        most = int(np.nanargmax(share))
        percent = round(float(shares[_SHARES.index(resource)][most]) * 100)
        seen = f"`{trials.name_of(most)}`, with {percent} % of its {resource} {what}"
        where = trials.samples.where
        if isinstance(rule, ScoreRule):
            yield Finding(
                rule.name,
                f"it prefers the fullest node: in the {where} {seen}",
                f"for the node with the least write `{_emptiest_first(trials, rule, path)}`;"
                " to fill nodes up to a target use the plugin `TargetLoadPacking`",
            )
        else:
            yield Finding(
                rule.name,
                f"it keeps the fullest nodes alone: in the {where} such as {seen}",
                _turned(rule, tuple(path.split("."))),
            )
        return


def _shares_of(trials: Trials, path: str) -> tuple[_Values, _Values, _Values]:
    """Return the shares of what nodes offer, of cpu, of memory, and of both in the mean."""
    cpu, memory = (trials.number(f"{path}.{each} / node.allocatable.{each}") for each in _SHARES)
    return cpu, memory, (cpu + memory) / 2


def _against_its_name(
    trials: Trials, rule: ScoreRule, references: Collection[Reference]
) -> Iterator[Finding]:
    """Yield that a score prefers other nodes than its name says."""
    assert isinstance(rule.evaluator, NodeExpression)  # noqa: S101 - plugins are as they are named
    for named, measures, words in _named(trials, rule, references):
        for measure in measures:
            if all(_prefers(values, -named * measure) for values in trials.of(rule)):
                said, done = words if named > 0 else words[::-1]
                turned = unparse(_negative(rule.evaluator.program.root))
                best = trials.name_of(int(np.nanargmax(-named * measure)))
                yield Finding(
                    rule.name,
                    f"by its name it prefers {said} nodes, yet it prefers the {done} ones:"
                    f" in the {trials.samples.where} `{best}`",
                    f"for the others write `{turned}`, or name it for what it does",
                )
                return


def _named(
    trials: Trials, rule: ScoreRule, references: Collection[Reference]
) -> Iterator[tuple[int, Sequence[_Values], tuple[str, str]]]:
    """Yield what the name of a score prefers most (1) or least (-1), with words for both ends."""
    read = {each[:2] for each in references}
    if named := fullness_in(rule.name):
        shares = _shares_of(trials, ".".join(_REQUESTED)) if _REQUESTED in read else ()
        counts = (trials.number(".".join(_POD_COUNT)),) if _POD_COUNT in references else ()
        yield named, (*shares, *counts), ("full", "empty")
    if (named := age_in(rule.name)) and ("node", "creationTimestamp") in references:
        yield named, (trials.number(_AGE),), ("old", "new")
    if (named := size_in(rule.name)) and read == {_ALLOCATABLE}:
        yield named, [trials.number(f"node.allocatable.{each}") for each in _SHARES], _SIZES


_ALLOCATABLE: Final = ("node", "allocatable")
_SIZES: Final = ("large", "small")


def _best_without_report(trials: Trials, rule: ScoreRule) -> Iterator[Finding]:
    """Yield that nodes without a report of usage rank before all others."""
    root = rule.evaluator.program.root  # type: ignore[union-attr]
    if not isinstance(root, ast.Conditional):
        return
    reads = [_reads_usage(trials.policy, each) for each in (root.then, root.otherwise)]
    is_reported = trials.number("has(node.usage) ? 1 : 0") == 1
    if reads[0] == reads[1] or is_reported.all():
        return
    values = [each for each in trials.of(rule) if np.isfinite(each).all()]
    if values and all(
        each[~is_reported].min() >= each[is_reported].max() > each[is_reported].min()
        for each in values
    ):
        kind = rule.evaluator.program.result_type  # type: ignore[union-attr]
        worst = math.floor(min(each.min() for each in values))
        least = _literal(worst, kind)
        given = root.otherwise if reads[0] else root.then
        better = replace(root, otherwise=least) if reads[0] else replace(root, then=least)
        yield Finding(
            rule.name,
            f"no other node gets more than `{unparse(given)}`: those without a report of usage rank"
            " first",
            f"write `{unparse(better)}`",
        )


def _emptiest_first(trials: Trials, rule: ScoreRule, path: str) -> str:
    """Return a score turned around; a node without a report stays the worst."""
    assert isinstance(rule.evaluator, NodeExpression)  # noqa: S101 - plugins are not turned around
    root, kind = rule.evaluator.program.root, rule.evaluator.program.result_type
    turned = _negative(root)
    if path != ".".join(_USAGE):
        return unparse(turned)
    has_report = ast.Has(ast.Variable("node", offset=0), "usage", offset=0)
    is_reported = trials.number(f"{unparse(has_report)} ? 1 : 0") == 1
    values = [np.where(np.isfinite(each), each, -np.inf) for each in trials.of(rule)]
    least = -math.floor(max(each[is_reported].max() for each in values)) - 1
    worst = _literal(least, kind)
    if isinstance(root, ast.Conditional):
        branches = (root.then, root.otherwise)
        reads = [_reads_usage(trials.policy, each) for each in branches]
        if len(set(reads)) == len(branches):
            turns = zip(branches, reads, strict=True)
            then, otherwise = (_negative(each) if of else worst for each, of in turns)
            return unparse(replace(root, then=then, otherwise=otherwise))
    if any(np.isfinite(each[~is_reported]).any() for each in values):
        turned = ast.Conditional(has_report, turned, worst, offset=0)
    return unparse(turned)


def _negative(node: ast.Node) -> ast.Node:
    return node.operand if isinstance(node, ast.Negate) else ast.Negate(node, offset=0)


def _literal(number: int, kind: CelType) -> ast.Literal:
    return ast.Literal(float(number) if kind == DOUBLE else number, kind, offset=0)


def _reads_usage(policy: CompiledPolicy, part: ast.Node) -> bool:
    """Return whether a part of an expression reads the usage of the node, or a variable does."""
    paths = {_path(node) for node, _ in ast.walk(part)}
    for name in [path[1] for path in paths if path[:1] == ("variables",) and path[1:]]:
        paths |= references_of(policy, policy.variables[name])
    return any(path[:2] == _USAGE for path in paths)


def _keeps_most(values: _Values) -> bool:
    return bool((values == 1).sum() > (values == 0).sum())


def _prefers(values: _Values, measure: _Values) -> bool:
    """Return whether values are the greater, the greater a measure is."""
    finite = values[np.isfinite(values)]
    if np.unique(finite).size == len((False, True)):
        return _parts(np.where(np.isfinite(values), values == finite.max(), np.nan), measure)
    return _ranks(values, measure)


def _ranks(values: _Values, measure: _Values) -> bool:
    """Return whether values order the nodes as a measure does."""
    both = np.isfinite(values) & np.isfinite(measure)
    if not _told_apart(values[both], measure[both]):
        return False
    one, other = (
        np.unique(each[both], return_inverse=True)[1].astype(np.float64)
        for each in (values, measure)
    )
    return bool(np.corrcoef(one, other)[0, 1] > _SAME_ORDER)


def _told_apart(*measures: _Values) -> bool:
    """Return whether there are enough values to see an order in."""
    return min(np.unique(each).size for each in measures) >= _FEWEST_RANKED


def _parts(values: _Values, measure: _Values) -> bool:
    """Return whether exactly the nodes with the greatest measure pass."""
    known = np.isfinite(values) & np.isfinite(measure)
    kept, rejected = measure[known & (values == 1)], measure[known & (values == 0)]
    return bool(kept.size and rejected.size and kept.min() >= rejected.max())


def _turned(rule: FilterRule | ScoreRule, path: Reference) -> str:
    """Return the hint to turn around the comparison of a value."""
    assert isinstance(rule.evaluator, NodeExpression)  # noqa: S101 - plugins compare nothing
    for node, _ in ast.walk(rule.evaluator.program.root):
        if isinstance(node, ast.Binary) and node.operator in ORDERS:
            read = [".".join(_path(each)) for each, _ in ast.walk(node)]
            if any(each.startswith(".".join(path)) for each in read):
                turned = replace(node, operator=MIRRORED[node.operator])
                whole = ast.replaced(rule.evaluator.program.root, node, turned)
                return f"for the others write `{unparse(whole)}`"
    return ""


def _path(node: ast.Node) -> tuple[str, ...]:
    root, keys, _ = ast.field_path(node)
    return (root.name, *keys) if isinstance(root, ast.Variable) else ()


def _negligible(trials: Trials, judged: _Rules) -> Iterator[Finding]:
    """Yield the scores that add up parts of which one decides alone."""
    cores = trials.number("node.allocatable.cpu")
    low, high = _TYPICAL_CORES
    typical = np.ones(cores.size, np.bool_)
    if not trials.samples.is_recorded:
        typical = (cores >= low) & (cores <= high)
    types = {name: each.result_type for name, each in trials.policy.variables.items()}
    for rule in judged:
        if not isinstance(rule, ScoreRule) or not isinstance(rule.evaluator, NodeExpression):
            continue
        terms = [each for each in _terms(rule.evaluator.program.root) if not _is_weighted(each)]
        spans = {unparse(each): _span(trials, unparse(each), types, typical) for each in terms}
        spans = {text: span for text, span in spans.items() if span}
        if len(spans) > 1:
            most, least = max(spans, key=spans.__getitem__), min(spans, key=spans.__getitem__)
            if spans[least] < _NEGLIGIBLE * spans[most]:
                yield Finding(
                    rule.name,
                    f"`{least}` has no say: between nodes of the {trials.samples.where} it differs"
                    f" by {spans[least]:.3g}, `{most}` by {spans[most]:.3g}",
                    "make a score of each: its points go from 0 to 100, times its `weight`",
                )


def _terms(node: ast.Node) -> Iterator[ast.Node]:
    """Yield what is added up."""
    match node:
        case ast.Binary(operator="+" | "-", left=left, right=right):
            yield from _terms(left)
            yield from _terms(right)
        case ast.Negate(operand=operand):
            yield from _terms(operand)
        case _:
            yield node


def _is_weighted(node: ast.Node) -> bool:
    """Return whether a part of a sum has a factor, by which its author weighs it."""
    return (
        isinstance(node, ast.Binary)
        and node.operator == "*"
        and any(isinstance(each, ast.Literal) for each in (node.left, node.right))
    )


def _span(
    trials: Trials, expression: str, types: Mapping[str, CelType], nodes: BoolColumn
) -> float:
    """Return by how much a part of a score differs between nodes at most."""
    try:
        program = compile_expression(expression, ExpressionScope.RULES, types, SCORE)
    except CelProblemsError:
        return 0.0
    found = (
        trials.values(ScoreExpression(program), request)[0][nodes]
        for request in trials.samples.in_time(trials.samples.requests)
    )
    sound = (values[np.isfinite(values)] for values in found)
    return max((float(np.ptp(values)) for values in sound if values.size), default=0.0)


# Rules beside others.


def _drowning(trials: Trials, judged: _Rules) -> Iterator[Finding]:
    """Yield the scores whose weight leaves others no say, as they rank on many levels.

    One of a few levels leaves it to others which of the nodes of the best one is taken.
    """
    policy = trials.policy
    least = min(policy.scores, key=lambda rule: rule.weight, default=None)
    of_pods = max((weight for _, weight in policy.placement.scheduler_scores), default=0)
    for rule in judged:
        if not isinstance(rule, ScoreRule) or least is None:
            continue
        levels = max(np.unique(_normalized(each)).size for each in trials.of(rule))
        if levels < _MANY_LEVELS:
            continue
        if rule.weight > _DROWNS * least.weight:
            message = f"beside its weight of {rule.weight}, `{least.name}` has no say"
            hint = f"write `weight: {_DROWNS * least.weight}` at most"
            yield Finding(rule.name, message, hint)
        elif of_pods and rule.weight > _DROWNS * of_pods:
            message = (
                f"beside its weight of {rule.weight}, what pods ask for has no say: soft taints,"
                f" spread and preferences have a weight of {of_pods} at most"
            )
            hint = f"write `weight: {of_pods}`, and weights of that size for other scores"
            yield Finding(rule.name, message, hint)


_DROWNS: Final = 10  # times the weight of another
_MANY_LEVELS: Final = 10


def _repeated(trials: Trials, judged: _Rules) -> Iterator[Finding]:
    """Yield the scores that rank nodes as another one does, or the other way round."""
    scores = [rule for rule in judged if isinstance(rule, ScoreRule)]
    for index, rule in enumerate(scores):
        for other in scores[:index]:
            pairs = [
                (_normalized(one[nodes]), _normalized(two[nodes]))
                for one, two, nodes in zip(
                    trials.of(rule), trials.of(other), trials.takeable, strict=True
                )
            ]
            pairs = [(one, two) for one, two in pairs if one.any() or two.any()]
            if pairs and all(np.allclose(one, two, equal_nan=True) for one, two in pairs):
                where = trials.samples.where
                message = f"it gives each node of the {where} the same points as `{other.name}`"
                hint = f"drop it, and give `{other.name}` `weight: {rule.weight + other.weight}`"
                yield Finding(rule.name, message, hint)
                return
            ranked = [pair for pair in pairs if _told_apart(*pair)]
            if ranked and all(_ranks(one, -two) for one, two in ranked):
                message = (
                    f"it takes back what `{other.name}` gives: one prefers what the other avoids"
                )
                yield Finding(rule.name, message, "drop one of the two")
                return


def _normalized(values: _Values) -> _Values:
    """Return values from 0 to 1."""
    sound = values[np.isfinite(values)]
    if not sound.size or sound.min() == sound.max():
        return np.zeros(values.size)
    scaled: _Values = (values - sound.min()) / np.ptp(sound)
    return scaled


def _for_nobody(trials: Trials, explained: Collection[str]) -> Iterator[Finding]:
    """Yield the rules that have an effect for pods alone that are not placed."""
    samples = trials.samples
    if samples.is_recorded or not samples.left_alone:
        return
    for rule in trials.policy.rules:
        if not isinstance(rule.evaluator, NodeExpression) or rule.name in explained:
            continue
        if _is_of_the_moment(trials.policy, rule):
            continue
        if any(_has_effect(rule, values) for values in trials.of(rule)):
            continue
        for request in samples.in_time(samples.left_alone):
            if _has_effect(rule, trials.values(rule.evaluator, request)[0]):
                why = why_left_alone(request)
                message = f"it has an effect only for pods that are not placed: {why}"
                yield Finding(rule.name, message)
                break


def _has_effect(rule: FilterRule | ScoreRule, values: _Values) -> bool:
    if isinstance(rule, FilterRule):
        return not bool(passing(rule, values).all())
    return not _is_constant(values)


def _of_no_use_beside_others(trials: Trials, judged: _Rules) -> Iterator[Finding]:
    """Yield the rules that change nothing where the filters of the policy did their part."""
    policy, samples = trials.policy, trials.samples
    filters = [rule for rule in policy.filters if rule in judged]
    left = trials.left(filters)
    taken = [nodes & able for nodes, able in zip(left, trials.takeable, strict=True)]
    if len(filters) > 1 and samples.is_recorded and not any(nodes.any() for nodes in left):
        message = f"the filters together reject all {samples.nodes}, for each pod"
        yield Finding(filters[-1].name, f"{message}, though each keeps some")
        return
    for rule in filters:
        for other in filters:
            if other is not rule and _is_idle(trials, rule, other):
                yield Finding(
                    rule.name,
                    f"filter `{other.name}` rejects all that it rejects: {samples.no_effect}",
                    f"drop one of the two, `{rule.name}` or `{other.name}`",
                )
                return
    of_filters = [_reads_of(policy, each) for each in filters]
    for score in policy.scores:
        reads = _reads_of(policy, score)
        if score not in judged or not (
            samples.is_recorded or reads <= _OF_THE_SCHEDULER or any(map(reads.__le__, of_filters))
        ):
            continue
        pairs = list(zip(trials.of(score), taken, strict=True))
        if any(nodes.sum() > 1 for _, nodes in pairs) and all(
            _is_constant(values[nodes]) for values, nodes in pairs
        ):
            message = f"all nodes of the {samples.where} that the filters and the scheduler leave"
            yield Finding(score.name, f"{message} get the same: {samples.no_effect}")


_OF_THE_SCHEDULER: Final = frozenset({("node", "ready"), ("node", "unschedulable")})


def _is_idle(trials: Trials, rule: FilterRule, other: FilterRule) -> bool:
    """Return whether another filter that reads as much rejects more than one, and all of that."""
    if not _reads_of(trials.policy, rule) <= _reads_of(trials.policy, other):
        return False
    pairs = [
        (passing(rule, one), passing(other, two))
        for one, two in zip(trials.of(rule), trials.of(other), strict=True)
    ]
    if all(bool((kept == others).all()) for kept, others in pairs):
        return _is_copy(rule.evaluator, other.evaluator)
    return all(bool((kept | ~others).all()) for kept, others in pairs)


def _is_copy(one: FilterEvaluator, other: FilterEvaluator) -> bool:
    if isinstance(one, NodeExpression) and isinstance(other, NodeExpression):
        return one.program.root == other.program.root
    return False


def _moves_nothing(trials: Trials) -> Iterator[Finding]:
    """Yield that no node of a recording is better than another by `minGain`."""
    policy, samples = trials.policy, trials.samples
    least = policy.placement.min_gain
    if not samples.is_recorded or least <= 1 or not policy.scores:
        return
    weights = sum(rule.weight for rule in policy.scores)
    most = 0.0
    for index, nodes in enumerate(trials.left(policy.filters)):
        points = np.zeros(int(nodes.sum()))
        for rule in policy.scores:
            values = trials.of(rule)[index][nodes]
            if values.size and np.isfinite(values).all():
                normalized = rule.evaluator.normalize(values)
                points += 0 if normalized is None else rule.weight * normalized
        most = max(most, float(np.ptp(points)) / weights if points.size else 0.0)
    if most < least:
        message = (
            f"of the {samples.nodes} none is better than another by more than {most:.0f} points"
        )
        yield Finding("", f"{message}: no pod is moved", path=("spec", "placement", "minGain"))
