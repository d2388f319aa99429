"""Nodes with measured load, a tenth of them hot; pods for them, and how evenly they end up."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from statistics import pstdev

import msgspec
import numpy as np

from engine.model import api
from engine.model.pod import Pod, pod_of
from engine.model.request import PlacementRequest
from engine.model.time import Micros
from engine.pipeline import decide
from engine.policy import load_policies
from tests.e2e.cluster import Cluster, Json
from tests.e2e.metrics_server import MetricsServer
from tests.e2e.workloads import pod
from webhook.cluster import load_recorded
from webhook.serving.composition import wall_clock

CORES = 16
THRESHOLD = 0.65
POLICY = """
apiVersion: stowplan.dev/v1alpha1
kind: PlacementPolicy
metadata: {{name: by-load}}
spec:
  filters: [{{plugin: LoadAware, args: {{usageThresholds: {{cpu: 65}}}}}}]
  scores: [{{plugin: LoadAware, args: {{resourceWeights: {{cpu: 1}}}}}}]
  placement: {{at: {at}}}
"""
"""By measured and expected load; `at` says when it decides."""

_HOT_PERCENT, _OTHERS_PERCENT = (75, 90), (10, 60)
_EXPECTED_PERCENT = 85  # of what a pod asks for: LoadAware's default for cpu
_POD_MILLICORES = (500, 1_000, 2_000)
_AT_ONCE = 20
_ZONES = 3
_APP = "app"
_LABELS = {"app": _APP}


@dataclass(frozen=True, slots=True)
class HotNodes:
    """The load of each node, as it is measured before any pod of ours.

    Attributes:
        millicores: by node.
        hot: the names of the hot ones.
    """

    millicores: Mapping[str, int]
    hot: frozenset[str]

    def loads(self, pods: Iterable[tuple[str, int]]) -> dict[str, float]:
        """Return measured and expected load of each node, as a part of its cores.

        Args:
            pods: node and millicores of each.
        """
        loads = dict(self.millicores)
        for node, millicores in pods:
            loads[node] += millicores * _EXPECTED_PERCENT // 100
        return {name: load / (CORES * 1_000) for name, load in loads.items()}

    def measured(self, metrics: MetricsServer) -> None:
        """Have this load reported, as of now."""
        metrics.nodes = {
            name: {"cpu": f"{load}m", "memory": "4Gi"} for name, load in self.millicores.items()
        }
        metrics.at = datetime.now(UTC)


def hot_nodes(names: Sequence[str], seed: int) -> HotNodes:
    """Return loads drawn from a seed: every tenth node is hot."""
    rng = np.random.default_rng(seed)
    hot = frozenset(rng.permutation(names)[: len(names) // 10].tolist())
    percent = {
        name: rng.uniform(*(_HOT_PERCENT if name in hot else _OTHERS_PERCENT)) for name in names
    }
    return HotNodes({name: round(part * CORES * 10) for name, part in percent.items()}, hot)


async def add_owner(cluster: Cluster, namespace: str) -> Json:
    """Add a ReplicaSet for pods to belong to, which makes none; return a reference to it.

    Nearly all pods of a cluster have such an owner, and the scheduler spreads its pods.
    """
    made = await cluster.create(
        {
            "apiVersion": "apps/v1",
            "kind": "ReplicaSet",
            "metadata": {"namespace": namespace, "name": _APP},
            "spec": {
                "replicas": 0,
                "selector": {"matchLabels": _LABELS},
                "template": {
                    "metadata": {"labels": _LABELS},
                    "spec": {"containers": [{"name": "app", "image": "example.com/app"}]},
                },
            },
        }
    )
    return {
        "apiVersion": "apps/v1",
        "kind": "ReplicaSet",
        "name": _APP,
        "uid": made["metadata"]["uid"],
        "controller": True,
    }


def pods_of(namespace: str, prefix: str, count: int, seed: int, *, owner: Json) -> list[Json]:
    """Return pods of an owner, of a few sizes, whose limits are their requests."""
    rng = np.random.default_rng(seed)
    made = []
    for number, millicores in enumerate(rng.choice(_POD_MILLICORES, count).tolist()):
        one = pod(namespace, f"{prefix}-{number:04}")
        one["metadata"] |= {"labels": _LABELS, "ownerReferences": [owner]}
        amounts = {"cpu": f"{millicores}m", "memory": "64Mi"}
        one["spec"]["containers"][0]["resources"] = {"requests": amounts, "limits": amounts}
        made.append(one)
    return made


def millicores_of(pod: Json) -> int:
    """Return what a pod of ours asks for."""
    asked: str = pod["spec"]["containers"][0]["resources"]["requests"]["cpu"]
    return int(asked[:-1]) if asked.endswith("m") else int(asked) * 1_000


def spread(loads: Mapping[str, float]) -> float:
    """Return the standard deviation of the loads over nodes."""
    return pstdev(loads.values())


def over_threshold(loads: Mapping[str, float]) -> int:
    """Return how many nodes are above the threshold of the policy."""
    return sum(load > THRESHOLD for load in loads.values())


async def add_nodes(cluster: Cluster, count: int) -> list[str]:
    """Add nodes that are ready, several at a time, without any controller; return their names."""
    names = [f"node-{number:04}" for number in range(count)]
    left = iter(enumerate(names))

    async def add() -> None:
        for number, name in left:
            zone = f"zone-{number % _ZONES}"
            labels = {"kubernetes.io/hostname": name, "topology.kubernetes.io/zone": zone}
            await cluster.create(
                {"apiVersion": "v1", "kind": "Node", "metadata": {"name": name, "labels": labels}}
            )
            amounts = {"cpu": str(CORES), "memory": "64Gi", "pods": "250"}
            conditions = [{"type": "Ready", "status": "True"}]
            status = {"allocatable": amounts, "capacity": amounts, "conditions": conditions}
            await cluster.patch("nodes", name, {"status": status}, subresource="status")
            # The API server taints new nodes until a controller has seen that they are ready.
            await cluster.patch("nodes", name, {"spec": {"taints": None}})

    await asyncio.gather(*(add() for _ in range(_AT_ONCE)))
    return names


async def record(cluster: Cluster, file: Path) -> None:
    """Write nodes and their measured load to a file, as `stowplan` reads them."""
    nodes = [{**one, "apiVersion": "v1", "kind": "Node"} for one in await cluster.list_all("nodes")]
    usage = [
        {**one, "apiVersion": "metrics.k8s.io/v1beta1", "kind": "NodeMetrics"}
        for one in await cluster.list_all("nodes.metrics.k8s.io")
    ]
    content = {"apiVersion": "v1", "kind": "List", "items": [*nodes, *usage]}
    await asyncio.to_thread(file.write_text, json.dumps(content))


def ideal(recording: Path, policy: Path, pods: Iterable[Json]) -> list[str]:
    """Return the node of each pod, decided one by one, each counted before the next.

    Args:
        recording: of the cluster without the pods.
        policy: the file of the policy.
        pods: in the order of their decisions.
    """
    policies, state = load_policies([policy]), load_recorded([recording]).state
    state.track_sums(policies.sum_profiles)
    now, chosen = wall_clock(), []
    for made in pods:
        raw = msgspec.json.encode(made)
        request = PlacementRequest(pod=_pod(raw), raw=raw)
        decision = decide(request, policies, state.view(), now)
        chosen.append(decision.names[decision.candidates[0]] if decision.candidates.size else "")
        if chosen[-1]:
            state.set_pod(_pod(msgspec.json.encode(_bound(made, chosen[-1], now))), seen_at=now)
    return chosen


def _pod(raw: bytes) -> Pod:
    return pod_of(msgspec.json.decode(raw, type=api.Pod))


def _bound(pod: Json, node: str, now: Micros) -> Json:
    at = datetime.fromtimestamp(now / 1e6, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    condition = {"type": "PodScheduled", "status": "True", "lastTransitionTime": at}
    spec = {**pod["spec"], "nodeName": node, "schedulingGates": None}
    return {**pod, "spec": spec, "status": {"phase": "Pending", "conditions": [condition]}}
