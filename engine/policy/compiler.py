"""From a document to a policy that runs, or to everything that is wrong with it.

Keys, expressions and plugins are looked at one after the other and each for itself, so that a
misspelt key does not hide a mistake in an expression.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from hashlib import blake2b
from itertools import islice
from typing import Any, Final, TypeAlias

from engine.cel import CelProblem, CelProblemsError, CelType, Program, compile_program
from engine.cel.static_types import NUMERIC, can_be
from engine.cel.values import BOOL, DYN
from engine.cel.vector import Strategy
from engine.documents.places import Document
from engine.documents.validation import MOST_PROBLEMS, validate_model
from engine.errors import Diagnostic, did_you_mean
from engine.model.decision import PlacementOptions
from engine.plugins import PLUGINS, Args, Plugin
from engine.policy import schema
from engine.policy.compiled import CompiledPolicy
from engine.policy.environment import ExpressionScope, environment, misspelt_resources, where_known
from engine.policy.expressions import node_condition, node_number
from engine.policy.filter_evaluators import ExpressionJudge, PluginJudge
from engine.policy.label_analysis import PLUGIN_LABELS, filter_labels
from engine.policy.resource_names import misspelt_in_args
from engine.policy.rules import FilterEvaluator, FilterRule, Scorer, ScoreRule
from engine.policy.scheduler_filters import STATIC_PLUGINS
from engine.policy.scorers import ExpressionScorer, PluginScorer

_Path: TypeAlias = tuple[str | int, ...]
_CONDITIONS: Final = ("spec", "match", "matchConditions")
_VARIABLES: Final = ("spec", "variables")
_FILTERS: Final = ("spec", "filters")
_SCORES: Final = ("spec", "scores")
_MICROS_PER_MILLI = 1000
_RULES: Final = environment(ExpressionScope.RULES)
_IDENTIFIER = re.compile(r"\w+")


def compile_policy(document: Document) -> tuple[CompiledPolicy | None, list[Diagnostic]]:
    """Return the policy that a document holds, or None and all that is wrong with it."""
    kind = document.value.get("kind") if isinstance(document.value, dict) else None
    if kind is not None and kind != schema.KIND:
        hint = did_you_mean(str(kind), [schema.KIND])
        problem = document.problem(("kind",), f"`{kind}` is not `{schema.KIND}`", hint=hint)
        return None, [problem]
    written, problems = validate_model(schema.PlacementPolicy, document.value, document)
    programs = _Programs(document)
    plugins = _Plugins(document)
    problems += programs.problems + plugins.problems
    if written is None or problems:
        return None, problems
    policy = _assembled(written, programs, plugins)
    return replace(policy, digest=_digest(document)), []


def _digest(document: Document) -> bytes:
    return blake2b(repr(document.value).encode(errors="surrogatepass"), digest_size=16).digest()


@dataclass(frozen=True, slots=True)
class _Wanted:
    """What an expression has to give: in words, and as types (none: anything)."""

    text: str = ""
    types: tuple[CelType, ...] = ()


_ANYTHING = _Wanted()
_CONDITION = _Wanted("a condition must be a `bool`", (BOOL,))
_FILTER = _Wanted("a filter must be a `bool`, true for nodes that pass", (BOOL,))
_SCORE = _Wanted("a score must be a number", tuple(NUMERIC))


class _Programs:
    """The expressions of a document, compiled.

    Attributes:
        found: by the path of what each belongs to.
        problems: what is wrong with the others.
    """

    def __init__(self, document: Document) -> None:
        self.found: dict[_Path, Program] = {}
        self.problems: list[Diagnostic] = []
        self._document = document
        for path, item in _items(document, _CONDITIONS):
            self._add(path, item, ExpressionScope.MATCH, {}, _CONDITION)
        types: dict[str, CelType] = {}
        for path, item in _items(document, _VARIABLES):
            self._add(path, item, ExpressionScope.VARIABLES, dict(types), _ANYTHING)
            program = self.found.get(path)
            types[str(item.get("name"))] = DYN if program is None else program.result_type
        for path, item in _items(document, _FILTERS):
            self._add(path, item, ExpressionScope.RULES, types, _FILTER)
        for path, item in _items(document, _SCORES):
            self._add(path, item, ExpressionScope.RULES, types, _SCORE)

    def _add(
        self,
        path: _Path,
        item: Mapping[str, object],
        where: ExpressionScope,
        variables: Mapping[str, CelType],
        wanted: _Wanted,
    ) -> None:
        source = item.get("expression")
        if not isinstance(source, str) or not source:
            return  # the schema says so
        at = (*path, "expression")
        try:
            program = compile_program(source, environment(where, variables))
            problems = [*misspelt_resources(program), *_wrong_type(program, wanted)]
        except CelProblemsError as error:
            problems = [_with_hint(problem, source, where) for problem in error.problems]
        self.problems += (
            self._document.problem(at, found.message, hint=found.hint, offset=found.offset)
            for found in problems
        )
        if not problems:
            self.found[path] = program


def _wrong_type(program: Program, wanted: _Wanted) -> Iterator[CelProblem]:
    """Yield the problem of an expression that cannot give what it has to."""
    if wanted.types and not can_be(program.result_type, *wanted.types):
        yield CelProblem(0, f"{wanted.text}, not `{program.result_type}`")


def _with_hint(problem: CelProblem, source: str, where: ExpressionScope) -> CelProblem:
    """Return a problem with the hint where else a name is known that is unknown here."""
    name = _IDENTIFIER.match(source, problem.offset)
    if name is None or problem.message != f"unknown name `{name[0]}`":
        return problem
    known_from = where_known(name[0])
    if known_from is None or known_from <= where:
        return problem
    return replace(problem, hint=f"`{name[0]}` is known in {known_from.text} alone")


class _Plugins:
    """The plugins that a document names, with their args.

    Attributes:
        found: by the path of the rule.
        problems: what is wrong with the others.
    """

    def __init__(self, document: Document) -> None:
        self.found: dict[_Path, tuple[Plugin, Args]] = {}
        self.problems: list[Diagnostic] = []
        self._document = document
        for path, item in _items(document, _FILTERS):
            self._add(path, item, lambda plugin: plugin.filter is not None, "filter")
        for path, item in _items(document, _SCORES):
            self._add(path, item, lambda plugin: plugin.score is not None, "score")

    def _add(
        self,
        path: _Path,
        item: Mapping[str, object],
        can: Callable[[Plugin], bool],
        verb: str,
    ) -> None:
        name = item.get("plugin")
        if not isinstance(name, str):
            return  # the schema says so
        plugin = PLUGINS.get(name)
        if plugin is None or not can(plugin):
            able = [other for other, found in PLUGINS.items() if can(found)]
            message = f"plugin `{name}` does not {verb}" if plugin else f"unknown plugin `{name}`"
            hint = did_you_mean(name, able) or f"the plugins that {verb} are {', '.join(able)}"
            self.problems.append(self._document.problem((*path, "plugin"), message, hint=hint))
            return
        at = (*path, "args")
        written = item.get("args") or {}
        args, problems = validate_model(plugin.args, written, self._document, at)
        self.problems += problems
        self.problems += islice(misspelt_in_args(written, self._document, at), MOST_PROBLEMS)
        if args is not None:
            self.found[path] = (plugin, args)


def _items(document: Document, path: _Path) -> Iterator[tuple[_Path, dict[str, Any]]]:
    """Yield the mappings in a list of a document, with their paths; nothing if it is malformed."""
    found = document.value
    for step in path:
        found = found.get(step) if isinstance(found, dict) else None
    for index, item in enumerate(found if isinstance(found, list) else ()):
        if isinstance(item, dict):
            yield (*path, index), item


def _assembled(
    written: schema.PlacementPolicy, programs: _Programs, plugins: _Plugins
) -> CompiledPolicy:
    """Return the policy made of parts that are all right."""
    name, spec = written.metadata.name, written.spec
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
    filters = tuple(
        _filter_rule(name, rule, (*_FILTERS, i), programs, plugins)
        for i, rule in enumerate(spec.filters)
    )
    scores = tuple(
        _score_rule(name, rule, (*_SCORES, i), programs, plugins)
        for i, rule in enumerate(spec.scores)
    )
    return CompiledPolicy(
        name=name,
        mode=spec.mode,
        priority=spec.priority,
        namespace_selector=spec.match.namespace_selector.parsed(),
        object_selector=spec.match.object_selector.parsed(),
        conditions={one.name: programs.found[*_CONDITIONS, i] for i, one in enumerate(conditions)},
        variables={one.name: programs.found[*_VARIABLES, i] for i, one in enumerate(variables)},
        filters=filters,
        scores=scores,
        placement=PlacementOptions(**dict(spec.placement)),
        sum_profiles=profiles,
        estimator=next(estimators, None),
        slow_parts=tuple(_slow_parts(filters, scores)),
    )


def _slow_parts(filters: Iterable[FilterRule], scores: Iterable[ScoreRule]) -> Iterator[str]:
    judges = ((rule.name, rule.judge) for rule in filters)
    scorers = ((rule.name, rule.scorer) for rule in scores)
    for name, by in (*judges, *scorers):
        if isinstance(by, ExpressionJudge | ExpressionScorer):
            for part in by.expression.plan.parts:
                if part.strategy is Strategy.ROWS:
                    cost = math.ceil(part.cost / _MICROS_PER_MILLI)
                    yield f"{name}: `{part.text}` takes some {cost} ms for each pod and 5,000 nodes"


def _filter_rule(
    policy: str, rule: schema.Filter, path: _Path, programs: _Programs, plugins: _Plugins
) -> FilterRule:
    judge: FilterEvaluator
    labels = PLUGIN_LABELS
    if path in plugins.found:
        plugin, args = plugins.found[path]
        assert plugin.filter is not None  # noqa: S101 - INVARIANT: _Plugins found that it can
        judge = PluginJudge(plugin.filter(args), plugin.reads)
        dynamic = rule.plugin not in STATIC_PLUGINS
    else:
        expression = node_condition(programs.found[path], _RULES)
        judge = ExpressionJudge.of(expression, rule.message)
        dynamic = not expression.reads_labels_alone
        errors_pass = rule.on_error is schema.OnFilterError.IGNORE_RULE
        labels = filter_labels(expression.program, errors_pass=errors_pass)
    return FilterRule(
        policy=policy,
        name=rule.name,
        dynamic=dynamic,
        on_error=rule.on_error,
        judge=judge,
        labels=labels,
    )


def _score_rule(
    policy: str, rule: schema.Score, path: _Path, programs: _Programs, plugins: _Plugins
) -> ScoreRule:
    scorer: Scorer
    if path in plugins.found:
        plugin, args = plugins.found[path]
        assert plugin.score is not None  # noqa: S101 - INVARIANT: _Plugins found that it can
        scorer = PluginScorer(plugin.score(args), plugin.reads)
    else:
        scorer = ExpressionScorer(node_number(programs.found[path], _RULES))
    return ScoreRule(
        policy=policy, name=rule.name, weight=rule.weight, on_error=rule.on_error, scorer=scorer
    )
