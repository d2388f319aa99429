"""A made-up cluster of 60 nodes as EKS has them, in the words of `kubectl get -o json`.

Requests are small, limits large and the load uneven: what a managed cluster looks like after a year
of teams that guess. It is the same each time.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from random import Random
from typing import Any, Final

import msgspec

NOW: Final = datetime(2026, 3, 2, 10, tzinfo=UTC)
SUFFIX: Final = ".eu-central-1.compute.internal"
"""Of every node's name."""

_CORES, _GIB = 8, 32
_GPU_NODES: Final = 4
_NODES: Final = 60
_WAITING: Final = 6

_Json = dict[str, Any]


@dataclass(frozen=True, slots=True)
class _Service:
    """A Deployment; cpu in millicores, memory in MiB, both of one pod.

    Attributes:
        busy: by how much the load of its pods differs: each uses up to so much more than the mean.
    """

    namespace: str
    name: str
    replicas: int
    request: int
    limit: int
    load: int
    memory: int
    busy: float = 0.2


_SERVICES: Final = (
    _Service("shop", "web", 60, 250, 2_400, 360, 512),
    _Service("shop", "checkout", 40, 500, 4_800, 900, 1_024, busy=0.5),
    _Service("shop", "search", 30, 1_000, 4_800, 1_400, 3_072, busy=0.7),
    _Service("shop", "images", 48, 100, 1_200, 130, 256),
    _Service("data", "ingest", 36, 250, 4_800, 1_000, 2_048, busy=0.8),
    _Service("data", "report", 24, 1_000, 2_400, 240, 4_096),
    _Service("ml", "features", 32, 500, 7_200, 700, 2_048, busy=0.6),
    _Service("platform", "gateway", 30, 500, 2_400, 300, 512),
    _Service("platform", "auth", 40, 200, 1_200, 100, 384),
    _Service("platform", "queue", 16, 1_000, 1_200, 550, 4_096),
)


class EksCluster:
    """The cluster: its objects, and what metrics-server measured of nodes and pods."""

    def __init__(self) -> None:
        self._random = Random(7)
        self._nodes = [
            f"ip-10-0-{1 + number % 3}-{17 + 3 * number}{SUFFIX}" for number in range(_NODES)
        ]
        self._load = {name: [300, 2_000] for name in self._nodes}  # of the system
        self._pod_loads: list[tuple[str, str, int, int]] = []
        self._pods = [*self._daemon_pods(), *self._service_pods(), *self._gpu_pods()]

    def write(self, folder: Path) -> None:
        """Write `objects.json` and `usage.json`, as the README says to record them."""
        folder.mkdir(parents=True, exist_ok=True)
        _write(folder / "objects.json", [*self._namespaces(), *self._node_objects(), *self._pods])
        _write(folder / "usage.json", [*self._node_metrics(), *self._pod_metrics()])

    def _namespaces(self) -> Iterator[_Json]:
        for name in dict.fromkeys(["kube-system", *(each.namespace for each in _SERVICES)]):
            labels = {"kubernetes.io/metadata.name": name}
            yield _object("v1", "Namespace", {"name": name, "labels": labels})

    def _node_objects(self) -> Iterator[_Json]:
        for number, name in enumerate(self._nodes):
            has_gpus = number < _GPU_NODES
            size = {
                "cpu": f"{_CORES * 1000 - 90}m",
                "memory": f"{_GIB - 2}Gi",
                "pods": "58",
                **({"nvidia.com/gpu": "4"} if has_gpus else {}),
            }
            labels = {
                "eks.amazonaws.com/capacityType": "SPOT" if number % 4 == 1 else "ON_DEMAND",
                "kubernetes.io/arch": "amd64",
                "kubernetes.io/hostname": name,
                "kubernetes.io/os": "linux",
                "node.kubernetes.io/instance-type": "g5.2xlarge" if has_gpus else "m6i.2xlarge",
                "topology.kubernetes.io/region": "eu-central-1",
                "topology.kubernetes.io/zone": f"eu-central-1{'abc'[number % 3]}",
            }
            taint = {"key": "nvidia.com/gpu", "value": "present", "effect": "NoSchedule"}
            yield _object(
                "v1",
                "Node",
                {"name": name, "labels": labels},
                spec={"taints": [taint]} if has_gpus else {},
                status={
                    "allocatable": size,
                    "capacity": size,
                    "conditions": [{"type": "Ready", "status": "True"}],
                },
            )

    def _daemon_pods(self) -> Iterator[_Json]:
        for number, node in enumerate(self._nodes):
            yield self._pod(
                "kube-system", f"aws-node-{number:02}", "DaemonSet", "aws-node", node,
                request=50, limit=100, load=40, memory=128, tolerates=True,
            )  # fmt: skip

    def _service_pods(self) -> Iterator[_Json]:
        """Yield pods where a scheduler that knows requests alone has put them, more or less."""
        requested = dict.fromkeys(self._nodes[_GPU_NODES:], 0)
        for service in _SERVICES:
            spread = {node: self._random.random() for node in requested}
            for number in range(service.replicas):
                here = min(requested, key=lambda node: requested[node] + 400 * spread[node])
                requested[here] += service.request
                load = service.load * (1 + self._random.uniform(-service.busy, service.busy))
                yield self._pod(
                    service.namespace, f"{service.name}-6c5d9-{number:02}", "ReplicaSet",
                    f"{service.name}-6c5d9", here, request=service.request, limit=service.limit,
                    load=int(load), memory=service.memory,
                )  # fmt: skip
        for number in range(_WAITING):
            yield self._pod(
                "data", f"rebuild-7f4b8-{number:02}", "ReplicaSet", "rebuild-7f4b8", "",
                request=12_000, limit=12_000, load=0, memory=8_192,
            )  # fmt: skip

    def _gpu_pods(self) -> Iterator[_Json]:
        for number, node in enumerate(self._nodes[:_GPU_NODES]):
            yield self._pod(
                "ml", f"train-{number}", "StatefulSet", "train", node,
                request=2_000, limit=6_000, load=1_500, memory=8_192, gpus=1 + number,
                tolerates=True,
            )  # fmt: skip

    def _pod(  # noqa: PLR0913 - what a pod is made of, by keyword
        self,
        namespace: str,
        name: str,
        owner_kind: str,
        owner: str,
        node: str,
        *,
        request: int,
        limit: int,
        load: int,
        memory: int,
        gpus: int = 0,
        tolerates: bool = False,
    ) -> _Json:
        if node:
            self._load[node][0] += load
            self._load[node][1] += memory * 7 // 10
            self._pod_loads.append((namespace, name, load, memory * 7 // 10))
        gpu = {"nvidia.com/gpu": str(gpus)} if gpus else {}
        resources = {
            "requests": {"cpu": f"{request}m", "memory": f"{memory}Mi", **gpu},
            "limits": {"cpu": f"{limit}m", "memory": f"{memory}Mi", **gpu},
        }
        created = NOW - timedelta(days=3) + timedelta(minutes=len(self._pod_loads))
        metadata = {
            "name": name,
            "namespace": namespace,
            "uid": f"{namespace}-{name}",
            "generateName": f"{owner}-" if owner_kind == "ReplicaSet" else "",
            "creationTimestamp": _time(created),
            "labels": {
                "app": owner.partition("-")[0],
                "pod-template-hash": owner.rpartition("-")[2],
            },
            "ownerReferences": [
                {
                    "apiVersion": "apps/v1",
                    "kind": owner_kind,
                    "name": owner,
                    "uid": f"{namespace}-{owner}",
                    "controller": True,
                }
            ],
        }
        spec = {
            "containers": [
                {"name": "app", "image": f"example.com/{owner}", "resources": resources}
            ],
            "nodeName": node,
            "tolerations": [{"operator": "Exists"}] if tolerates else [],
        }
        scheduled = {"type": "PodScheduled", "status": "True", "lastTransitionTime": _time(created)}
        status = {"phase": "Running", "conditions": [scheduled]} if node else {"phase": "Pending"}
        return _object("v1", "Pod", metadata, spec=spec, status=status)

    def _node_metrics(self) -> Iterator[_Json]:
        for name, (cpu, mib) in self._load.items():
            yield _metrics("NodeMetrics", {"name": name}, usage=_usage(cpu, mib))

    def _pod_metrics(self) -> Iterator[_Json]:
        for namespace, name, cpu, mib in self._pod_loads:
            containers = [{"name": "app", "usage": _usage(cpu, mib)}]
            yield _metrics(
                "PodMetrics", {"name": name, "namespace": namespace}, containers=containers
            )


def _object(version: str, kind: str, metadata: _Json, **more: object) -> _Json:
    return {"apiVersion": version, "kind": kind, "metadata": metadata, **more}


def _metrics(kind: str, metadata: _Json, **more: object) -> _Json:
    return _object(
        "metrics.k8s.io/v1beta1", kind, metadata, timestamp=_time(NOW), window="30s", **more
    )


def _usage(cpu: int, mib: int) -> _Json:
    return {"cpu": f"{cpu}m", "memory": f"{mib}Mi"}


def _time(moment: datetime) -> str:
    return moment.strftime("%Y-%m-%dT%H:%M:%SZ")


def _write(file: Path, items: list[_Json]) -> None:
    listed = {"apiVersion": "v1", "kind": "List", "items": items}
    file.write_bytes(msgspec.json.format(msgspec.json.encode(listed), indent=4))
