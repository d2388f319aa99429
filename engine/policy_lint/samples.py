"""Clusters and pods that policies are tried on.

Without a recording it is the small cluster of `cluster.yaml`, varied for the policy: each label
that it reads has the values that it is compared with on some nodes and pods, and others lack it.
Namespaces, owners, schedulers and priority classes of pods are those that it speaks of. All of it
is deterministic.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from functools import cache, lru_cache
from importlib.resources import files
from itertools import islice, product
from math import prod
from typing import Any, Final, NamedTuple, TypeAlias
from zlib import crc32

import msgspec
import numpy as np

from engine.cel import Program, ast
from engine.documents import read_documents
from engine.errors import StowplanError, counted
from engine.model.decision import PlacementRequest
from engine.model.kinds import KINDS
from engine.model.node import Node
from engine.model.pod import MIRROR_ANNOTATION, Pod
from engine.model.selectors import LabelSelector, Operator, is_label_key, is_label_value
from engine.model.time import SECOND, Micros, micros
from engine.model.usage import NodeUsage
from engine.model.well_known import NAMESPACE_NAME_LABEL, SYSTEM_CLASSES
from engine.pipeline import SYSTEM_NAMESPACES, Scope, skip_reason
from engine.policy import CompiledPolicy
from engine.policy.environment import reads_owner_pods
from engine.policy_lint.reads import ANY, EQUALITIES, ORDERS, ReadPath, Reads
from engine.view import ClusterState, ClusterView, PodSumProfile

_Json = dict[str, Any]

_KINDS: Final = {kind.kind: kind for kind in KINDS}
_VARIATIONS_OF_NODES: Final = 8
_VARIATIONS_OF_PODS: Final = 4
_MOST_TEXTS: Final = 64
_MOST_CREATED: Final = 512  # pods, of which most are not selected where there are so many
_MOST_IDENTITIES: Final = 128
_MOST_VALUES: Final = 24  # of a field of an identity
_MOST_TRIED: Final = 32  # pods that rules are evaluated for
_MOST_RECORDED: Final = 300  # of a recording
_COMMON_TEXTS: Final = ("", "true", "1", "7", "x")
_OTHER: Final = "unheard-of"  # a text that no policy speaks of
_REPLICATED: Final = "ReplicaSet"  # the owner of which nodes have pods
_WITHOUT_REPLICAS: Final = "c"  # a zone
_ONE_IN_THREE: Final = 3  # of the nodes and pods lacks a label
_HOUR: Final = 3600 * SECOND
_HOURS: Final = (*range(7 * 24), *range(7 * 24, 366 * 24, 5 * 24 + 1))
_AMOUNTS: Final = frozenset({"allocatable", "limits", "requested", "requests", "usage"})
_MAPS: Final = frozenset({"annotations", "labels"})

TAINTS: Final[Mapping[str, tuple[str, ...]]] = {
    "DiskPressure": ("node.kubernetes.io/disk-pressure",),
    "MemoryPressure": ("node.kubernetes.io/memory-pressure",),
    "NetworkUnavailable": (
        "node.kubernetes.io/network-unavailable",
        "node.cloudprovider.kubernetes.io/uninitialized",
    ),
    "PIDPressure": ("node.kubernetes.io/pid-pressure",),
    "NotReady": ("node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable"),
    "Unschedulable": ("node.kubernetes.io/unschedulable",),
}
"""The taints that Kubernetes sets by the state of a node: pods do not tolerate them."""

REASONS: Final = {"True": "KubeletReady", "False": "KubeletNotReady"}
"""Why a node is ready, or is not, by the status."""

FAULTS: Final = ("DiskPressure", "MemoryPressure", "NetworkUnavailable", "PIDPressure")
"""Conditions of a node that keep new pods off it while they are true."""

_Values: TypeAlias = Mapping[str, tuple[str, ...]]
"""The values that labels have, by key."""


class OutOfTimeError(StowplanError):
    """The time to try a policy is up; what was found of the part that was tried is void."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Samples:
    """What a policy is tried on."""

    view: ClusterView  # the cluster
    now: Micros  # the moment
    moments: tuple[Micros, ...] = ()  # of all hours, days and months
    where: str  # the cluster, in words
    is_recorded: bool  # whether it is that of the author, not the built-in one
    selected: tuple[PlacementRequest, ...]  # pods to be created that the policy's selectors select
    requests: tuple[PlacementRequest, ...]  # those of them that it applies to
    left_alone: tuple[PlacementRequest, ...]  # those that it would, were they not out of scope
    all_pods: int  # that there are
    has_all_texts: bool = True  # whether labels have all values that the policy speaks of
    is_over: Callable[[], bool] = lambda: False  # whether the time is up

    @property
    def nodes(self) -> str:
        """All nodes of the cluster, in words."""
        return f"{counted(int(np.count_nonzero(self.view.valid)), 'node')} of the {self.where}"

    @property
    def no_effect(self) -> str:
        """That something does nothing, as far as is known."""
        return "it has no effect there" if self.is_recorded else "it has no effect"

    def in_time(self, requests: Iterable[PlacementRequest]) -> Iterator[PlacementRequest]:
        """Yield requests to evaluate a part of the policy for."""
        for request in requests:
            self._check_time()
            yield request
        self._check_time()

    def _check_time(self) -> None:
        if self.is_over():
            raise OutOfTimeError


def samples_for(
    policy: CompiledPolicy,
    is_over: Callable[[], bool] = lambda: False,
    others: Iterable[CompiledPolicy] = (),
) -> Samples:
    """Return the built-in cluster, and pods for a policy; varied for others, too."""
    policies = (policy, *others)
    values, has_all_texts = _values(policies)
    profiles = tuple(profile for each in policies for profile in each.sum_profiles)
    view, now = _cluster(tuple(values.items()), profiles)
    identities, are_all = _identities(policies)
    made = _requests(policies, identities, values)
    requests = [replace(each, expired=is_over) for each in made]
    if any(map(_reads_owners, policies)):
        view = _view(tuple(values.items()), profiles, list(_replicas(requests)))
    selected = tuple(request for request in requests if policy.selects(request))
    return Samples(
        view=view,
        now=now,
        moments=tuple(Micros(now + hours * _HOUR) for hours in _HOURS),
        where="built-in cluster",
        is_recorded=False,
        selected=selected,
        requests=_applying(policy, selected, now, left_alone=False),
        # Of some of the pods alone it is not known whether others are placed.
        left_alone=_applying(policy, selected, now, left_alone=True) if are_all else (),
        all_pods=len(requests),
        has_all_texts=has_all_texts,
        is_over=is_over,
    )


def samples_of(
    policy: CompiledPolicy, view: ClusterView, now: Micros, pods: Sequence[PlacementRequest]
) -> Samples:
    """Return a recorded cluster, with its pods as they would be created."""
    unlike: dict[object, PlacementRequest] = {}
    for request in filter(policy.selects, pods):  # one of those that differ in no more than name
        pod = request.pod
        unlike.setdefault((pod.namespace, pod.owner_uid or pod.name, pod.shape), request)
    selected = tuple(unlike.values())
    most = _MOST_RECORDED
    return Samples(
        view=view,
        now=now,
        where="recording",
        is_recorded=True,
        selected=selected,
        requests=_applying(policy, selected, now, left_alone=False, most=most),
        left_alone=_applying(policy, selected, now, left_alone=True, most=most),
        all_pods=len(pods),
    )


def _applying(
    policy: CompiledPolicy,
    selected: Iterable[PlacementRequest],
    now: Micros,
    *,
    left_alone: bool,
    most: int = _MOST_TRIED,
) -> tuple[PlacementRequest, ...]:
    """Return some of all pods that meet the match conditions, either in scope or out of it."""
    errors: list[str] = []
    found = [
        request
        for request in selected
        if bool(why_left_alone(request)) is left_alone and policy.meets(request, now, errors)
    ]
    return tuple(found[:: -(-len(found) // most)]) if found else ()


def why_left_alone(request: PlacementRequest) -> str:
    """Return why a pod is not placed, whatever policies and settings say; "" if it is."""
    # Which schedulers are advised is a setting.
    schedulers = ("default-scheduler", request.pod.scheduler_name)
    return skip_reason(request.pod, Scope(scheduler_names=schedulers))


def have_resources(programs: Iterable[Program]) -> bool:
    """Return whether nodes of the built-in cluster have each resource that programs name."""
    known = {name for node in _recorded()["nodes"] for name in node["size"]}
    for program in programs:
        reads = Reads(program.root)
        named = {each.key for each in reads.keys if each.path[-1] in _AMOUNTS}
        for each in (*reads.comparisons, *reads.searches):
            if each.path[-1:] == (ANY,) and each.path[-2] in _AMOUNTS:
                named.add(str(each.literal.value))
        if not named <= known:
            return False
    return True


def have_numbers(roots: Iterable[ast.Node]) -> bool:
    """Return whether the built-in cluster has numbers on all sides of those in comparisons.

    It is so of zero alone: real clusters have numbers between any others, and beyond them.
    """
    return not any(
        isinstance(each, ast.Literal) and _is_amount(each.value)
        for root in roots
        for node, _ in ast.walk(root)
        if isinstance(node, ast.Call)
        or (isinstance(node, ast.Binary) and node.operator in EQUALITIES | ORDERS | {"in"})
        for each, _ in ast.walk(node)
    )


def _is_amount(value: object) -> bool:
    """Return whether a constant is a number, a time or a duration, and not zero."""
    return not isinstance(value, bool | str | bytes | list | tuple | None) and value != 0


def _values(policies: Iterable[CompiledPolicy]) -> tuple[dict[str, tuple[str, ...]], bool]:
    """Return the values of each label that policies speak of, and whether they are all.

    They are what it is compared with and another one; any text where that is not known.
    """
    keys, texts, compared = set[str](), set[str](), dict[str, set[str]]()
    for policy in policies:
        for program in policy.programs:
            texts |= {key for path in program.references for key in path[2:]}
            reads = Reads(program.root)
            keys |= {each.key for each in reads.keys if each.path[-1] in _MAPS}
            for each in reads.comparisons:
                if isinstance(each.literal.value, str):
                    compared.setdefault(each.path[-1], set()).add(each.literal.value)
            for node, _ in ast.walk(program.root):
                if isinstance(node, ast.Literal) and isinstance(node.value, str):
                    texts.add(node.value)
        for selector in (policy.object_selector, policy.namespace_selector):
            for requirement in selector.requirements:
                keys.add(requirement.key)
                texts |= requirement.values
                compared.setdefault(requirement.key, set()).update(requirement.values)
    texts |= keys
    read, others = (sorted(filter(is_label_key, each)) for each in (keys, texts - keys))
    any_text = (*sorted(filter(is_label_value, texts))[:_MOST_TEXTS], *_COMMON_TEXTS)
    values = {
        key: (*sorted(compared[key]), _OTHER) if compared.get(key) else any_text
        for key in [*read, *others][:_MOST_TEXTS]
    }
    are_all = len(texts) <= _MOST_TEXTS or (
        len(read) <= _MOST_TEXTS and all(compared.get(key) for key in read)
    )
    return values, are_all


@cache
def _recorded() -> _Json:
    data = files(__package__).joinpath("cluster.yaml").read_bytes()
    (document,) = read_documents(data, "cluster.yaml")
    assert isinstance(document.value, dict)  # noqa: S101 - INVARIANT: our own file
    return document.value


@lru_cache(maxsize=8)
def _cluster(
    values: tuple[tuple[str, tuple[str, ...]], ...], profiles: tuple[PodSumProfile, ...]
) -> tuple[ClusterView, Micros]:
    """Return the nodes in all variations with their pods, and the moment."""
    return _view(values, profiles, ()), _now()


def _view(
    values: tuple[tuple[str, tuple[str, ...]], ...],
    profiles: tuple[PodSumProfile, ...],
    replicas: Collection[Pod],
) -> ClusterView:
    """Return the nodes with their pods, and more pods."""
    state = _state(profiles)
    nodes, _, _ = _objects()
    for number, node in enumerate(nodes):
        labels = _labels(dict(values), f"node {number}")
        annotations = _labels(dict(values), f"annotated node {number}")
        state.set_node(replace(node, labels={**node.labels, **labels}, annotations=annotations))
    for pod in replicas:
        state.set_pod(pod, seen_at=_now())
    view = state.view()
    for pod in replicas:
        state.delete_pod(pod.key)
    return view


@lru_cache(maxsize=4)
def _state(profiles: tuple[PodSumProfile, ...]) -> ClusterState:
    """Return a state with all pods, whose nodes get the labels of one policy after the other."""
    state = ClusterState()
    state.track_sums(profiles)
    nodes, usages, pods = _objects()
    for node in nodes:
        state.set_node(node)
    for usage in usages:
        state.set_usage(usage)
    for pod in pods:
        state.set_pod(pod, seen_at=_now())
    return state


@cache
def _now() -> Micros:
    return micros(datetime.fromisoformat(_recorded()["now"]))


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
                usage: NodeUsage = _decoded("NodeMetric", _usage(name, recorded))
                sixteenths = 16 - variation
                amounts = {
                    key: amount * sixteenths // 16 for key, amount in (usage.usage or {}).items()
                }
                usages.append(replace(usage, usage=amounts))
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
    faults = recorded.get("faults", ())
    taints = [recorded["taint"]] if "taint" in recorded else []
    taints += (key for state in _states(recorded) for key in TAINTS[state])
    changed = recorded["created"]
    statuses = {"Ready": ready, **dict.fromkeys(FAULTS, "False")}
    statuses |= dict.fromkeys(faults, "True")
    conditions = [
        {
            "type": name,
            "status": status,
            "lastTransitionTime": changed,
            "reason": REASONS[status] if name == "Ready" else "",
        }
        for name, status in statuses.items()
    ]
    return {
        "metadata": {"name": name, "labels": labels, "creationTimestamp": recorded["created"]},
        "spec": {
            "taints": [{"key": key, "effect": "NoSchedule"} for key in taints],
            "unschedulable": recorded.get("unschedulable", False),
        },
        "status": {"allocatable": recorded["size"], "conditions": conditions},
    }


def _states(recorded: _Json) -> Iterator[str]:
    """Yield why a node takes no pods."""
    yield from recorded.get("faults", ())
    if not recorded.get("ready", True):
        yield "NotReady"
    if recorded.get("unschedulable", False):
        yield "Unschedulable"


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
        "metadata": {"name": name, "namespace": "default", "uid": name},
        "spec": {"nodeName": node, "containers": [{"name": "main", "resources": resources}]},
        "status": {"phase": "Running"},
    }


class _Identity(NamedTuple):
    """What a pod is to others."""

    namespace: str
    owner: str  # the kind of its owner, "" for none
    scheduler: str
    priority_class: str


_USUAL: Final = _Identity("default", "", "default-scheduler", "")
_OUT_OF_SCOPE: Final = _Identity(
    SYSTEM_NAMESPACES[0], "DaemonSet", "another-scheduler", "system-node-critical"
)
_IDENTITY: Final[tuple[tuple[ReadPath, ...], ...]] = (
    (
        ("pod", "namespace"),
        ("request", "namespace"),
        ("object", "metadata", "namespace"),
        ("namespaceObject", "metadata", "name"),
        ("namespaceObject", "metadata", "labels", NAMESPACE_NAME_LABEL),
    ),
    (("pod", "ownerKinds", ANY),),
    (("pod", "schedulerName"), ("object", "spec", "schedulerName")),
    (
        ("pod", "priorityClassName"),
        ("object", "spec", "priorityClassName"),
        ("pod", "priority"),
        ("object", "spec", "priority"),
    ),
)
"""How policies read each field of an identity."""


def _may_be(text: str, path: ReadPath) -> bool:
    """Return whether the API server lets a pod have a value."""
    match path:
        case ("pod", "priorityClassName"):
            return not text.startswith("system-") or text in SYSTEM_CLASSES
        case ("pod", "namespace" | "schedulerName"):
            return text != ""
    return True


_PRIORITY_OF_SYSTEM: Final = 2_000_000_000  # and more; all other classes have half of it at most
_CHOICES: Final = re.compile(r"[|()^$]+|\.[*+]")
"""What stands between the texts that a pattern finds, as patterns of names are mostly written."""


def _identities(policies: Sequence[CompiledPolicy]) -> tuple[list[_Identity], bool]:
    """Return identities by which policies tell pods apart, and whether they are all there are."""
    named = {policy.namespace for policy in policies} - {""}
    domains: list[tuple[str, ...]] = []
    for paths, usual, other in zip(_IDENTITY, _USUAL, _OUT_OF_SCOPE, strict=True):
        spoken_of = {text for policy in policies for text in _spoken_of(policy, paths)}
        some = islice(sorted(spoken_of), _MOST_VALUES)
        known = (each for each in (usual, *some, other) if _may_be(each, paths[0]))
        domains.append(tuple(dict.fromkeys(known)))
        if not spoken_of:
            domains[-1] = (usual,)
    if any(map(_reads_owners, policies)):
        domains[1] = tuple(dict.fromkeys([*domains[1], _REPLICATED]))
    if named:
        domains[0] = tuple(sorted(named))
    step = -(-prod(map(len, domains)) // _MOST_IDENTITIES)
    found = [_Identity(*values) for values in islice(product(*domains), 0, None, step)]
    return found, step == 1


def _reads_owners(policy: CompiledPolicy) -> bool:
    return any(reads_owner_pods(program.references) for program in policy.programs)


def _replicas(requests: Iterable[PlacementRequest]) -> Iterator[Pod]:
    """Yield pods beside half of those to be created: up to three on a node, none in one zone."""
    for request in requests:
        pod = msgspec.json.decode(request.raw)
        of = f"{request.pod.namespace} {request.pod.name} {sorted(request.pod.labels.items())}"
        if _REPLICATED not in request.pod.owner_kinds or crc32(of.encode()) % 2:
            continue
        for recorded in _recorded()["nodes"]:
            if recorded.get("zone") == _WITHOUT_REPLICAS:
                continue
            node = f"{recorded['name']}-0"
            for number in range(max(crc32(f"{of} on {node}".encode()) % 7 - 3, 0)):
                name = f"{of} {node} {number}"
                pod["metadata"] |= {"name": name, "uid": name}
                pod["spec"]["nodeName"] = node
                yield _decoded("Pod", pod)


def _spoken_of(policy: CompiledPolicy, paths: Sequence[ReadPath]) -> Iterator[str]:
    """Yield the values that a policy gives a field, or looks for in it."""
    for program in policy.programs:
        reads = Reads(program.root)
        for each in (*reads.comparisons, *reads.searches):
            text = each.literal.value
            is_of_system = isinstance(text, int | float) and text >= _PRIORITY_OF_SYSTEM
            if each.path in paths and is_of_system:
                yield _OUT_OF_SCOPE.priority_class
            if each.path in paths and isinstance(text, str):
                for choice in _CHOICES.split(text) if each.operator == "matches" else (text,):
                    yield from (choice, f"{choice}{_OTHER}")
    for requirement in policy.namespace_selector.requirements:
        if ("namespaceObject", "metadata", "labels", requirement.key) in paths:
            yield from (*requirement.values, _OTHER)


def _requests(
    policies: Sequence[CompiledPolicy], identities: Sequence[_Identity], values: _Values
) -> Iterator[PlacementRequest]:
    """Yield pods to be created in all variations, half of which the first policy selects."""
    recorded = _recorded()["pods"]
    # Of all identities the same pods: what is found of one is not for want of others.
    each = -(-len(recorded) * _VARIATIONS_OF_PODS * len(identities) // _MOST_CREATED)
    for identity in identities:
        for pod in recorded[::each]:
            for variation in range(_VARIATIONS_OF_PODS):
                yield _request(pod, variation, identity, values, policies[0])


def _request(
    recorded: _Json, variation: int, identity: _Identity, values: _Values, policy: CompiledPolicy
) -> PlacementRequest:
    name = recorded["name"]
    labels = _labels(values, f"pod {name} {variation}")
    of_namespace = _labels(values, f"namespace {name} {variation}")
    if variation % 2:
        labels = _selected(labels, policy.object_selector)
        of_namespace = _selected(of_namespace, policy.namespace_selector)
    resources = {
        "requests": recorded.get("requests", {}),
        "limits": recorded.get("limits", {}),
    }
    if identity.owner == _REPLICATED:
        labels.setdefault("pod-template-hash", f"{crc32(f'{name} {variation}'.encode()):x}")
    owner = {"kind": identity.owner, "name": name, "uid": name, "controller": True}
    pod = {
        "metadata": {
            "name": name,
            "namespace": identity.namespace,
            "labels": labels,
            "annotations": {
                **_labels(values, f"annotated pod {name} {variation}"),
                **({MIRROR_ANNOTATION: name} if identity.owner == "Node" else {}),
            },
            **({"ownerReferences": [owner]} if identity.owner else {}),
        },
        "spec": {
            "containers": [{"name": "main", "resources": resources}],
            "priority": (
                _PRIORITY_OF_SYSTEM
                if identity.priority_class in SYSTEM_CLASSES
                else recorded.get("priority", 0)
            ),
            "schedulerName": identity.scheduler,
            **({"priorityClassName": identity.priority_class} if identity.priority_class else {}),
        },
    }
    return PlacementRequest(
        pod=_decoded("Pod", pod),
        raw=msgspec.json.encode(pod),
        namespace_labels={**of_namespace, NAMESPACE_NAME_LABEL: identity.namespace},
        request={"operation": "CREATE", "namespace": identity.namespace, "name": name},
    )


def _labels(values: _Values, owner: str) -> dict[str, str]:
    """Return labels of a node or pod: two of three keys, each with one of its values."""
    labels: dict[str, str] = {}
    for key, choices in values.items():
        number = crc32(f"{key} of {owner}".encode())
        if number % _ONE_IN_THREE:
            labels[key] = choices[number // _ONE_IN_THREE % len(choices)]
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
