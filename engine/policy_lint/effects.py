"""Effects: rules that come to the same everywhere, or to an error, on the cluster of `samples`.

Where an expression reads texts, such as labels, the samples may lack what decides it: then nothing
is said of it. Numbers, bools and moments are varied as far as real clusters go.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from functools import cache, lru_cache
from importlib.resources import files
from typing import Any, Final
from zlib import crc32

import msgspec
import numpy as np
from numpy.typing import NDArray

from engine.cel import CelError, Program, Reference, ast
from engine.documents import read_documents
from engine.errors import StowplanError
from engine.model.decision import PlacementRequest
from engine.model.kinds import KINDS
from engine.model.node import Node
from engine.model.pod import Pod
from engine.model.selectors import LabelSelector, Operator, is_label_key
from engine.model.time import Micros, micros
from engine.model.usage import NodeUsage
from engine.plugins import FAULT, PASS
from engine.policy import CompiledPolicy, FilterRule, NodeExpression, RuleContext, ScoreRule
from engine.policy.expressions import FilterExpression, ScoreExpression
from engine.policy.policy_set import Finding, condition_part, variable_part
from engine.policy_lint.reads import references_of
from engine.view import ClusterState, ClusterView

# The cluster and the pods that a policy is tried on: those of `cluster.yaml`, varied for it.
#
# Nodes and pods of a real cluster have the labels that its policies speak of. So the texts of a
# policy serve as keys and values of labels: each text is a label of some nodes and pods, with each
# text as its value on some of them. All of it is deterministic.


_Json = dict[str, Any]

_KINDS: Final = {kind.kind: kind for kind in KINDS}
_VARIATIONS_OF_NODES: Final = 8
_VARIATIONS_OF_PODS: Final = 4
_MOST_TEXTS: Final = 64
_COMMON_TEXTS: Final = ("", "true", "1", "7", "x")
_ONE_IN_THREE: Final = 3  # of the nodes and pods lacks a label
_NAMESPACE: Final = "default"


class OutOfTimeError(StowplanError):
    """The time to try a policy is up; what was found of the part that was tried is void."""


@dataclass(frozen=True, slots=True)
class Samples:
    """What a policy is tried on."""

    view: ClusterView  # the cluster
    now: Micros  # the moment
    selected: tuple[PlacementRequest, ...]  # pods to be created that the policy's selectors select
    requests: tuple[PlacementRequest, ...]  # those of them that meet its match conditions
    is_over: Callable[[], bool]  # whether the time is up

    def in_time(self, requests: Iterable[PlacementRequest]) -> Iterator[PlacementRequest]:
        """Yield requests to evaluate a part of the policy for."""
        for request in requests:
            self._check_time()
            yield request
        self._check_time()

    def _check_time(self) -> None:
        if self.is_over():
            raise OutOfTimeError


def samples_for(policy: CompiledPolicy, is_over: Callable[[], bool] = lambda: False) -> Samples:
    """Return the cluster and the pods to try a policy on."""
    texts = tuple(sorted(_texts(policy)))[:_MOST_TEXTS]
    view, now = _cluster(texts)
    requests = [
        replace(request, expired=is_over)
        for pod in _recorded()["pods"]
        for request in _requests(pod, texts, policy)
    ]
    selected = tuple(request for request in requests if policy.selects(request))
    errors: list[str] = []
    met = tuple(request for request in selected if policy.meets(request, now, errors))
    return Samples(view, now, selected, met, is_over)


def _texts(policy: CompiledPolicy) -> set[str]:
    """Return the texts in the expressions and selectors of a policy, and the keys they read."""
    texts: set[str] = set()
    for program in policy.programs:
        texts |= {key for path in program.references for key in path[2:]}
        for node, _ in ast.walk(program.root):
            if isinstance(node, ast.Literal) and isinstance(node.value, str):
                texts.add(node.value)
    for selector in (policy.object_selector, policy.namespace_selector):
        for requirement in selector.requirements:
            texts |= {requirement.key, *requirement.values}
    return texts


@cache
def _recorded() -> _Json:
    data = files(__package__).joinpath("cluster.yaml").read_bytes()
    (document,) = read_documents(data, "cluster.yaml")
    assert isinstance(document.value, dict)  # noqa: S101 - INVARIANT: our own file
    return document.value


@lru_cache(maxsize=8)
def _cluster(texts: tuple[str, ...]) -> tuple[ClusterView, Micros]:
    """Return the nodes in all variations with their pods, and the moment."""
    state, now = ClusterState(), micros(datetime.fromisoformat(_recorded()["now"]))
    nodes, usages, pods = _objects()
    for number, node in enumerate(nodes):
        labels = _labels(texts, f"node {number}")
        annotations = _labels(texts, f"annotated node {number}")
        state.set_node(replace(node, labels={**node.labels, **labels}, annotations=annotations))
    for usage in usages:
        state.set_usage(usage)
    for pod in pods:
        state.set_pod(pod, seen_at=now)
    return state.view(), now


@cache
def _objects() -> tuple[list[Node], list[NodeUsage], list[Pod]]:
    nodes: list[Node] = []
    usages: list[NodeUsage] = []
    pods: list[Pod] = []
    for variation in range(_VARIATIONS_OF_NODES):
        for recorded in _recorded()["nodes"]:
            name = f"{recorded['name']}-{variation}"
            nodes.append(_decoded("Node", _node(name, recorded)))
            if "usage" in recorded:
                usages.append(_decoded("NodeMetric", _usage(name, recorded)))
            # The first variation has them all, which is slow; what else varies are labels.
            count = min(recorded["pods"], 1) if variation else recorded["pods"]
            pods += (_decoded("Pod", _pod_on(name, number, recorded)) for number in range(count))
    return nodes, usages, pods


def _decoded(kind: str, value: _Json) -> Any:  # noqa: ANN401 - what the kind makes
    found = _KINDS[kind]
    return found.decode(msgspec.convert(value, found.wire))


def _node(name: str, recorded: _Json) -> _Json:
    ready = str(recorded.get("ready", True))
    labels = {
        "kubernetes.io/hostname": name,
        "kubernetes.io/os": "linux",
        "kubernetes.io/arch": recorded.get("arch", "amd64"),
        "topology.kubernetes.io/zone": recorded.get("zone", "a"),
    }
    taint = {"key": recorded.get("taint", ""), "effect": "NoSchedule"}
    changed = recorded["created"]
    condition = {"type": "Ready", "status": ready, "lastTransitionTime": changed, "reason": ""}
    return {
        "metadata": {"name": name, "labels": labels, "creationTimestamp": recorded["created"]},
        "spec": {
            "taints": [taint] if taint["key"] else [],
            "unschedulable": recorded.get("unschedulable", False),
        },
        "status": {"allocatable": recorded["size"], "conditions": [condition]},
    }


def _usage(name: str, recorded: _Json) -> _Json:
    reported = recorded.get("reported", _recorded()["now"])
    measured = {"nodeUsage": {"resources": recorded["usage"]}}
    return {
        "metadata": {"name": name},
        "status": {"updateTime": reported, "nodeMetric": measured},
    }


def _pod_on(node: str, number: int, recorded: _Json) -> _Json:
    name, resources = f"{node}-{number}", {"requests": recorded["each"]}
    if "limits" in recorded:
        resources["limits"] = recorded["limits"]
    return {
        "metadata": {"name": name, "namespace": _NAMESPACE, "uid": name},
        "spec": {"nodeName": node, "containers": [{"name": "main", "resources": resources}]},
        "status": {"phase": "Running"},
    }


def _requests(
    recorded: _Json, texts: tuple[str, ...], policy: CompiledPolicy
) -> Iterator[PlacementRequest]:
    """Yield a pod to be created in all variations, half of which the policy selects."""
    limits, requests = recorded.get("limits", {}), recorded.get("requests", {})
    for variation in range(_VARIATIONS_OF_PODS):
        labels = _labels(texts, f"pod {variation}")
        namespace_labels = _labels(texts, f"namespace {variation}")
        if variation % 2:
            labels = _selected(labels, policy.object_selector)
            namespace_labels = _selected(namespace_labels, policy.namespace_selector)
        pod = {
            "metadata": {
                "name": recorded["name"],
                "namespace": _NAMESPACE,
                "labels": labels,
                "annotations": _labels(texts, f"annotated pod {variation}"),
            },
            "spec": {
                "containers": [
                    {"name": "main", "resources": {"requests": requests, "limits": limits}}
                ],
                "priority": recorded.get("priority", 0),
            },
        }
        yield PlacementRequest(
            pod=_decoded("Pod", pod),
            raw=msgspec.json.encode(pod),
            namespace_labels=namespace_labels,
            request={"operation": "CREATE", "namespace": _NAMESPACE, "name": recorded["name"]},
        )


def _labels(texts: Iterable[str], owner: str) -> dict[str, str]:
    """Return labels of a node or pod: two of three keys, each with some text."""
    values = (*texts, *_COMMON_TEXTS)
    labels: dict[str, str] = {}
    for key in filter(is_label_key, texts):
        number = crc32(f"{key} of {owner}".encode())
        if number % _ONE_IN_THREE:
            labels[key] = values[number // _ONE_IN_THREE % len(values)]
    return labels


def _selected(labels: Mapping[str, str], selector: LabelSelector) -> dict[str, str]:
    """Return labels changed so that a selector selects them."""
    chosen = dict(labels)
    for requirement in selector.requirements:
        if requirement.matches(chosen.get(requirement.key)):
            continue
        chosen.pop(requirement.key, None)
        if requirement.operator in {Operator.IN, Operator.EXISTS}:
            chosen[requirement.key] = min(requirement.values, default="x")
    return chosen


_VARIED: Final = frozenset(
    {
        *(("node", name) for name in ("allocatable", "requested", "limits", "usage")),
        *(("node", name) for name in ("creationTimestamp", "podCount", "ready", "unschedulable")),
        *(("pod", name) for name in ("limits", "priority", "qosClass", "requests")),
        ("nodes",),
        ("now",),
    }
)
"""What the samples vary as far as real clusters do."""


@dataclass(frozen=True, slots=True)
class _Trial:
    """A rule evaluated for one pod."""

    request: PlacementRequest  # the pod
    # a number for each node, not finite where it could not be evaluated; of a filter 1 where a node
    # passes, else 0
    values: NDArray[np.float64]
    error: str  # why the first such node could not be

    @property
    def fails(self) -> bool:
        """Whether it could not be evaluated for any node."""
        return not bool(np.isfinite(self.values).any())


def effect_findings(policy: CompiledPolicy, samples: Samples) -> Iterator[Finding]:
    """Yield a finding for each part of a policy that has no effect or cannot be evaluated."""
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
