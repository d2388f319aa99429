"""A document compiled to a policy that runs, or every mistake in it.

Keys, expressions and plugins are checked independently, so that a misspelt key does not hide a
mistake in an expression.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Iterator
from dataclasses import replace
from hashlib import blake2b
from typing import Final

from engine.cel.vector import Strategy
from engine.documents import Document, validate_model
from engine.errors import Diagnostic, did_you_mean
from engine.model.elastic_quota import ReclaimMode
from engine.model.measure import NodeThreshold
from engine.model.placement_options import PlacementAt, PlacementOptions
from engine.model.policy_resource import PolicyKind
from engine.policy import rule_schema, schema
from engine.policy.compiled_parts import (
    CONDITIONS,
    FILTERS,
    SCORES,
    VARIABLES,
    CompiledPrograms,
    ConfiguredPlugins,
    ItemPath,
)
from engine.policy.cost import MOST_COST_OF_A_NAMESPACE, TOO_COSTLY_HINT, cost_of, too_costly
from engine.policy.expressions import FilterExpression, NodeExpression, ScoreExpression
from engine.policy.findings import Finding
from engine.policy.label_analysis import NO_LABELS, PLUGIN_LABELS, filter_labels, score_labels
from engine.policy.part_places import PartPlaces
from engine.policy.plugin_evaluators import PluginFilter, PluginScore
from engine.policy.policy_set import CompiledPolicy
from engine.policy.rules import (
    STATIC_PLUGINS,
    FilterEvaluator,
    FilterRule,
    ScoreEvaluator,
    ScoreRule,
)

_API_GROUP: Final = "stowplan.dev/"
_OF_KIND: Final = {
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
    elif placement.preemption is not ReclaimMode.OFF:
        moment, way_out = "others are evicted for a pod", "drop `preemption`"
    else:
        return
    for path, program in programs.found.items():
        read = {".".join(each[:2]) for each in program.references} & _OF_THE_REQUEST_ALONE
        if read:
            message = f"`{min(read)}` is not known when {moment}"
            hint = f"read `pod` or `object` instead, or {way_out}"
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
    """Return the policy made of parts without mistakes."""
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
        for part in rule.evaluator.plan.parts:
            if part.strategy is Strategy.ROWS:
                cost = math.ceil(part.cost / _MICROS_PER_MILLI)
                message = f"`{part.text}` takes some {cost} ms for each pod and 5,000 nodes"
                yield Finding(rule.name, message)


def _filter_rule(
    policy: str,
    rule: rule_schema.Filter,
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
        errors_pass = rule.on_error is rule_schema.OnFilterError.IGNORE_RULE
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
    rule: rule_schema.Score,
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
