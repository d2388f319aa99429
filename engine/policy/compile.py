"""A document compiled to a policy that runs, or every mistake in it.

Keys, expressions and plugins are checked independently, so that a misspelt key does not hide a
mistake in an expression.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from hashlib import blake2b
from itertools import islice
from typing import Any, Final, TypeAlias

from engine.cel import DYN, CelProblem, CelProblemsError, CelType, Program, ast, compile_program
from engine.cel.static_types import NUMERIC, can_be
from engine.cel.values import BOOL, STRING
from engine.cel.vector import Strategy
from engine.documents import MOST_PROBLEMS, Document, Doubt, validate_model
from engine.errors import Diagnostic, did_you_mean
from engine.model.elastic_quota import EvictionMode
from engine.model.policy_resource import PlacementAt, PlacementOptions, PolicyKind
from engine.model.rule_outcomes import NodeThreshold
from engine.plugins import PLUGINS, UPSTREAM_NAMES, Args, Plugin, instead_of
from engine.policy import schema
from engine.policy.environment import (
    ExpressionScope,
    environment,
    misspelt_in_args,
    misspelt_resources,
    scope_of,
)
from engine.policy.label_analysis import NO_LABELS, PLUGIN_LABELS, filter_labels, score_labels
from engine.policy.node_statistics import misuses, written_statistics
from engine.policy.policy_set import (
    MOST_COST_OF_A_NAMESPACE,
    TOO_COSTLY_HINT,
    CompiledPolicy,
    Finding,
    PartPlaces,
    cost_of,
    part_name,
    too_costly,
)
from engine.policy.rules import (
    STATIC_PLUGINS,
    FilterEvaluator,
    FilterExpression,
    FilterRule,
    NodeExpression,
    PluginFilter,
    PluginScore,
    ScoreEvaluator,
    ScoreExpression,
    ScoreRule,
)

_IDENTIFIER = re.compile(r"\w+")


@dataclass(frozen=True, slots=True)
class ResultType:
    """The required type of an expression: in words, and as types (none: any)."""

    text: str = ""
    types: tuple[CelType, ...] = ()


ANY: Final = ResultType()
CONDITION: Final = ResultType("a condition must be a `bool`", (BOOL,))
FILTER: Final = ResultType("a filter must be a `bool`, true for nodes that pass", (BOOL,))
SCORE: Final = ResultType("a score must be a number", tuple(NUMERIC))

_CONVERSIONS: Final = {
    (SCORE, BOOL): "write `test ? 1 : 0`",
    (SCORE, STRING): "convert it, with `double(..)`, or write `x == 'a' ? 1 : 0`",
    **{(each, kind): "compare it, as `x < 5`" for each in (FILTER, CONDITION) for kind in NUMERIC},
    (FILTER, STRING): "compare it, as `x == 'a'`",
    (CONDITION, STRING): "compare it, as `x == 'a'`",
}
"""Hints for a type that a place does not take."""


def compile_expression(
    source: str,
    scope: ExpressionScope,
    variables: Mapping[str, CelType],
    required: ResultType = ANY,
    later: Collection[str] = (),
) -> Program:
    """Compile an expression of a policy."""
    try:
        program = compile_program(source, environment(scope, variables, later))
    except CelProblemsError as error:
        problems = [_with_hint(problem, source, scope) for problem in error.problems]
        raise CelProblemsError(problems) from error
    trees = [
        program.root,
        *(part for each in written_statistics(program.root) for part in each.parts),
    ]
    problems = [problem for tree in trees for problem in misspelt_resources(tree)]
    problems += [*misuses(program.root), *_wrong_type(program, required)]
    if problems:
        raise CelProblemsError(problems)
    return program


def _wrong_type(program: Program, required: ResultType) -> Iterator[CelProblem]:
    """Yield the problem of an expression that can never be of the required type."""
    if required.types and not can_be(program.result_type, *required.types):
        hint = _CONVERSIONS.get((required, program.result_type), "")
        if isinstance(program.root, ast.Literal) and program.result_type == STRING:
            hint = f"the whole expression is a text: write `{program.root.value}` without quotes"
        yield CelProblem(0, f"{required.text}, not `{program.result_type}`", hint)


def _with_hint(problem: CelProblem, source: str, scope: ExpressionScope) -> CelProblem:
    """Return a problem; for a name unknown here, with the hint where it is known."""
    name = _IDENTIFIER.match(source, problem.offset)
    if name is None or problem.message != f"unknown name `{name[0]}`":
        return problem
    known_from = scope_of(name[0])
    if known_from is None or known_from <= scope:
        return problem
    return replace(problem, hint=f"`{name[0]}` is known in {known_from.text} alone")


# The expressions and plugins of a document, compiled, with the mistakes in the others.
#
# Each is looked at by itself, whatever else is wrong with the document.


ItemPath: TypeAlias = tuple[str | int, ...]
"""Where an item of a list stands in a document."""

CONDITIONS: Final = ("spec", "match", "matchConditions")
VARIABLES: Final = ("spec", "variables")
FILTERS: Final = ("spec", "filters")
SCORES: Final = ("spec", "scores")


_CUT: Final = "to YAML a comment begins at ` #`: put the expression below a `|-`"


class CompiledPrograms:
    """The expressions of a document, compiled."""

    def __init__(self, document: Document) -> None:
        # programs by the path of the item that each belongs to
        self.found: dict[ItemPath, Program] = {}
        self.problems: list[Diagnostic] = []  # the mistakes in the others
        self.warnings: list[Finding] = []  # what is accepted and probably not meant
        self._document = document
        for path, item in _items(document, CONDITIONS):
            self._add(path, item, ExpressionScope.MATCH, {}, CONDITION)
        types: dict[str, CelType] = {}
        names = {str(item.get("name")) for _, item in _items(document, VARIABLES)}
        for path, item in _items(document, VARIABLES):
            later = names - types.keys()
            self._add(path, item, ExpressionScope.VARIABLES, dict(types), ANY, later)
            program = self.found.get(path)
            types[str(item.get("name"))] = DYN if program is None else program.result_type
        for path, item in _items(document, FILTERS):
            self._add(path, item, ExpressionScope.RULES, types, FILTER)
        for path, item in _items(document, SCORES):
            self._add(path, item, ExpressionScope.SCORES, types, SCORE)

    def _add(
        self,
        path: ItemPath,
        item: Mapping[str, object],
        scope: ExpressionScope,
        variables: Mapping[str, CelType],
        required: ResultType,
        later: Collection[str] = (),
    ) -> None:
        source = item.get("expression")
        if not isinstance(source, str) or not source:
            return  # the schema reports it
        at = (*path, "expression")
        try:
            program = compile_expression(source, scope, variables, required, later)
        except CelProblemsError as error:
            for found in error.problems:
                is_open = found.message.endswith("is not closed")
                is_cut = is_open and self._document.is_cut_by_comment(at)
                hint = _CUT if is_cut else found.hint
                self.problems.append(
                    self._document.problem(at, found.message, hint=hint, offset=found.offset)
                )
            return
        self.found[path] = program
        part = part_name(scope, str(item.get("name")))
        self.warnings += (
            Finding(
                part,
                f"{found.message}; Kubernetes refuses that where it knows types",
                found.hint,
                found.offset,
            )
            for found in program.warnings
        )


class ConfiguredPlugins:
    """The plugins that a document names, with their args."""

    def __init__(self, document: Document) -> None:
        # plugin and args by the path of the rule
        self.found: dict[ItemPath, tuple[Plugin, Args]] = {}
        self.problems: list[Diagnostic] = []  # the mistakes in the others
        self.warnings: list[Finding] = []  # args that are allowed and probably not meant
        self._document = document
        for path, item in _items(document, FILTERS):
            self._add(path, item, lambda plugin: plugin.filter is not None, "filter")
        for path, item in _items(document, SCORES):
            self._add(path, item, lambda plugin: plugin.score is not None, "score")

    def _add(
        self,
        path: ItemPath,
        item: Mapping[str, object],
        can: Callable[[Plugin], bool],
        verb: str,
    ) -> None:
        name = schema.named_plugin(item)
        if not name:
            return  # an expression, or the schema reports it
        key = "plugin" if "plugin" in item else "name"
        plugin = PLUGINS.get(name)
        if plugin is None or not can(plugin):
            able = [other for other, found in PLUGINS.items() if can(found)]
            message = f"plugin `{name}` does not {verb}" if plugin else f"unknown plugin `{name}`"
            hint = instead_of(name, able) or f"the plugins that {verb} are {', '.join(able)}"
            self.problems.append(self._document.problem((*path, key), message, hint=hint))
            return
        at = (*path, "args")
        written = item.get("args") or {}
        self.problems += self._args_of_another(name, written, at)
        doubts: list[Doubt] = []
        args, problems = validate_model(plugin.args, written, self._document, at, doubts)
        part = str(item.get("name") or name)
        for message, hint, key in doubts:
            is_key = isinstance(written, dict) and key in written
            place = (*at, key) if is_key else at
            self.warnings.append(Finding(part, message, hint, path=place, is_key=is_key))
        self.problems += problems
        self.problems += islice(misspelt_in_args(written, self._document, at), MOST_PROBLEMS)
        if args is not None:
            self.found[path] = (plugin, args)

    def _args_of_another(self, plugin: str, args: object, at: ItemPath) -> Iterator[Diagnostic]:
        """Yield the problem of args whose `kind` is that of another plugin."""
        kind = args.get("kind") if isinstance(args, dict) else None
        if not isinstance(kind, str):
            return
        owner = kind.removesuffix("Args")
        owner = UPSTREAM_NAMES.get(owner, owner)
        if owner in PLUGINS and owner != plugin:
            yield self._document.problem((*at, "kind"), f"these are args of plugin `{owner}`")


def _items(document: Document, path: ItemPath) -> Iterator[tuple[ItemPath, dict[str, Any]]]:
    """Yield the mappings in a list of a document, with their paths; nothing if it is malformed."""
    found = document.value
    for step in path:
        found = found.get(step) if isinstance(found, dict) else None
    for index, item in enumerate(found if isinstance(found, list) else ()):
        if isinstance(item, dict):
            yield (*path, index), item


_API_GROUP: Final = "stowplan.dev/"
_OF_KIND: Final = {
    "ElasticQuota": "it is no policy: `kubectl apply` it, its webhook checks it",
    "ConfigMap": "a policy is a document of its own: write what is in the `data` to a file",
    "KubeSchedulerConfiguration": "`stowplan import` makes policies of it",
}
_OF_THE_REQUEST_ALONE: Final = frozenset({"request", "request.options", "request.userInfo"})
_MICROS_PER_MILLI = 1000


def compile_policy(document: Document) -> tuple[CompiledPolicy | None, list[Diagnostic]]:
    """Return the policy of a document, or None and every mistake in it."""
    other = _other_kind(document)
    if other is not None:
        return None, [other]
    written, problems = validate_model(_model_of(document), document.value, document)
    programs = CompiledPrograms(document)
    plugins = ConfiguredPlugins(document)
    problems = list(dict.fromkeys(problems + programs.problems + plugins.problems))
    if written is not None:
        placement = written.spec.placement.options
        problems += _unknown_after_admission(placement, programs, document)
    if written is None or problems:
        return None, problems
    policy = _assembled(written, programs, plugins)
    places = PartPlaces(written, document)
    if policy.namespace and policy.slow_parts:
        return None, list(_too_slow(policy, places))
    if policy.namespace and policy.cost > MOST_COST_OF_A_NAMESPACE:
        return None, [document.problem(("spec",), too_costly(policy.cost), hint=TOO_COSTLY_HINT)]
    return replace(policy, digest=_digest(policy.name, document), places=places), []


def _too_slow(policy: CompiledPolicy, places: PartPlaces) -> Iterator[Diagnostic]:
    """Yield a problem for each slow part: pods of other namespaces would wait for it."""
    for found in policy.slow_parts:
        message = f"{found.message}: too long for a policy of one namespace"
        hint = f"make it independent of the pod, or write a `{PolicyKind.CLUSTER}`, which may"
        yield places.of(found).problem(message, hint)


def _unknown_after_admission(
    placement: PlacementOptions, programs: CompiledPrograms, document: Document
) -> Iterator[Diagnostic]:
    """Yield the problem of each expression that reads what only an admission request says."""
    if placement.at is PlacementAt.BINDING:
        moment, way_out = "a pod is bound", "decide `at: Admission`"
    elif placement.preemption is not EvictionMode.OFF:
        moment, way_out = "others are evicted for a pod", "drop `preemption`"
    else:
        return
    for path, program in programs.found.items():
        read = {".".join(each[:2]) for each in program.references} & _OF_THE_REQUEST_ALONE
        if read:
            message = f"`{min(read)}` is not known when {moment}"
            hint = f"read `pod` or `object` instead, or {way_out}"
            if "request.userInfo" in read:
                hint += "; a pod runs as `object.spec.serviceAccountName`"
            yield document.problem((*path, "expression"), message, hint=hint)


def is_policy(document: Document) -> bool:
    """Return whether a document is, or is likely to be meant as, a policy."""
    value = document.value if isinstance(document.value, dict) else {}
    kind, version = _kind_of(document), str(value.get("apiVersion"))
    is_meant = kind in schema.MODELS or did_you_mean(kind, schema.MODELS)
    return bool(is_meant) or version.startswith(_API_GROUP)


def _other_kind(document: Document) -> Diagnostic | None:
    """Return the problem of a document that is something else altogether, None for a policy."""
    if is_policy(document):
        return None
    kind = _kind_of(document)
    hint = _OF_KIND.get(kind, "")
    return document.problem(("kind",), f"`{kind}` is not `{PolicyKind.CLUSTER}`", hint=hint)


def _kind_of(document: Document) -> str:
    value = document.value if isinstance(document.value, dict) else {}
    return str(value.get("kind", PolicyKind.CLUSTER.value))


def _model_of(
    document: Document,
) -> type[schema.PlacementPolicy | schema.NamespacedPlacementPolicy]:
    """Return the model of the kind that a document is, or is likely to be meant to be."""
    kind = _kind_of(document)
    meant = [known for known in schema.MODELS if did_you_mean(kind, [known])]
    return schema.MODELS.get(kind) or schema.MODELS[min(meant, default=PolicyKind.CLUSTER.value)]


def _digest(name: str, document: Document) -> bytes:
    """Return a hash of name and spec; labels and what the API server adds do not count."""
    assert isinstance(document.value, dict)  # noqa: S101 - INVARIANT: it was compiled
    text = json.dumps([name, document.value["spec"]], sort_keys=True)
    return blake2b(text.encode(), digest_size=16).digest()


def _assembled(
    written: schema.PlacementPolicy | schema.NamespacedPlacementPolicy,
    programs: CompiledPrograms,
    plugins: ConfiguredPlugins,
) -> CompiledPolicy:
    name, spec = written.name, written.spec
    conditions, variables = spec.match.match_conditions, spec.variables
    profiles = tuple(
        dict.fromkeys(
            profile
            for plugin, args in plugins.found.values()
            for profile in plugin.sum_profiles(args)
        )
    )
    estimators = (
        plugin.estimator(args) for plugin, args in plugins.found.values() if plugin.estimator
    )
    variable_programs = {
        item.name: programs.found[*VARIABLES, i] for i, item in enumerate(variables)
    }
    filters = tuple(
        _filter_rule(name, rule, (*FILTERS, i), programs, plugins)
        for i, rule in enumerate(spec.filters)
    )
    scores = tuple(
        _score_rule(name, rule, (*SCORES, i), programs, plugins)
        for i, rule in enumerate(spec.scores)
    )
    condition_programs = {
        item.name: programs.found[*CONDITIONS, i] for i, item in enumerate(conditions)
    }
    own = (*condition_programs.values(), *variable_programs.values())
    return CompiledPolicy(
        name=name,
        namespace=written.namespace,
        mode=spec.mode,
        priority=spec.priority,
        namespace_selector=spec.match.namespace_selector.parsed(),
        object_selector=spec.match.object_selector.parsed(),
        conditions=condition_programs,
        variables=variable_programs,
        filters=filters,
        scores=scores,
        placement=spec.placement.options,
        cost=cost_of((*filters, *scores), own),
        sum_profiles=profiles,
        estimator=next(estimators, None),
        slow_parts=tuple(_slow_parts((*filters, *scores))),
        warnings=(*programs.warnings, *plugins.warnings),
    )


def _slow_parts(rules: Iterable[FilterRule | ScoreRule]) -> Iterator[Finding]:
    for rule in rules:
        if not isinstance(rule.evaluator, NodeExpression):
            continue
        for part in rule.evaluator.parts:
            if part.strategy is Strategy.ROWS:
                cost = math.ceil(part.cost / _MICROS_PER_MILLI)
                message = f"`{part.text}` takes some {cost} ms for each pod and 5,000 nodes"
                yield Finding(rule.name, message)


def _filter_rule(
    policy: str,
    rule: schema.Filter,
    path: ItemPath,
    programs: CompiledPrograms,
    plugins: ConfiguredPlugins,
) -> FilterRule:
    evaluator: FilterEvaluator
    labels = PLUGIN_LABELS
    thresholds: tuple[NodeThreshold, ...] = ()
    if path in plugins.found:
        plugin, args = plugins.found[path]
        assert plugin.filter is not None  # noqa: S101 - INVARIANT: ConfiguredPlugins found that it can
        evaluator = PluginFilter(plugin.filter(args), plugin)
        dynamic = rule.plugin not in STATIC_PLUGINS
        thresholds = tuple(plugin.thresholds(args))
    else:
        evaluator = FilterExpression(programs.found[path], rule.message)
        dynamic = not evaluator.reads_labels_alone
        errors_pass = rule.on_error is schema.OnFilterError.IGNORE_RULE
        labels = filter_labels(evaluator.program, errors_pass=errors_pass)
    return FilterRule(
        policy=policy,
        name=rule.name,
        dynamic=dynamic,
        on_error=rule.on_error,
        evaluator=evaluator,
        labels=labels,
        thresholds=thresholds,
    )


def _score_rule(
    policy: str,
    rule: schema.Score,
    path: ItemPath,
    programs: CompiledPrograms,
    plugins: ConfiguredPlugins,
) -> ScoreRule:
    evaluator: ScoreEvaluator
    if path in plugins.found:
        plugin, args = plugins.found[path]
        assert plugin.score is not None  # noqa: S101 - INVARIANT: ConfiguredPlugins found that it can
        evaluator, labels = PluginScore(plugin.score(args), plugin), NO_LABELS
    else:
        program = programs.found[path]
        evaluator, labels = ScoreExpression(program), score_labels(program)
    return ScoreRule(
        policy=policy,
        name=rule.name,
        weight=rule.weight,
        on_error=rule.on_error,
        evaluator=evaluator,
        labels=labels,
    )
