"""The changes of a what-if: nodes added or drained, Deployments scaled."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Final, Protocol

from msgspec import structs

from engine.errors import StowplanError, did_you_mean
from engine.model.count_text import counted
from engine.model.deployment_pod import deployment_pod_of
from engine.model.node import Node
from engine.model.pod import Pod
from engine.model.usage import NO_POD_USAGES
from engine.simulation.arrivals import Arrival, RecordedPod, copies, is_movable, new_arrival
from engine.simulation.load import RESOURCES, base_load
from engine.simulation.recorded_cluster import RecordedCluster

_HOSTNAME: Final = "kubernetes.io/hostname"


class ChangeError(StowplanError):
    """A change that cannot be made to a cluster."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Changed:
    """A cluster after changes.

    Attributes:
        cluster: with all pods.
        moves: `namespace/name` of those that have to go elsewhere.
        ends: the same of those that end.
        new: pods to come.
    """

    cluster: RecordedCluster
    moves: frozenset[str] = frozenset()
    ends: frozenset[str] = frozenset()
    new: tuple[Arrival, ...] = ()


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
        now = len(self._pods(cluster.pods))
        return f"scale {self.namespace}/{self.name} from {now} to {self.replicas}"

    def apply(self, changed: Changed) -> Changed:
        """Return the cluster without the newest pods that are too many, or with more to come."""
        own = self._pods(changed.cluster.pods)
        if not own:
            raise ChangeError(self._unknown(changed.cluster.pods))
        if self.replicas < len(own):
            surplus = {each.pod.key for each in own[self.replicas :]}
            return replace(changed, moves=changed.moves - surplus, ends=changed.ends | surplus)
        more = copies(new_arrival(own[-1]), self.replicas - len(own))
        return replace(changed, new=(*changed.new, *more))

    def _pods(self, pods: Iterable[RecordedPod]) -> list[RecordedPod]:
        """Return the pods of the Deployment, those that run first, the oldest first."""
        own = [each for each in pods if self._owns(each)]
        return sorted(own, key=lambda each: (not each.pod.node_name, str(each.pod.created)))

    def _owns(self, recorded: RecordedPod) -> bool:
        key, pod = f"{self.namespace}/{self.name}", recorded.pod
        return pod.namespace == self.namespace and _deployment(pod) == key

    def _unknown(self, pods: Iterable[RecordedPod]) -> str:
        """Return that the Deployment has no pod, and what may have been meant."""
        key = f"{self.namespace}/{self.name}"
        known = sorted({name for each in pods if (name := _deployment(each.pod))})
        meant = did_you_mean(key, known) or f"such as `{known[0]}`" if known else "none has any"
        return (
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
