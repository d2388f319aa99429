"""What the objects of a made-up cluster look like in JSON.

They are as `kubectl get -o json` shows them: everything the engine reads and the usual amount of
what it skips, about 3.4 KB for a pod, without managedFields.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, TypeAlias

import msgspec

NOW = datetime(2026, 1, 1, tzinfo=UTC)
"""The moment the cluster is looked at."""

BATCH_PRIORITY = 5500
"""A `spec.priority` that Koordinator takes for batch."""

_Json: TypeAlias = dict[str, Any]
_LETTERS = "bcdfghjklmnpqrstvwxz2456789"  # those of the suffixes Kubernetes generates

# What differs between the pods of one template; none of it needs escaping in JSON.
_NAME, _UID, _NODE, _IP, _TIME, _PHASE = (
    f"@{word}@" for word in ("name", "uid", "node", "ip", "time", "phase")
)


@dataclass(frozen=True, slots=True)
class Machine:
    """An instance type."""

    name: str
    cores: int
    gib: int
    gpus: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Workload:
    """Pods of one template.

    Attributes:
        number: which workload it is.
        first: number of its first pod among all pods.
        pods: how many there are.
        kind: DaemonSet, ReplicaSet, or "" for a bare pod.
        cpu_limit: millicores per app container.
        mib_limit: mebibytes per app container.
        request_percent: of the limits; 0 means that its containers say nothing.
        priority: `spec.priority`, None when it has none.
    """

    number: int
    first: int
    pods: int
    kind: str
    namespace: str
    containers: int
    cpu_limit: int
    mib_limit: int
    request_percent: int
    gpus: int = 0
    has_sidecar: bool = False
    priority: int | None = None

    @property
    def name(self) -> str:
        """The name of its owner, or of the bare pod."""
        return f"{self.kind.lower() or 'bare'}-{self.number:05d}"

    def pod_name(self, ordinal: int) -> str:
        """Return the name of one of its pods."""
        return f"{self.name}-{_suffix(self.first + ordinal)}" if self.kind else self.name


@dataclass(frozen=True, slots=True)
class PodUsage:
    """What a pod of a workload uses, millicores and mebibytes."""

    workload: Workload
    ordinal: int
    cpu: int
    mib: int


def daemon_set(number: int, first: int, pods: int) -> Workload:
    """Return a small DaemonSet."""
    return Workload(
        number=number,
        first=first,
        pods=pods,
        kind="DaemonSet",
        namespace="kube-system",
        containers=1,
        cpu_limit=50,
        mib_limit=128,
        request_percent=50,
    )


def namespace(name: str) -> bytes:
    """Return a namespace."""
    labels = {"kubernetes.io/metadata.name": name, "tier": "gold" if name[-1] == "0" else "bronze"}
    return _object("v1", "Namespace", {"name": name, "labels": labels})


def quota(in_namespace: str, group: str) -> bytes:
    """Return an ElasticQuota."""
    return _object(
        f"{group}/v1alpha1",
        "ElasticQuota",
        {"name": "quota", "namespace": in_namespace},
        spec={
            "min": {"cpu": "100", "memory": "400Gi"},
            "max": {"cpu": "5000", "memory": "20Ti", "nvidia.com/gpu": "64"},
        },
        status={"used": {"cpu": "1234500m", "memory": "2345Gi"}},
    )


def node(name: str, machine: Machine, *, zone: str, is_spot: bool, is_cordoned: bool) -> bytes:
    """Return a node."""
    capacity = {
        "cpu": str(machine.cores),
        "ephemeral-storage": "104845292Ki",
        "hugepages-1Gi": "0",
        "memory": f"{machine.gib * 1024 * 1024 - 65_536}Ki",
        "pods": "250",
        **({"nvidia.com/gpu": str(machine.gpus)} if machine.gpus else {}),
    }
    allocatable = {
        **capacity,
        "cpu": f"{machine.cores * 1000 - 80}m",
        "memory": f"{(machine.gib - 1) * 1024 * 1024}Ki",
    }
    labels = {
        "karpenter.sh/capacity-type": "spot" if is_spot else "on-demand",
        "kubernetes.io/arch": "amd64",
        "kubernetes.io/hostname": name,
        "kubernetes.io/os": "linux",
        "node.kubernetes.io/instance-type": machine.name,
        "topology.kubernetes.io/region": zone[:-1],
        "topology.kubernetes.io/zone": zone,
        **({"nvidia.com/gpu.present": "true"} if machine.gpus else {}),
    }
    taint = {"key": "nvidia.com/gpu", "value": "present", "effect": "NoSchedule"}
    conditions = [
        {**_condition(kind, str(kind == "Ready"), _stamp(NOW)), "lastHeartbeatTime": _stamp(NOW)}
        for kind in ("MemoryPressure", "DiskPressure", "PIDPressure", "Ready")
    ]
    images = [
        {"names": [f"registry.example/image-{number}:v1"], "sizeBytes": 10**8 + number}
        for number in range(20)
    ]
    return _object(
        "v1",
        "Node",
        {
            "name": name,
            "creationTimestamp": _stamp(NOW - timedelta(days=90)),
            "labels": labels,
            "annotations": {"node.alpha.kubernetes.io/ttl": "300"},
        },
        spec={
            "providerID": f"aws:///{zone}/{name}",
            **({"taints": [taint]} if machine.gpus else {}),
            **({"unschedulable": True} if is_cordoned else {}),
        },
        status={
            "allocatable": allocatable,
            "capacity": capacity,
            "conditions": conditions,
            "images": images,
        },
    )


def node_metric(name: str, updated_at: datetime, pods: Sequence[PodUsage]) -> bytes:
    """Return Koordinator's report on a node and its pods."""
    system_cpu, system_mib = 200, 900
    cpu = system_cpu + sum(one.cpu for one in pods)
    mib = system_mib + sum(one.mib for one in pods)
    percentiles = (("avg", 90), ("p50", 88), ("p90", 120), ("p95", 130), ("p99", 150))
    aggregated = [
        {
            "duration": duration,
            "usage": {kind: _usage(cpu * percent // 100, mib) for kind, percent in percentiles},
        }
        for duration in ("5m0s", "10m0s", "30m0s")
    ]
    reports = [
        {
            "namespace": one.workload.namespace,
            "name": one.workload.pod_name(one.ordinal),
            "priority": "koord-batch" if one.workload.priority == BATCH_PRIORITY else "koord-prod",
            "podUsage": _usage(one.cpu, one.mib),
        }
        for one in pods
    ]
    return _object(
        "slo.koordinator.sh/v1alpha1",
        "NodeMetric",
        {"name": name},
        spec={
            "metricCollectPolicy": {"aggregateDurationSeconds": 300, "reportIntervalSeconds": 60}
        },
        status={
            "updateTime": _stamp(updated_at),
            "nodeMetric": {
                "nodeUsage": _usage(cpu, mib),
                "systemUsage": _usage(system_cpu, system_mib),
                "aggregatedNodeUsages": aggregated,
            },
            "podsMetric": reports,
        },
    )


class PodTemplate:
    """The text that all pods of a workload share."""

    def __init__(self, workload: Workload) -> None:
        self._workload = workload
        self._text = msgspec.json.encode(_pod(workload)).decode()

    def pod(self, ordinal: int, *, node: str, bound_at: datetime, phase: str) -> bytes:
        """Return one pod; `node` is empty for a pending one."""
        at = self._workload.first + ordinal
        return (
            self._text.replace(_NAME, self._workload.pod_name(ordinal))
            .replace(_UID, _uid(at))
            .replace(_NODE, node)
            .replace(_IP, f"10.{at >> 16 & 255}.{at >> 8 & 255}.{at & 255}")
            .replace(_TIME, _stamp(bound_at))
            .replace(_PHASE, phase)
            .encode()
        )


def _pod(workload: Workload) -> _Json:
    metadata: _Json = {
        "name": _NAME,
        "namespace": workload.namespace,
        "uid": _UID,
        "creationTimestamp": _TIME,
        "labels": {
            "app.kubernetes.io/name": workload.name,
            "app.kubernetes.io/part-of": workload.namespace,
            "pod-template-hash": _suffix(workload.number),
        },
        "annotations": {"checksum/config": _uid(workload.number) * 2},
    }
    if workload.kind:
        owner = {
            "apiVersion": "apps/v1",
            "blockOwnerDeletion": True,
            "controller": True,
            "kind": workload.kind,
            "name": workload.name,
            "uid": _uid(workload.number),
        }
        metadata |= {"generateName": f"{workload.name}-", "ownerReferences": [owner]}
    status = {
        "phase": _PHASE,
        "qosClass": "Burstable" if workload.request_percent else "BestEffort",
        "podIP": _IP,
        "podIPs": [{"ip": _IP}],
        "startTime": _TIME,
        "conditions": [
            _condition(kind, "True", _TIME)
            for kind in ("Initialized", "Ready", "ContainersReady", "PodScheduled")
        ],
        "containerStatuses": [
            {
                "name": f"app-{number}",
                "image": f"registry.example/{workload.name}:v1.2.{number}",
                "containerID": f"containerd://{_UID}{number}",
                "ready": True,
                "restartCount": 0,
                "state": {"running": {"startedAt": _TIME}},
            }
            for number in range(workload.containers)
        ],
    }
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": metadata,
        "spec": _pod_spec(workload),
        "status": status,
    }


def _pod_spec(workload: Workload) -> _Json:
    tolerations = [
        {
            "key": f"node.kubernetes.io/{kind}",
            "operator": "Exists",
            "effect": "NoExecute",
            "tolerationSeconds": 300,
        }
        for kind in ("not-ready", "unreachable")
    ]
    spec: _Json = {
        "containers": [_container(workload, number) for number in range(workload.containers)],
        "dnsPolicy": "ClusterFirst",
        "enableServiceLinks": True,
        "nodeName": _NODE,
        "preemptionPolicy": "PreemptLowerPriority",
        "restartPolicy": "Always",
        "schedulerName": "default-scheduler",
        "securityContext": {"runAsNonRoot": True},
        "serviceAccountName": "default",
        "terminationGracePeriodSeconds": 30,
        "tolerations": tolerations,
        "volumes": [{"name": "token", "projected": {"defaultMode": 420, "sources": []}}],
    }
    if workload.has_sidecar:
        spec["initContainers"] = [
            {
                "name": "proxy",
                "image": "registry.example/proxy:v1",
                "restartPolicy": "Always",
                "resources": _resources(100, 128, 50),
            }
        ]
    if workload.priority is not None:
        spec["priority"] = workload.priority
    return spec


def _container(workload: Workload, number: int) -> _Json:
    resources: _Json = {}
    if workload.request_percent:
        resources = _resources(workload.cpu_limit, workload.mib_limit, workload.request_percent)
    if workload.gpus and number == 0:
        for side in ("requests", "limits"):
            resources.setdefault(side, {})["nvidia.com/gpu"] = str(workload.gpus)
    return {
        "name": f"app-{number}",
        "image": f"registry.example/{workload.name}:v1.2.{number}",
        "imagePullPolicy": "IfNotPresent",
        "env": [{"name": f"SETTING_{n}", "value": f"value-{n}"} for n in range(12)],
        "ports": [{"containerPort": 8080 + number, "protocol": "TCP"}],
        "readinessProbe": {
            "httpGet": {"path": "/ready", "port": 8080, "scheme": "HTTP"},
            "periodSeconds": 10,
        },
        "resources": resources,
        "volumeMounts": [{"mountPath": "/var/run/secrets/token", "name": "token"}],
    }


def _resources(cpu: int, mib: int, percent: int) -> _Json:
    return {
        "limits": {"cpu": f"{cpu}m", "memory": f"{mib}Mi"},
        "requests": {"cpu": f"{cpu * percent // 100}m", "memory": f"{mib * percent // 100}Mi"},
    }


def _usage(cpu: int, mib: int) -> _Json:
    return {"resources": {"cpu": f"{cpu}m", "memory": f"{mib * 1024}Ki"}}


def _condition(kind: str, status: str, since: str) -> _Json:
    return {"type": kind, "status": status, "lastTransitionTime": since}


def _object(api_version: str, kind: str, metadata: _Json, **parts: _Json) -> bytes:
    return msgspec.json.encode(
        {"apiVersion": api_version, "kind": kind, "metadata": metadata, **parts}
    )


def _stamp(moment: datetime) -> str:
    return moment.strftime("%Y-%m-%dT%H:%M:%SZ")


def _uid(number: int) -> str:
    return f"{number:08x}-0000-4000-8000-{number * 2_654_435_761 % 2**48:012x}"


def _suffix(number: int) -> str:
    """Return five letters, different for numbers below 27**5."""
    letters = ""
    for _ in range(5):
        number, digit = divmod(number, len(_LETTERS))
        letters += _LETTERS[digit]
    return letters
