"""The cluster and the pods that a policy is tried on: those of `cluster.yaml`, varied for it.

Nodes and pods of a real cluster have the labels that its policies speak of. So the texts of a
policy serve as keys and values of labels: each text is a label of some nodes and pods, with each
text as its value on some of them. All of it is deterministic.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from functools import cache, lru_cache
from importlib.resources import files
from typing import Any, Final
from zlib import crc32

import msgspec

from engine.cel import ast
from engine.documents import read_documents
from engine.errors import StowplanError
from engine.model.kinds import KINDS
from engine.model.node import Node
from engine.model.pod import Pod
from engine.model.request import PlacementRequest
from engine.model.selectors import LabelSelector, Operator, is_label_key
from engine.model.time import Micros, micros
from engine.model.usage import NodeUsage
from engine.policy import CompiledPolicy
from engine.view import ClusterState, ClusterView

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
    """What a policy is tried on.

    Attributes:
        view: the cluster.
        now: the moment.
        selected: pods to be created that the policy's selectors select.
        requests: those of them that meet its match conditions.
        is_over: whether the time is up.
    """

    view: ClusterView
    now: Micros
    selected: tuple[PlacementRequest, ...]
    requests: tuple[PlacementRequest, ...]
    is_over: Callable[[], bool]

    def in_time(self, requests: Iterable[PlacementRequest]) -> Iterator[PlacementRequest]:
        """Yield requests to evaluate a part of the policy for.

        Raises:
            OutOfTimeError: the time is up, perhaps while the last of them was evaluated.
        """
        for request in requests:
            self._check_time()
            yield request
        self._check_time()

    def _check_time(self) -> None:
        if self.is_over():
            raise OutOfTimeError


def samples_for(policy: CompiledPolicy, is_over: Callable[[], bool] = lambda: False) -> Samples:
    """Return the cluster and the pods to try a policy on.

    Args:
        policy: the policy.
        is_over: whether the time to try it is up.
    """
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
