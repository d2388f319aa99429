"""The nodes and pods of `bench_outcome` as objects of a cluster, and where the ideal puts pods."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Iterable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path

import msgspec

from engine.model import api
from engine.model.decision import PlacementRequest
from engine.model.pod import Pod, pod_of
from engine.model.time import Micros
from engine.pipeline import decide
from engine.policy import load_policies
from tests.e2e.cluster import Cluster, Json
from tests.e2e.metrics_server import MetricsServer
from tests.e2e.outcome_workload import Ask, Load, Machine
from tests.e2e.workloads import pod
from webhook.cluster import load_recorded
from webhook.serving.composition import wall_clock

_AT_ONCE = 20
_MEBIBYTES_PER_CORE = 4_096
_ZONE = "topology.kubernetes.io/zone"
SOFT_TAINT = {"key": "example.com/rather-not", "effect": "PreferNoSchedule"}
_BEFORE = timedelta(hours=1)


async def add_nodes(cluster: Cluster, machines: Sequence[Machine]) -> None:
    """Add nodes that are ready, without any controller."""

    async def add(one: Machine) -> None:
        labels = {"kubernetes.io/hostname": one.name, _ZONE: one.zone}
        await cluster.create(
            {"apiVersion": "v1", "kind": "Node", "metadata": {"name": one.name, "labels": labels}}
        )
        memory = f"{one.cores * _MEBIBYTES_PER_CORE}Mi"
        amounts = {"cpu": str(one.cores), "memory": memory, "pods": "250"}
        conditions = [{"type": "Ready", "status": "True"}]
        status = {"allocatable": amounts, "capacity": amounts, "conditions": conditions}
        await cluster.patch("nodes", one.name, {"status": status}, subresource="status")
        # The API server taints new nodes until a controller has seen that they are ready.
        taints = [SOFT_TAINT] if one.tainted else None
        await cluster.patch("nodes", one.name, {"spec": {"taints": taints}})

    await _several(add(one) for one in machines)


async def add_owners(cluster: Cluster, namespace: str, apps: Sequence[str]) -> dict[str, Json]:
    """Add a ReplicaSet for the pods of each Deployment, which makes none; return references.

    Nearly all pods of a cluster have such an owner, and the scheduler spreads its pods.
    """
    return {app: await _add_owner(cluster, namespace, app) for app in apps}


@asynccontextmanager
async def occupied(
    cluster: Cluster, namespace: str, loads: Mapping[str, Load]
) -> AsyncIterator[None]:
    """Have a pod on each node that asks for what is requested there, until the block is left."""
    at = (datetime.now(UTC) - _BEFORE).strftime("%Y-%m-%dT%H:%M:%SZ")
    condition = {"type": "PodScheduled", "status": "True", "lastTransitionTime": at}

    async def occupy(node: str, millicores: int) -> None:
        one = pod(namespace, f"on-{node}", requests={"cpu": f"{millicores}m"})
        one["spec"]["nodeName"] = node
        await cluster.create(one)
        # It has been there for long, so its usage is part of what is measured.
        status = {"status": {"conditions": [condition]}}
        await cluster.patch("pods", f"on-{node}", status, namespace, subresource="status")

    await _several(occupy(node, load.requested) for node, load in loads.items() if load.requested)
    try:
        yield
    finally:
        await cluster.delete_all("pods", namespace, grace_seconds=0)


def report(metrics: MetricsServer, loads: Mapping[str, Load]) -> None:
    """Have what nodes use reported, as of now."""
    metrics.nodes = {
        name: {"cpu": f"{load.used}m", "memory": "4Gi"} for name, load in loads.items()
    }
    metrics.at = datetime.now(UTC)


def pods_of(
    namespace: str, prefix: str, asks: Iterable[Ask], owners: Mapping[str, Json]
) -> list[Json]:
    """Return pods, whose limits are their requests."""
    made = []
    for number, ask in enumerate(asks):
        one = pod(namespace, f"{prefix}-{number:04}")
        one["metadata"] |= {"labels": {"app": ask.app}, "ownerReferences": [owners[ask.app]]}
        amounts = {"cpu": f"{ask.millicores}m", "memory": f"{ask.mebibytes}Mi"}
        one["spec"]["containers"][0]["resources"] = {"requests": amounts, "limits": amounts}
        if ask.zone:
            wish = {"key": _ZONE, "operator": "In", "values": [ask.zone]}
            term = {"weight": 100, "preference": {"matchExpressions": [wish]}}
            rule = {"preferredDuringSchedulingIgnoredDuringExecution": [term]}
            one["spec"]["affinity"] = {"nodeAffinity": rule}
        made.append(one)
    return made


async def record(cluster: Cluster, file: Path) -> None:
    """Write nodes, their pods and their measured load to a file, as `stowplan` reads them."""
    kinds = {
        "nodes": ("v1", "Node"),
        "pods": ("v1", "Pod"),
        "nodes.metrics.k8s.io": ("metrics.k8s.io/v1beta1", "NodeMetrics"),
    }
    items = [
        {**one, "apiVersion": version, "kind": kind}
        for resource, (version, kind) in kinds.items()
        for one in await cluster.list_all(resource)
    ]
    content = {"apiVersion": "v1", "kind": "List", "items": items}
    await asyncio.to_thread(file.write_text, json.dumps(content))


def ideal(recording: Path, policy: Path, pods: Iterable[Json]) -> list[str]:
    """Return the node of each pod, "" for none, decided one by one, each counted before the next.

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


async def _several(calls: Iterator[Awaitable[None]]) -> None:
    """Make calls, some at a time; those that wait are not begun."""

    async def some() -> None:
        for call in calls:
            await call

    await asyncio.gather(*(some() for _ in range(_AT_ONCE)))


async def _add_owner(cluster: Cluster, namespace: str, app: str) -> Json:
    labels = {"app": app}
    made = await cluster.create(
        {
            "apiVersion": "apps/v1",
            "kind": "ReplicaSet",
            "metadata": {"namespace": namespace, "name": app},
            "spec": {
                "replicas": 0,
                "selector": {"matchLabels": labels},
                "template": {
                    "metadata": {"labels": labels},
                    "spec": {"containers": [{"name": "app", "image": "example.com/app"}]},
                },
            },
        }
    )
    return {
        "apiVersion": "apps/v1",
        "kind": "ReplicaSet",
        "name": app,
        "uid": made["metadata"]["uid"],
        "controller": True,
    }


def _pod(raw: bytes) -> Pod:
    return pod_of(msgspec.json.decode(raw, type=api.Pod))


def _bound(pod: Json, node: str, now: Micros) -> Json:
    at = datetime.fromtimestamp(now / 1e6, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    condition = {"type": "PodScheduled", "status": "True", "lastTransitionTime": at}
    spec = {**pod["spec"], "nodeName": node, "schedulingGates": None}
    return {**pod, "spec": spec, "status": {"phase": "Pending", "conditions": [condition]}}
