"""Effects: rules that come to the same everywhere, or to an error, on the cluster of `samples`.

Where an expression reads texts, such as labels, the samples may lack what decides it: then nothing
is said of it. Numbers, bools and moments are varied as far as real clusters go.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from engine.cel import CelError, Program, Reference
from engine.model.request import PlacementRequest
from engine.plugins import FAULT, PASS
from engine.policy import CompiledPolicy, FilterRule, NodeExpression, RuleContext, ScoreRule
from engine.policy.expressions import FilterExpression, ScoreExpression
from engine.policy.findings import Finding
from engine.policy.part_places import condition_part, variable_part
from engine.policy_lint.parts import references_of
from engine.policy_lint.samples import Samples

_VARIED: Final = frozenset(
    {
        *(("node", name) for name in ("allocatable", "requested", "limits", "usage")),
        *(("node", name) for name in ("creationTimestamp", "podCount", "ready", "unschedulable")),
        *(("pod", name) for name in ("limits", "priority", "qosClass", "requests")),
        ("now",),
    }
)
"""What the samples vary as far as real clusters do."""


@dataclass(frozen=True, slots=True)
class _Trial:
    """A rule evaluated for one pod.

    Attributes:
        request: the pod.
        values: a number for each node, not finite where it could not be evaluated; of a filter 1
            where a node passes, else 0.
        error: why the first such node could not be.
    """

    request: PlacementRequest
    values: NDArray[np.float64]
    error: str

    @property
    def fails(self) -> bool:
        """Whether it could not be evaluated for any node."""
        return not bool(np.isfinite(self.values).any())


def effect_findings(policy: CompiledPolicy, samples: Samples) -> Iterator[Finding]:
    """Yield a finding for each part of a policy that has no effect or cannot be evaluated.

    Raises:
        OutOfTimeError: the time is up before all of them were tried.
    """
    if not policy.filters and not policy.scores:
        yield Finding("", "it has neither filters nor scores: it has no effect")
    for name, program in policy.conditions.items():
        for message in _condition_warnings(policy, samples, program):
            yield Finding(condition_part(name), message)
    if not samples.requests:
        return
    yield from _effects_of_rules(policy, samples)


def _effects_of_rules(policy: CompiledPolicy, samples: Samples) -> Iterator[Finding]:
    broken: set[str] = set()
    for name, program in policy.variables.items():
        if error := _failure_of_variable(policy, samples, program):
            broken.add(name)
            yield Finding(variable_part(name), f"always fails: {error}")
    for rule in policy.rules:
        evaluator = rule.evaluator
        if not isinstance(evaluator, NodeExpression):
            continue
        if {path[1] for path in evaluator.program.references if path[0] == "variables"} & broken:
            continue
        for message in _rule_warnings(policy, rule, evaluator, samples):
            yield Finding(rule.name, message)


def _condition_warnings(
    policy: CompiledPolicy, samples: Samples, program: Program
) -> Iterator[str]:
    values, error = _values_of_pods(policy, samples, program, samples.selected)
    if not _is_varied(references_of(policy, program)) or not samples.selected:
        return
    if not values:
        yield f"always fails: {error}"
    elif len(values) == len(samples.selected) and all(value is True for value in values):
        yield "true for all pods: it has no effect"
    elif True not in values:
        yield "true for no pod: the policy applies to none"


def _failure_of_variable(policy: CompiledPolicy, samples: Samples, program: Program) -> str:
    """Return why a variable cannot be evaluated for any pod, "" if it can be for some."""
    values, error = _values_of_pods(policy, samples, program, samples.requests)
    return "" if values or not _is_varied(references_of(policy, program)) else error


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


def _rule_warnings(
    policy: CompiledPolicy,
    rule: FilterRule | ScoreRule,
    evaluator: NodeExpression,
    samples: Samples,
) -> Iterator[str]:
    requests = samples.in_time(samples.requests)
    trials = [_tried(policy, evaluator, request, samples) for request in requests]
    references = references_of(policy, evaluator.program)
    if not _is_varied(references) and any(path[0] == "node" for path in references):
        return
    if all(trial.fails for trial in trials):
        if _is_varied(references):
            yield f"always fails: {trials[0].error}"
    elif isinstance(rule, ScoreRule):
        if all(_is_constant(trial.values) for trial in trials):
            yield "its score is the same for all nodes: it has no effect"
    elif _is_varied(references):
        yield from _filter_warnings(trials, reads_anything=bool(references))


def _filter_warnings(trials: Sequence[_Trial], *, reads_anything: bool) -> Iterator[str]:
    if all(bool((trial.values == 1).all()) for trial in trials):
        yield "true for all nodes: it has no effect"
    elif reads_anything and not any(bool((trial.values == 1).any()) for trial in trials):
        yield "true for no node: it rejects all of them"  # that of a constant is known by then


def _tried(
    policy: CompiledPolicy, evaluator: NodeExpression, request: PlacementRequest, samples: Samples
) -> _Trial:
    context = policy.context(request, samples.view, samples.now)
    (rows,) = samples.view.valid.nonzero()
    values = _values(evaluator, context, rows)
    faulty = rows[~np.isfinite(values)]
    error = evaluator.fault(context, int(faulty[0])) if faulty.size else ""
    return _Trial(request, values, next(iter(context.errors), error))


def _values(
    evaluator: NodeExpression, context: RuleContext, rows: NDArray[np.intp]
) -> NDArray[np.float64]:
    if isinstance(evaluator, ScoreExpression):
        return np.asarray(evaluator.score(context, rows)[0], np.float64)
    assert isinstance(evaluator, FilterExpression)  # noqa: S101 - the only other kind
    codes = evaluator.filter(context).codes.take(rows)
    return np.where(codes == FAULT, np.nan, codes == PASS)


def _is_constant(values: NDArray[np.float64]) -> bool:
    """Return whether all nodes that could be evaluated have the same value."""
    sound = values[np.isfinite(values)]
    return sound.size == 0 or bool((sound == sound[0]).all())


def _is_varied(references: Iterable[Reference]) -> bool:
    return all(path[:2] in _VARIED or path[:1] in _VARIED for path in references)
