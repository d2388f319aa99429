"""Policies that a recorded cluster gives reason for: which, why, and with which figures.

Each reason is a fact of the recording. What a policy would change is for a simulation to say, and
how it is written for the caller.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from statistics import median
from typing import Final

from engine.errors import counted
from engine.model.node import PREFER_NO_SCHEDULE, Node, untolerated
from engine.model.pod import Pod
from engine.model.quantity import CPU, MEMORY, is_extended
from engine.model.well_known import ZONE_LABEL
from engine.view import ClusterView

LOAD_THRESHOLDS: Final[Mapping[str, int]] = {CPU: 65, MEMORY: 95}
"""Percent of usage beyond which a node is hot: those of Koordinator's LoadAware."""

_LIMIT_STEPS: Final[Mapping[str, int]] = {CPU: 50, MEMORY: 10}  # percent
_LEAST_LIMITS: Final[Mapping[str, int]] = {CPU: 150, MEMORY: 110}  # percent, of a bound
_FEWEST_REPLICAS: Final = 3
_CONTROLLERS: Final = frozenset({"ReplicaSet", "StatefulSet"})
_SPOT: Final = (
    ("karpenter.sh/capacity-type", "spot"),
    ("eks.amazonaws.com/capacityType", "SPOT"),
    ("cloud.google.com/gke-spot", "true"),
    ("kubernetes.azure.com/scalesetpriority", "spot"),
)
_GPU_LABELS: Final = (
    "nvidia.com/gpu.present",
    "cloud.google.com/gke-accelerator",
    "k8s.amazonaws.com/accelerator",
    "karpenter.k8s.aws/instance-gpu-count",
    "kubernetes.azure.com/accelerator",
)
_PERCENT: Final = 100


@dataclass(frozen=True, slots=True)
class Proposal:
    """A policy that a cluster gives reason for.

    Attributes:
        name: of the policy.
        reason: what the cluster shows, a sentence without a full stop.
        values: what the policy is written with, by names that its text has.
    """

    name: str
    reason: str
    values: Mapping[str, str] = field(default_factory=dict)


def proposals(view: ClusterView, pods: Iterable[Pod]) -> tuple[Proposal, ...]:
    """Return what a cluster gives reason for, most important first.

    Args:
        view: the cluster.
        pods: all of its pods.
    """
    placed = [pod for pod in pods if pod.node_name and not pod.is_terminal]
    cluster = _Placed(view, placed)
    return (
        *_hot_nodes(cluster),
        *_limits(cluster),
        *_soft_taints(cluster),
        *_gpus(cluster),
        *_spot(cluster),
        *_zones(cluster),
    )


class _Placed:
    """A cluster with its pods by node.

    Attributes:
        nodes: by name.
        on_node: the pods of each node.
        movable: the pods that a policy could place elsewhere, of all nodes.
    """

    def __init__(self, view: ClusterView, pods: Sequence[Pod]) -> None:
        self.nodes: dict[str, Node] = {node.name: node for node in view.nodes if node is not None}
        self.on_node: dict[str, list[Pod]] = {name: [] for name in self.nodes}
        for pod in pods:
            if pod.node_name in self.nodes:
                self.on_node[pod.node_name].append(pod)
        self.movable = [
            pod
            for each in self.on_node.values()
            for pod in each
            if not (pod.is_daemon_set or pod.is_mirror)
        ]
        self._usages = {each.node_name: each for each in view.usages if each is not None}

    def limits(self, resource: str) -> dict[str, float]:
        """Return the limits of the pods of each node in percent of what it offers."""
        return {
            name: _percent(sum(pod.shape.limits.get(resource, 0) for pod in pods), offered)
            for name, pods in self.on_node.items()
            if (offered := self.nodes[name].allocatable.get(resource, 0))
        }

    def usage(self, resource: str) -> dict[str, float]:
        """Return the usage of each node that is measured, in percent of what it offers."""
        measured = {
            name: each.usage for name, each in self._usages.items() if each.usage is not None
        }
        return {
            name: _percent(amounts.get(resource, 0), offered)
            for name, amounts in measured.items()
            if name in self.nodes and (offered := self.nodes[name].allocatable.get(resource, 0))
        }


def _percent(amount: int, of: int) -> float:
    return round(amount * _PERCENT / of, 1)  # as figures are shown, so that both count alike


def _hot_nodes(cluster: _Placed) -> Iterator[Proposal]:
    used = {resource: cluster.usage(resource) for resource in LOAD_THRESHOLDS}
    hot = {
        name
        for resource, most in LOAD_THRESHOLDS.items()
        for name, percent in used[resource].items()
        if percent > most
    }
    if not hot or len(hot) == len(cluster.nodes):
        return
    resource = max(used, key=lambda each: max(used[each].values()) / LOAD_THRESHOLDS[each])
    top = max(used[resource], key=lambda name: (used[resource][name], name))
    half = median(used[resource].values())
    yield Proposal(
        "away-from-hot-nodes",
        f"{len(hot)} of {counted(len(cluster.nodes), 'node')} use more than "
        f"{LOAD_THRESHOLDS[CPU]} % of their cpu or {LOAD_THRESHOLDS[MEMORY]} % of their memory: "
        f"{top} {used[resource][top]:.0f} % of its {resource}, where the median is {half:.0f} %",
    )


def _limits(cluster: _Placed) -> Iterator[Proposal]:
    bounds: dict[str, int] = {}
    reasons: list[str] = []
    for resource, step in _LIMIT_STEPS.items():
        shares = cluster.limits(resource)
        middle = median(shares.values()) if shares else 0
        bound = max(_LEAST_LIMITS[resource], math.ceil(middle / step) * step)
        bounds[resource] = bound
        above = [name for name, percent in shares.items() if percent > bound]
        if above:
            top = max(above, key=lambda name: (shares[name], name))
            reasons.append(
                f"above {bound} % of the {resource} on {len(above)} of "
                f"{counted(len(cluster.nodes), 'node')}, {shares[top]:.0f} % on {top}"
            )
    if reasons:
        yield Proposal(
            "limits-in-bounds",
            f"the limits of pods add up to much more than nodes have: {'; '.join(reasons)}",
            {resource: str(bound) for resource, bound in bounds.items()},
        )


def _soft_taints(cluster: _Placed) -> Iterator[Proposal]:
    tainted = {
        name: soft
        for name, node in cluster.nodes.items()
        if (soft := [taint for taint in node.taints if taint.effect == PREFER_NO_SCHEDULE])
    }
    unwanted = [
        pod
        for pod in cluster.movable
        if untolerated(tainted.get(pod.node_name, ()), pod.tolerations, (PREFER_NO_SCHEDULE,))
    ]
    if unwanted and len(tainted) < len(cluster.nodes):
        key = Counter(taint.key for soft in tainted.values() for taint in soft).most_common(1)[0][0]
        yield Proposal(
            "off-soft-taints",
            f"{counted(len(unwanted), 'pod')} without a toleration on "
            f"{counted(len(tainted), 'node')} with a soft taint, such as {key}",
        )


def _gpus(cluster: _Placed) -> Iterator[Proposal]:
    offers = Counter(
        resource
        for node in cluster.nodes.values()
        for resource, amount in node.allocatable.items()
        if amount and is_extended(resource) and "gpu" in resource
    )
    if not offers:
        return
    resource = min(offers, key=lambda each: (-offers[each], each))
    having = {name for name, node in cluster.nodes.items() if node.allocatable.get(resource)}
    guests = [
        pod
        for pod in cluster.movable
        if pod.node_name in having and not pod.shape.requests.get(resource)
    ]
    if guests and len(having) < len(cluster.nodes):
        key = _label_of(having, cluster.nodes)
        yield Proposal(
            "keep-off-gpu-nodes",
            f"{counted(len(guests), 'pod')} without a request for {resource} on "
            f"{counted(len(having), 'node')} that have it",
            {
                "resource": resource,
                "key": key or resource,
                "map": "node.labels" if key else "node.allocatable",
                "gpu_labels": f'{{ {key}: "true" }}' if key else "{}",
            },
        )
    begun = [name for name in having if _is_begun(cluster, name, resource)]
    if len(begun) > 1:
        yield Proposal(
            "pack-gpus",
            f"{counted(len(begun), 'node')} have some {resource} in use and some left, so a pod "
            "that asks for a whole node may find none",
            {"resource": resource},
        )


def _is_begun(cluster: _Placed, name: str, resource: str) -> bool:
    requests = (pod.shape.requests.get(resource, 0) for pod in cluster.on_node[name])
    return 0 < sum(requests) < cluster.nodes[name].allocatable[resource]


def _label_of(names: set[str], nodes: Mapping[str, Node]) -> str:
    """Return a well-known label that exactly these nodes have, "" where there is none."""
    for key in _GPU_LABELS:
        if {name for name, node in nodes.items() if key in node.labels} == names:
            return key
    return ""


def _spot(cluster: _Placed) -> Iterator[Proposal]:
    for key, value in _SPOT:
        spot = {name for name, node in cluster.nodes.items() if node.labels.get(key) == value}
        if not spot or len(spot) == len(cluster.nodes):
            continue
        batch = [pod for pod in cluster.movable if "Job" in pod.owner_kinds]
        others = [pod for pod in cluster.movable if "Job" not in pod.owner_kinds]
        strayed = sum(pod.node_name in spot for pod in others)
        missed = sum(pod.node_name not in spot for pod in batch)
        if not batch or not (strayed or missed):
            continue
        yield Proposal(
            "spot-for-batch",
            f"{len(spot)} of {counted(len(cluster.nodes), 'node')} are spot; "
            f"{strayed} of {counted(len(others), 'pod')} that are of no Job run there, and "
            f"{missed} of {counted(len(batch), 'pod')} of Jobs do not",
            {"key": key, "value": value},
        )
        return


def _zones(cluster: _Placed) -> Iterator[Proposal]:
    zones = {name: node.labels.get(ZONE_LABEL, "") for name, node in cluster.nodes.items()}
    if len({zone for zone in zones.values() if zone}) <= 1:
        return
    replicas: dict[str, list[Pod]] = {}
    for pod in cluster.movable:
        if pod.owner_uid and not _CONTROLLERS.isdisjoint(pod.owner_kinds):
            replicas.setdefault(pod.owner_uid, []).append(pod)
    many = [pods for pods in replicas.values() if len(pods) >= _FEWEST_REPLICAS]
    together = [pods for pods in many if len({zones[pod.node_name] for pod in pods}) == 1]
    if together:
        example = min(together, key=lambda pods: (-len(pods), pods[0].key))
        yield Proposal(
            "spread-over-zones",
            f"all replicas of {len(together)} of {counted(len(many), 'owner')} with "
            f"{_FEWEST_REPLICAS} or more run in one zone, such as the {len(example)} of "
            f"{example[0].key}",
        )
