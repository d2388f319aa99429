"""Who arrives when: the pods of a recording, those of manifests, or a generated day of them."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final, Protocol, Self, TypeAlias

import msgspec
import numpy as np
from msgspec import structs

from engine.errors import StowplanError, counted, did_you_mean
from engine.model import api
from engine.model.kinds import AuxObject
from engine.model.node import Node
from engine.model.pod import Pod, deployment_pod_of
from engine.model.pod_shape import PodShape
from engine.model.quantity import CPU, MEMORY
from engine.model.time import SECOND, Micros, micros
from engine.model.usage import NO_POD_USAGES, NodeUsage
from engine.placement import ANNOTATIONS
from engine.plugins.load_aware.estimation import Estimation, estimate_vector
from engine.report import ArrivalSource
from engine.view import ClusterState, ClusterView, IntColumn
from engine.view.namespaces import NamespaceFacts

# What each pod has in use, from what a recording knows of nodes.
#
# A report that measures pods gives the load of those. What is left of the usage of its node,
# without what the system has in use, is divided among the others in proportion to their requests,
# to their estimates where they request nothing. On a node without a report a pod has its estimate
# in use.


RESOURCES: Final = (CPU, MEMORY)
"""Resources that load is known of."""

Load: TypeAlias = IntColumn
"""Base units by RESOURCES, shape (2,)."""

_ESTIMATION: Final = Estimation(known=RESOURCES, factors=((CPU, 85), (MEMORY, 70)))


def estimated_load(shape: PodShape) -> Load:
    """Return what a pod of this shape is expected to have in use: LoadAware's default estimate."""
    return np.array(estimate_vector(shape, _ESTIMATION), np.int64)


def loads_on_node(pods: Iterable[Pod], report: NodeUsage | None) -> Mapping[str, Load]:
    """Return the load of the pods of one node, by `namespace/name`."""
    listed = list(pods)
    if report is None or report.usage is None:
        return {pod.key: estimated_load(pod.shape) for pod in listed}
    measured = {
        pod.key: _vector(usage.amounts)
        for pod in listed
        if (usage := report.pods.get(pod.key)) is not None
    }
    others = [pod for pod in listed if pod.key not in measured]
    if not others:
        return measured
    left = _vector(report.usage) - _vector(report.system_usage) - sum(measured.values())
    weights = np.array([_weight(pod.shape) for pod in others], np.int64)
    totals = np.maximum(weights.sum(axis=0), 1)
    shares = weights * (np.maximum(left, 0) / totals)
    return {
        **measured,
        **{pod.key: load for pod, load in zip(others, shares.astype(np.int64), strict=True)},
    }


def base_load(report: NodeUsage | None, moved: Iterable[Load]) -> Load:
    """Return what a node has in use without some of its pods; never negative."""
    whole = np.zeros(len(RESOURCES), np.int64)
    if report is not None and report.usage is not None:
        whole = _vector(report.usage)
    for load in moved:
        whole = whole - load
    return np.maximum(whole, 0)


def _weight(shape: PodShape) -> tuple[int, ...]:
    estimated = estimate_vector(shape, _ESTIMATION)
    requested = [shape.requests.get(name, 0) for name in RESOURCES]
    return tuple([own or guess for own, guess in zip(requested, estimated, strict=True)])


def _vector(amounts: Mapping[str, int]) -> Load:
    return np.array([amounts.get(name, 0) for name in RESOURCES], np.int64)


DAY_SECONDS: Final = 86_400
_BUSIEST: Final = 14 / 24  # of the day
_SWING: Final = 0.75  # of the mean rate: the quietest moment has a quarter of it
_OURS: Final = frozenset(ANNOTATIONS)
_decode: Final = msgspec.json.Decoder(api.Pod).decode


class RecordedPod(msgspec.Struct, frozen=True, gc=False):
    """A pod as it was recorded, or as a manifest has it.

    Attributes:
        pod: its model.
        raw: the object as JSON.
    """

    pod: Pod
    raw: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class Arrival:
    """A pod that is to be placed."""

    # as it would be created: on no node, without gates and without notes of ours; with the name
    # that it has afterwards
    pod: Pod
    raw: bytes  # the same as JSON, as webhooks get it: without a name that is generated
    at: int = 0  # microseconds since the first arrival
    ends_at: int | None = None  # when it is gone, in the same; None for never
    recorded_on: str = ""  # the node that it was recorded on, "" for none
    like: str = ""  # `namespace/name` of the recorded pod whose load it has, "" for none
    # whether it was created before, and waits for a node: quotas have let it in
    exists: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Arrivals:
    """Pods that are to be placed.

    Attributes:
        source: where they come from.
        pods: in order of arrival.
        moves: `namespace/name` of recorded pods that do not stay where they are.
        request: the fields of the admission request that expressions may read.
    """

    source: ArrivalSource
    pods: Sequence[Arrival]
    moves: frozenset[str] = frozenset()
    request: Mapping[str, Any] = field(default_factory=lambda: {"operation": "CREATE"})

    @property
    def are_created(self) -> bool:
        """Whether pods are created now, so that quotas judge them; else they were long ago."""
        return self.source in {ArrivalSource.MANIFESTS, ArrivalSource.CHANGES}

    @property
    def figures_at(self) -> int:
        """The moment of all figures, in microseconds since the first arrival.

        The end; where pods end, the first moment at which most run if all fit.
        """
        if all(arrival.ends_at is None for arrival in self.pods):
            return max((arrival.at for arrival in self.pods), default=0)
        changes = [(arrival.at, 1) for arrival in self.pods]
        changes += [(each.ends_at, -1) for each in self.pods if each.ends_at is not None]
        changes.sort()
        running = np.cumsum([change for _, change in changes])
        return changes[int(running.argmax())][0]


def is_movable(pod: Pod) -> bool:
    """Return whether a pod may be placed elsewhere: it is of no DaemonSet, and no mirror pod."""
    return not (pod.is_daemon_set or pod.is_mirror or pod.is_terminal)


def owner_name(pod: Pod, raw: bytes) -> str:
    """Return `namespace/name` of what made a pod, "" for nothing; `raw`: the pod as JSON."""
    owners = _decode(raw).metadata.owner_references or ()
    return f"{pod.namespace}/{owners[0].name}" if owners else ""


def recorded_arrivals(pods: Iterable[RecordedPod]) -> Arrivals:
    """Return the pods of a recording in order of their creation; all nodes are emptied of them.

    Args:
        pods: all pods of the recording. Those that are pinned to their node stay there.
    """
    return _arrivals(ArrivalSource.RECORDING, [each for each in pods if is_movable(each.pod)])


def manifest_arrivals(pods: Iterable[RecordedPod]) -> Arrivals:
    """Return new pods in their order, which arrive at once on the cluster as it is."""
    arrivals = [replace(new_arrival(each), recorded_on="", like="", exists=False) for each in pods]
    return Arrivals(source=ArrivalSource.MANIFESTS, pods=arrivals)


def arrivals_at_once(
    source: ArrivalSource, pods: Iterable[RecordedPod], more: Iterable[Arrival] = ()
) -> Arrivals:
    """Return recorded pods that are to be placed at once, in order of creation, then others."""
    arrivals = _arrivals(source, list(pods))
    at_once = [replace(arrival, at=0) for arrival in (*arrivals.pods, *more)]
    return replace(arrivals, pods=at_once)


def new_arrival(recorded: RecordedPod) -> Arrival:
    """Return a pod as it arrives at once."""
    return _arrival(recorded, at=0)


def generated_arrivals(pods: Iterable[RecordedPod], seed: int) -> Arrivals:
    """Return a day of pods like those of a recording.

    All of those are there at its beginning, in order of their creation. As many more come over the
    day, each like one of them, at a rate that rises to 1.75 times its mean at 14:00 and falls to a
    quarter at 2:00. A pod lives for an exponentially distributed time with a mean of one day.

    Args:
        pods: all pods of the recording.
        seed: the same gives the same day.
    """
    random = np.random.default_rng(seed)
    templates = recorded_arrivals(pods)
    count = len(templates.pods)
    lives = random.exponential(DAY_SECONDS * SECOND, 2 * count).astype(np.int64).tolist()
    first = [
        replace(arrival, at=0, ends_at=life)
        for arrival, life in zip(templates.pods, lives, strict=False)
    ]
    moments = _moments(random, count)
    chosen = random.integers(0, max(count, 1), count).tolist()
    later = [
        _copy(templates.pods[template], number, at, at + life)
        for number, (template, at, life) in enumerate(
            zip(chosen, moments, lives[count:], strict=True)
        )
    ]
    return replace(templates, source=ArrivalSource.GENERATED, pods=[*first, *later])


def copies(arrival: Arrival, count: int) -> list[Arrival]:
    """Return so many new pods like one that arrives, each with a name of its own."""
    return [_copy(arrival, number, arrival.at, None) for number in range(count)]


def _arrivals(source: ArrivalSource, pods: Sequence[RecordedPod]) -> Arrivals:
    ordered = sorted(pods, key=lambda each: (_created(each.pod), each.pod.key))
    start = _created(ordered[0].pod) if ordered else 0
    return Arrivals(
        source=source,
        pods=[_arrival(each, at=_created(each.pod) - start) for each in ordered],
        moves=frozenset(each.pod.key for each in ordered),
    )


def _created(pod: Pod) -> Micros:
    return Micros(0) if pod.created is None else micros(pod.created)


def _arrival(recorded: RecordedPod, *, at: int) -> Arrival:
    pod = recorded.pod
    return Arrival(
        pod=msgspec.structs.replace(
            pod,
            annotations=_without_ours(pod.annotations),
            node_name="",
            scheduling_gates=(),
            nominated_node_name="",
            phase="",
            deleting=False,
            scheduled_at=None,
            initialized_at=None,
        ),
        raw=_as_created(recorded.raw),
        at=at,
        recorded_on=pod.node_name,
        like=pod.key,
        exists=not pod.node_name,
    )


def _without_ours(annotations: Mapping[str, str]) -> Mapping[str, str]:
    if _OURS.isdisjoint(annotations):
        return annotations
    return {name: text for name, text in annotations.items() if name not in _OURS}


def _as_created(raw: bytes) -> bytes:
    """Return a pod as it was before it was scheduled and we wrote on it."""
    document = msgspec.json.decode(raw, type=dict[str, Any])
    document.pop("status", None)
    spec = {**(document.get("spec") or {})}
    for name in ("nodeName", "schedulingGates"):
        spec.pop(name, None)
    metadata = {**(document.get("metadata") or {})}
    metadata["annotations"] = _without_ours(metadata.get("annotations") or {})
    if metadata.get("generateName"):
        metadata.pop("name", None)
    return msgspec.json.encode({**document, "metadata": metadata, "spec": spec})


def _copy(template: Arrival, number: int, at: int, ends_at: int | None) -> Arrival:
    """Return another pod like one."""
    pod = template.pod
    name = f"{pod.generate_name or f'{pod.name}-'}new-{number}"
    copied = msgspec.structs.replace(pod, name=name, uid=f"{pod.uid}/{number}")
    return replace(template, pod=copied, at=at, ends_at=ends_at, recorded_on="", exists=False)


def _moments(random: np.random.Generator, count: int) -> list[int]:
    """Return moments of a day in ascending order, in microseconds, dense where it is busy.

    The rate at the fraction x of the day is 1 + SWING cos(2 pi (x - BUSIEST)) times its mean;
    moments are drawn by inverting its integral on a grid of seconds.
    """
    grid = np.arange(DAY_SECONDS + 1) / DAY_SECONDS
    turn = 2 * math.pi
    integral = grid + _SWING / turn * (np.sin(turn * (grid - _BUSIEST)) + math.sin(turn * _BUSIEST))
    drawn = np.sort(random.random(count))
    seconds = np.interp(drawn, integral, grid * DAY_SECONDS)
    moments: list[int] = (seconds * SECOND).astype(np.int64).tolist()
    return moments


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordedCluster:
    """A recorded cluster, or what a what-if makes of it.

    Attributes:
        nodes: in the order of all columns of a report.
        reports: the usage of nodes, by name; some may have none.
        pods: those that run or wait.
        namespaces: labels and quotas.
        extras: objects that only some rules read.
        now: the moment that all ages are judged at.
    """

    nodes: tuple[Node, ...]
    reports: Mapping[str, NodeUsage]
    pods: tuple[RecordedPod, ...]
    namespaces: NamespaceFacts
    extras: tuple[AuxObject, ...]
    now: Micros

    @classmethod
    def of(cls, view: ClusterView, pods: Iterable[RecordedPod], now: Micros) -> Self:
        """Return the cluster of a view and of all pods that it counts.

        Args:
            view: the cluster.
            pods: in any order.
            now: the moment of the recording.
        """
        nodes = sorted((node for node in view.nodes if node is not None), key=lambda it: it.name)
        usages = (usage for usage in view.usages if usage is not None)
        return cls(
            nodes=tuple(nodes),
            reports={usage.node_name: usage for usage in usages},
            pods=tuple(pods),
            namespaces=view.namespaces,
            extras=tuple(view.extras.values()),
            now=now,
        )

    def loads(self) -> dict[str, Load]:
        """Return the load of each pod by `namespace/name`; see `load`."""
        on_node: dict[str, list[RecordedPod]] = {}
        for each in self.pods:
            on_node.setdefault(each.pod.node_name, []).append(each)
        loads: dict[str, Load] = {}
        for name, pods in on_node.items():
            loads |= loads_on_node([each.pod for each in pods], self.reports.get(name))
        return loads

    def waiting(self) -> Sequence[RecordedPod]:
        """Return the pods that wait for a node."""
        return [each for each in self.pods if not each.pod.node_name and is_movable(each.pod)]

    def empty_state(self) -> ClusterState:
        """Return a state with all but pods and usage."""
        state = ClusterState()
        for node in self.nodes:
            state.set_node(node)
        facts = self.namespaces
        for name, labels in facts.labels.items():
            state.set_namespace(name, labels, quota_mode=facts.quota_modes.get(name, ""))
        for quotas in facts.quotas.values():
            for quota in quotas:
                state.set_quota(quota)
        for extra in self.extras:
            state.set_extra(extra)
        return state


_HOSTNAME: Final = "kubernetes.io/hostname"


class ChangeError(StowplanError):
    """A change that cannot be made to a cluster."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Changed:
    """A cluster after changes."""

    cluster: RecordedCluster  # with all pods
    moves: frozenset[str] = frozenset()  # `namespace/name` of those that have to go elsewhere
    ends: frozenset[str] = frozenset()  # the same of those that end
    new: tuple[Arrival, ...] = ()  # pods to come


class Change(Protocol):
    """A change to a cluster."""

    def describe(self, cluster: RecordedCluster) -> str:
        """Return it in a line, such as `drain node1`."""

    def apply(self, changed: Changed) -> Changed:
        """Return the cluster after it.

        Raises:
            ChangeError: it cannot be made.
        """


@dataclass(frozen=True, slots=True)
class AddNodes:
    """Nodes are added, with pods of DaemonSets like those of an existing one.

    Attributes:
        count: how many.
        like: name of the existing node; "" for one of the most common kind.
    """

    count: int
    like: str = ""

    def describe(self, cluster: RecordedCluster) -> str:
        """Return it in a line."""
        return f"add {counted(self.count, 'node')} like {self._template(cluster).name}"

    def apply(self, changed: Changed) -> Changed:
        """Return the cluster with the nodes."""
        cluster = changed.cluster
        template, names = self._template(cluster), {node.name for node in cluster.nodes}
        loads, nodes, pods, reports = cluster.loads(), [], [], dict(cluster.reports)
        on_template = [each for each in cluster.pods if each.pod.node_name == template.name]
        pinned = [each for each in on_template if not is_movable(each.pod)]
        report = cluster.reports.get(template.name)
        moving = [loads[each.pod.key] for each in on_template if is_movable(each.pod)]
        idle = dict(zip(RESOURCES, base_load(report, moving).tolist(), strict=True))
        host, dot, domain = template.name.partition(".")
        for number in range(1, self.count + 1):
            name = f"{host}-added-{number}{dot}{domain}"
            if name in names:
                raise ChangeError(f"there is a node `{name}` already")
            nodes.append(_clone(template, name))
            pods += [_moved(each, name) for each in pinned]
            if report is not None and report.usage is not None:
                reports[name] = replace(
                    report, node_name=name, usage={**report.usage, **idle}, pods=NO_POD_USAGES
                )
        ordered = sorted((*cluster.nodes, *nodes), key=lambda node: node.name)
        grown = replace(cluster, nodes=tuple(ordered), reports=reports, pods=(*cluster.pods, *pods))
        return replace(changed, cluster=grown)

    def _template(self, cluster: RecordedCluster) -> Node:
        if self.like:
            return _node(cluster, self.like)
        able = [node for node in cluster.nodes if node.ready and not node.unschedulable]
        if not able:
            raise ChangeError("no node is ready that new ones could be like")
        kinds = Counter(_kind(node) for node in able)
        ((common, _),) = kinds.most_common(1)
        return next(node for node in able if _kind(node) == common)


@dataclass(frozen=True, slots=True)
class DrainNode:
    """A node is cordoned, and its pods have to go elsewhere, but those of DaemonSets.

    Attributes:
        node: its name.
    """

    node: str

    def describe(self, cluster: RecordedCluster) -> str:  # noqa: ARG002 (protocol)
        """Return it in a line."""
        return f"drain {self.node}"

    def apply(self, changed: Changed) -> Changed:
        """Return the cluster with the node cordoned."""
        drained = _node(changed.cluster, self.node)
        nodes = tuple(
            replace(node, unschedulable=True) if node is drained else node
            for node in changed.cluster.nodes
        )
        leaving = {
            each.pod.key
            for each in changed.cluster.pods
            if each.pod.node_name == drained.name and is_movable(each.pod)
        }
        cluster = replace(changed.cluster, nodes=nodes)
        return replace(changed, cluster=cluster, moves=changed.moves | leaving)


@dataclass(frozen=True, slots=True)
class ScaleDeployment:
    """A Deployment gets another number of pods, of the template of its newest one."""

    namespace: str
    name: str
    replicas: int

    def describe(self, cluster: RecordedCluster) -> str:
        """Return it in a line."""
        now = len(_pods_of(cluster.pods, self.namespace, self.name))
        return f"scale {self.namespace}/{self.name} from {now} to {self.replicas}"

    def apply(self, changed: Changed) -> Changed:
        """Return the cluster without the newest pods that are too many, or with more to come."""
        own = _pods_of(changed.cluster.pods, self.namespace, self.name)
        if not own:
            raise _unknown_deployment(changed.cluster.pods, self.namespace, self.name)
        if self.replicas < len(own):
            surplus = {each.pod.key for each in own[self.replicas :]}
            return replace(changed, moves=changed.moves - surplus, ends=changed.ends | surplus)
        more = copies(new_arrival(own[-1]), self.replicas - len(own))
        return replace(changed, new=(*changed.new, *more))


def capacity_buffer(
    cluster: RecordedCluster, namespace: str, name: str, replicas: int
) -> tuple[Pod, ...]:
    """Return the placeholders of a CapacityBuffer that refers to a Deployment.

    Args:
        cluster: whose newest pod of the Deployment they are like.
        namespace: of the Deployment.
        name: of the Deployment.
        replicas: how many there are.

    Raises:
        ChangeError: no pod of the Deployment is recorded.
    """
    own = _pods_of(cluster.pods, namespace, name)
    if not own:
        raise _unknown_deployment(cluster.pods, namespace, name)
    return placeholders(own[-1], replicas)


def placeholders(recorded: RecordedPod, count: int) -> tuple[Pod, ...]:
    """Return so many pods like one, which an autoscaler keeps room for."""
    return tuple(each.pod for each in copies(new_arrival(recorded), count))


def _pods_of(pods: Iterable[RecordedPod], namespace: str, name: str) -> list[RecordedPod]:
    """Return the pods of a Deployment, those that run first, the oldest first."""
    own = [each for each in pods if _deployment(each.pod) == f"{namespace}/{name}"]
    return sorted(own, key=lambda each: (not each.pod.node_name, str(each.pod.created)))


def _unknown_deployment(pods: Iterable[RecordedPod], namespace: str, name: str) -> ChangeError:
    """Return that a Deployment has no pod, and what may have been meant."""
    key = f"{namespace}/{name}"
    known = sorted({owner for each in pods if (owner := _deployment(each.pod))})
    meant = did_you_mean(key, known) or f"such as `{known[0]}`" if known else "none has any"
    return ChangeError(
        f"no pod of Deployment `{key}` is recorded"
        f"\nhint: a Deployment is known by its pods; {meant}"
    )


def _deployment(pod: Pod) -> str:
    """Return namespace and name of the Deployment of a pod that has not ended, "" without one."""
    if pod.is_terminal or pod.deleting:
        return ""
    owner = deployment_pod_of(pod.generate_name, pod.labels, pod.owner_kinds)
    return f"{pod.namespace}/{owner.deployment}" if owner is not None else ""


def _node(cluster: RecordedCluster, name: str) -> Node:
    """Return the node of a name; its domain may be left out, as tables do, where one has it."""
    named = [node for node in cluster.nodes if node.name == name]
    found = named or [node for node in cluster.nodes if node.name.startswith(f"{name}.")]
    if len(found) == 1:
        return found[0]
    known = [each.name for each in found] or [node.name for node in cluster.nodes]
    short = [each.partition(".")[0] for each in known]
    hint = did_you_mean(name, known) or did_you_mean(name, short) or f"such as `{known[0]}`"
    raise ChangeError(f"no node `{name}` is recorded\nhint: {hint}")


def _kind(node: Node) -> tuple[tuple[str, int], ...]:
    return tuple(sorted(node.allocatable.items()))


def _clone(node: Node, name: str) -> Node:
    labels = {**node.labels, _HOSTNAME: name} if _HOSTNAME in node.labels else node.labels
    return replace(node, name=name, labels=labels, unschedulable=False, created=None)


def _moved(recorded: RecordedPod, node_name: str) -> RecordedPod:
    """Return a pod like one of a DaemonSet, on another node."""
    pod = recorded.pod
    name, uid = f"{pod.name}-{node_name}", f"{pod.uid}/{node_name}"
    return RecordedPod(structs.replace(pod, name=name, uid=uid, node_name=node_name), recorded.raw)


@dataclass(frozen=True, slots=True, kw_only=True)
class Scenario:
    """A cluster after changes, and who arrives.

    Attributes:
        cluster: after the changes.
        arrivals: the pods that are to be placed.
        changes: each in a line.
    """

    cluster: RecordedCluster
    arrivals: Arrivals
    changes: tuple[str, ...] = ()


def what_if(
    cluster: RecordedCluster, changes: Sequence[Change], arrivals: Arrivals | None = None
) -> Scenario:
    """Return a cluster after changes, made in order.

    Args:
        cluster: as it was recorded.
        changes: to be made.
        arrivals: the pods that are to be placed; None for those that wait in the recording, that
            have to move or that are new by the changes. Other arrivals come after those.

    Raises:
        ChangeError: one cannot be made.
    """
    changed, lines = Changed(cluster=cluster), []
    for change in changes:
        lines.append(change.describe(changed.cluster))
        changed = change.apply(changed)
    return Scenario(
        cluster=changed.cluster,
        arrivals=_scenario_arrivals(changed, arrivals),
        changes=tuple(lines),
    )


def _scenario_arrivals(changed: Changed, given: Arrivals | None) -> Arrivals:
    cluster = changed.cluster
    if given is not None and given.source is not ArrivalSource.MANIFESTS:
        ended = [each for each in given.pods if each.pod.key not in changed.ends]
        return replace(given, pods=[*ended, *changed.new], moves=given.moves | changed.ends)
    waiting = cluster.waiting() if given is None else ()
    moving = [each for each in cluster.pods if each.pod.key in changed.moves]
    more = (*changed.new, *(() if given is None else given.pods))
    source = ArrivalSource.CHANGES if given is None else given.source
    arrivals = arrivals_at_once(source, (*waiting, *moving), more)
    return replace(arrivals, moves=arrivals.moves | changed.ends)
