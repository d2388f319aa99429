"""A cluster behind a fake API server with something of every kind, and snapshots of it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Any

import msgspec

from engine.view import ClusterState
from tests.fake_api_server import FakeApiServer
from tests.webhook.cluster.reflecting import connected_to
from webhook.cluster.object_file import object_file
from webhook.cluster.snapshot import Anonymizer, KindResult, take_snapshot
from webhook.cluster.timing import ReflectorConfig
from webhook.cluster.watch.event_applier import EventApplier

Json = dict[str, Any]

CREATED = "2026-01-01T08:00:00Z"
TIME = "2026-01-01T09:00:00Z"
PAGES_OF_TWO = ReflectorConfig(page_size=2)
PLURALS = (
    "nodes",
    "pods",
    "namespaces",
    "elasticquotas.scheduling.x-k8s.io",
    "elasticquotas.scheduling.sigs.k8s.io",
    "podgroups.scheduling.x-k8s.io",
    "podgroups.scheduling.sigs.k8s.io",
    "nodemetrics.slo.koordinator.sh",
    "poddisruptionbudgets.policy",
    "priorityclasses.scheduling.k8s.io",
    "placementpolicies.stowplan.dev",
    "namespacedplacementpolicies.stowplan.dev",
    "nodes.metrics.k8s.io",
    "pods.metrics.k8s.io",
)
GROUPS = {
    "ElasticQuota": "scheduling.x-k8s.io/v1alpha1",
    "NodeMetric": "slo.koordinator.sh/v1alpha1",
    "NodeMetrics": "metrics.k8s.io/v1beta1",
    "PodMetrics": "metrics.k8s.io/v1beta1",
}


def obj(kind: str, name: str, namespace: str = "", /, **parts: Any) -> Json:  # noqa: ANN401 (JSON)
    """Return an object; `meta` is more of its metadata."""
    metadata = {"name": name, "creationTimestamp": CREATED, **parts.pop("meta", {})}
    if namespace:
        metadata["namespace"] = namespace
    return {"apiVersion": GROUPS.get(kind, "v1"), "kind": kind, "metadata": metadata, **parts}


def node(name: str, *, zone: str = "zone-1", annotations: Json | None = None) -> Json:
    """Return a node of 16 cores that has more to say than rules read."""
    labels = {
        "kubernetes.io/hostname": name,
        "topology.kubernetes.io/zone": zone,
        "acme.example/rack": "rack-of-acme",
    }
    meta = {
        "labels": labels,
        "annotations": {
            "kubectl.kubernetes.io/last-applied-configuration": "{a-copy-of-it-all}",
            **(annotations or {}),
        },
        "managedFields": [{"manager": "a-manager"}],
    }
    allocatable = {"cpu": "16", "memory": "32Gi", "pods": "110", "acme.example/fpga": "2"}
    ready = {"type": "Ready", "status": "True", "lastHeartbeatTime": TIME}
    return obj(
        "Node",
        name,
        meta=meta,
        spec={"taints": [{"key": "acme.example/team", "value": "payroll", "effect": "NoSchedule"}]},
        status={
            "allocatable": allocatable,
            "conditions": [ready],
            "nodeInfo": {"machineID": "a-machine"},
            "images": [{"names": ["registry.acme.example/payroll:7"], "sizeBytes": 1}],
        },
    )


def pod(name: str, on: str = "", *, limit: str = "2", **parts: Any) -> Json:  # noqa: ANN401 (JSON)
    """Return a pod of namespace `shop` that has more to say than rules read."""
    container = {
        "name": "main",
        "image": "registry.acme.example/payroll:7",
        "env": [{"name": "PASSWORD", "value": "hunter2"}],
        "args": ["--token=hunter2"],
        "resources": {
            "requests": {"cpu": "500m", "acme.example/fpga": "1"},
            "limits": {"cpu": limit, "memory": "1Gi", "acme.example/fpga": "1"},
        },
    }
    scheduled = {"type": "PodScheduled", "status": "True", "lastTransitionTime": TIME}
    in_rack = {"key": "acme.example/rack", "operator": "In", "values": ["rack-of-acme"]}
    meta = {
        "labels": {"app": name, "acme.example/team": "payroll"},
        "annotations": {"acme.example/note": "a-note", **parts.pop("annotations", {})},
        "ownerReferences": [
            {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "rs-of-acme", "uid": "u-1"}
        ],
        "creationTimestamp": parts.pop("created", CREATED),
    }
    spec = {
        "nodeName": on,
        "containers": [container],
        "tolerations": [{"key": "acme.example/team", "value": "payroll"}],
        "affinity": {
            "nodeAffinity": {
                "requiredDuringSchedulingIgnoredDuringExecution": {
                    "nodeSelectorTerms": [{"matchExpressions": [in_rack]}]
                }
            }
        },
        **parts.pop("spec", {}),
    }
    status = {"phase": "Running", "conditions": [scheduled], **parts.pop("status", {})}
    return obj("Pod", name, "shop", meta=meta, spec=spec, status=status)


def report(name: str, cpu: str, *pods: str) -> Json:
    """Return a NodeMetric in which each pod uses 100 millicores."""
    used = {"resources": {"cpu": cpu, "memory": "4Gi"}}
    status = {
        "updateTime": TIME,
        "nodeMetric": {
            "nodeUsage": used,
            "aggregatedNodeUsages": [{"duration": "5m0s", "usage": {"p95": used}}],
        },
        "podsMetric": [
            {
                "namespace": "shop",
                "name": one,
                "priority": "koord-prod",
                "podUsage": {"resources": {"cpu": "100m"}},
            }
            for one in pods
        ],
    }
    return obj("NodeMetric", name, status=status)


THRESHOLDS = '{"usageThresholds":{"cpu":30,"memory":60}}'
CLUSTER: tuple[Json, ...] = (
    node("alpha-node"),
    node("beta-node", zone="zone-2"),
    node(
        "gamma-node",
        annotations={
            "scheduling.koordinator.sh/usage-thresholds": THRESHOLDS,
            "acme.example/asset": "asset-9",
        },
    ),
    pod("web-one", "alpha-node"),
    pod("web-two", "alpha-node", limit="4"),
    pod("web-three", "beta-node"),
    pod(
        "web-four",
        "gamma-node",
        annotations={
            "scheduling.koordinator.sh/load-estimated-scaling-factors": (
                '{"cpu":50,"acme.example/fpga":30}'
            )
        },
    ),
    pod("done", "beta-node", status={"phase": "Succeeded"}),
    pod(
        "waiting",
        annotations={"stowplan.dev/advice": '{"nodes":["beta-node","alpha-node"],"id":"a1"}'},
        status={"phase": "Pending", "conditions": []},
        created="2026-01-01T08:59:00Z",
    ),
    obj("Namespace", "shop", meta={"labels": {"kubernetes.io/metadata.name": "shop"}}),
    obj("Namespace", "payroll-space", meta={"labels": {"owner": "payroll-team"}}),
    obj("ElasticQuota", "shop-quota", "shop", spec={"max": {"cpu": "8", "acme.example/fpga": 9}}),
    report("alpha-node", "2", "web-one", "web-two"),
    report("gamma-node", "2500m", "web-four"),
    obj("NodeMetrics", "beta-node", timestamp=TIME, window="20s", usage={"cpu": "1200m"}),
    obj(
        "PodMetrics",
        "web-three",
        "shop",
        meta={"labels": {"app": "web-three"}},
        timestamp=TIME,
        window="20s",
        containers=[{"name": "main", "usage": {"cpu": "250m"}}],
    ),
)


def fill(server: FakeApiServer, objects: Sequence[Json] = CLUSTER) -> None:
    for one in objects:
        server.create(one)


async def no_wait(_seconds: float) -> None:
    """Time that passes at once."""


async def snapshot_of(
    server: FakeApiServer,
    folder: Path,
    *,
    anonymizer: Anonymizer | None = None,
    progress: Callable[[str, int, int | None], None] | None = None,
    sleep: Callable[[float], Awaitable[None]] = no_wait,
) -> tuple[Path, dict[str, KindResult]]:
    """Return the file with a snapshot of all that a server holds, and what became of each kind."""
    path = folder / "cluster.json"
    async with connected_to(server, folder) as connection:
        with object_file(path) as file:
            taken = await take_snapshot(
                connection,
                file,
                anonymizer=anonymizer,
                progress=progress,
                config=PAGES_OF_TWO,
                sleep=sleep,
            )
    return path, {one.name: one for one in taken}


def state_of(server: FakeApiServer) -> ClusterState:
    """Return the cluster as the very objects that a server holds give it."""
    applier = EventApplier()
    for plural in PLURALS:
        try:
            objects = server.objects(plural).values()
        except LookupError:
            continue
        for one in objects:
            by_kind = applier.by_kind[one["apiVersion"].rpartition("/")[0], one["kind"]]
            by_kind.apply(msgspec.convert(one, by_kind.kind.wire))
    return applier.finished()
