"""A made-up cluster of any size, the same for the same seed, as the JSON its API server sends.

Objects are yielded one by one and built from one text per template, so a cluster of 150,000 pods
costs a few megabytes to describe and seconds to write out. They look as `kubectl get -o json`
shows them: everything the engine reads and the usual amount of what it skips, about 3.5 KB a pod,
without managedFields.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import cached_property
from typing import Any, TypeAlias

import msgspec
import numpy as np
from numpy.typing import NDArray

NOW = datetime(2026, 1, 1, tzinfo=UTC)
"""The moment the cluster is looked at."""

_Json: TypeAlias = dict[str, Any]
_Ints: TypeAlias = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class _Machine:
    """An instance type."""

    name: str
    cores: int
    gib: int
    gpus: int = 0


_MACHINES = (
    _Machine("m6i.xlarge", 4, 16),
    _Machine("c6i.2xlarge", 8, 16),
    _Machine("r6i.2xlarge", 8, 64),
    _Machine("m6i.4xlarge", 16, 64),
    _Machine("c6i.8xlarge", 32, 64),
    _Machine("m6i.16xlarge", 64, 256),
    _Machine("g5.8xlarge", 32, 128, gpus=4),
)
_SHARE_OF_MACHINES = (0.2, 0.2, 0.15, 0.25, 0.1, 0.07, 0.03)
_GPU_MACHINE = 6
_ZONES = ("eu-west-1a", "eu-west-1b", "eu-west-1c")
_OVERCOMMIT = (0.1, 6.0)  # least and greatest ratio of limits to allocatable aimed at
_MOST_PODS_TO_MEAN = 4.0  # no node gets more than this many times the mean number of pods
_DAEMON_SETS = 6
_BARE_SHARE = 0.01
_PENDING_SHARE = 0.002
_FINISHED_SHARE = 0.01
_BEST_EFFORT_SHARE = 0.05
_CPU_LIMITS = (100, 200, 250, 500, 750, 1000, 1500, 2000, 3000, 4000, 8000)  # millicores
_SHARE_OF_CPU_LIMITS = (0.12, 0.12, 0.12, 0.16, 0.08, 0.16, 0.08, 0.08, 0.04, 0.03, 0.01)
_REQUEST_PERCENTS = (5, 10, 15, 20, 25, 50, 100)
_SHARE_OF_REQUEST_PERCENTS = (0.15, 0.25, 0.2, 0.15, 0.1, 0.1, 0.05)
_LETTERS = "bcdfghjklmnpqrstvwxz2456789"  # those of the suffixes Kubernetes generates

# What differs between the pods of one template; none of it needs escaping in JSON.
_NAME, _UID, _NODE, _IP, _TIME, _PHASE = (
    f"@{word}@" for word in ("name", "uid", "node", "ip", "time", "phase")
)


@dataclass(frozen=True, slots=True)
class _Workload:
    """Pods of one template.

    Attributes:
        first: index of its first pod.
        pods: how many there are.
        kind: DaemonSet, ReplicaSet or "" for a bare pod.
        cpu_limit: millicores per app container.
        mib_limit: mebibytes per app container.
        request_percent: of the limits; 0 means that containers say nothing.
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
    gpus: int
    sidecar: bool
    priority: int | None

    @property
    def name(self) -> str:
        """The name of its owner, or of the bare pod."""
        return f"{self.kind.lower() or 'bare'}-{self.number:05d}"

    def pod_name(self, ordinal: int) -> str:
        """The name of one of its pods."""
        return f"{self.name}-{_suffix(self.first + ordinal)}" if self.kind else self.name


class GeneratedCluster:
    """Nodes, pods, usage, namespaces and quotas; each method yields the JSON of its objects.

    Limits of the pods on a node are between 0.1 and 6 times its allocatable on most nodes; every
    node has a NodeMetric that knows each of its pods; a few pods are pending or have finished.
    """

    def __init__(self, *, nodes: int = 5_000, pods: int = 150_000, seed: int = 1) -> None:
        self.node_count = nodes
        self.pod_count = pods
        self._random = np.random.default_rng(seed)
        random = self._random
        self._machine = random.choice(len(_MACHINES), nodes, p=_SHARE_OF_MACHINES)
        self._machine[: nodes // 50 + 1] = _GPU_MACHINE
        self._zone = random.integers(0, len(_ZONES), nodes)
        self._is_spot = random.random(nodes) < 0.3
        self._namespaces = [f"team-{number:03d}" for number in range(max(1, nodes // 50))]
        self._workloads = list(self._draw_workloads())
        self._node_of_pod = self._draw_nodes()
        self._percent_used = random.integers(1, 90, pods)  # of the limits

    def namespaces(self) -> Iterator[bytes]:
        """Yield the namespaces."""
        for number, name in enumerate(self._namespaces):
            labels = {
                "kubernetes.io/metadata.name": name,
                "tier": ("gold", "silver", "bronze")[number % 3],
            }
            yield _object("v1", "Namespace", {"name": name, "labels": labels})

    def quotas(self) -> Iterator[bytes]:
        """Yield one ElasticQuota per namespace, of the two API groups by turns."""
        groups = ("scheduling.x-k8s.io", "scheduling.sigs.k8s.io")
        for number, namespace in enumerate(self._namespaces):
            yield _object(
                f"{groups[number % 2]}/v1alpha1",
                "ElasticQuota",
                {"name": "quota", "namespace": namespace},
                spec={
                    "min": {"cpu": "100", "memory": "400Gi"},
                    "max": {"cpu": "5000", "memory": "20Ti", "nvidia.com/gpu": "64"},
                },
                status={"used": {"cpu": "1234500m", "memory": "2345Gi"}},
            )

    def nodes(self) -> Iterator[bytes]:
        """Yield the nodes."""
        for row in range(self.node_count):
            yield self._node(row)

    def pods(self) -> Iterator[bytes]:
        """Yield the pods, template by template."""
        bound = self._node_of_pod >= 0
        ages = np.random.default_rng(2).integers(1, 30 * 86_400, self.pod_count)  # seconds
        ages[::97] = 20  # just bound, so that estimates count beside measurements
        finished = np.random.default_rng(3).random(self.pod_count) < _FINISHED_SHARE
        for workload in self._workloads:
            template = msgspec.json.encode(_pod(workload)).decode()
            for ordinal in range(workload.pods):
                at = workload.first + ordinal
                phase = "Pending" if not bound[at] else "Succeeded" if finished[at] else "Running"
                yield (
                    template.replace(_NAME, workload.pod_name(ordinal))
                    .replace(_UID, _uid(at))
                    .replace(_NODE, self.node_name(self._node_of_pod[at]) if bound[at] else "")
                    .replace(_IP, f"10.{at >> 16 & 255}.{at >> 8 & 255}.{at & 255}")
                    .replace(_TIME, _stamp(NOW - timedelta(seconds=int(ages[at]))))
                    .replace(_PHASE, phase)
                    .encode()
                )

    def node_metrics(self) -> Iterator[bytes]:
        """Yield one Koordinator NodeMetric per node."""
        order = np.argsort(self._node_of_pod, kind="stable")
        starts = np.searchsorted(self._node_of_pod[order], np.arange(self.node_count + 1))
        for row in range(self.node_count):
            yield self._node_metric(row, order[starts[row] : starts[row + 1]])

    def objects(self) -> Iterator[bytes]:
        """Yield everything there is."""
        yield from self.namespaces()
        yield from self.quotas()
        yield from self.nodes()
        yield from self.node_metrics()
        yield from self.pods()

    def node_name(self, row: int) -> str:
        """Return the name of a node."""
        return f"ip-10-{row >> 8 & 255}-{row & 255}-{row % 251}.{_ZONES[0][:-1]}.compute.internal"

    def _draw_workloads(self) -> Iterator[_Workload]:
        daemon_sets = min(_DAEMON_SETS, self.pod_count // self.node_count // 3)
        sizes = [self.node_count] * daemon_sets
        left = self.pod_count - sum(sizes)
        while left:
            size = min(left, 1 + int(self._random.pareto(1.2) * 3), 1000)
            sizes.append(size)
            left -= size
        first = 0
        for number, size in enumerate(sizes):
            yield self._draw_workload(number, first, size, is_daemon_set=number < daemon_sets)
            first += size

    def _draw_workload(
        self, number: int, first: int, pods: int, *, is_daemon_set: bool
    ) -> _Workload:
        random = self._random
        cpu = int(random.choice(_CPU_LIMITS, p=_normal(_SHARE_OF_CPU_LIMITS)))
        percent = int(random.choice(_REQUEST_PERCENTS, p=_normal(_SHARE_OF_REQUEST_PERCENTS)))
        is_bare = pods == 1 and random.random() < 10 * _BARE_SHARE
        return _Workload(
            number=number,
            first=first,
            pods=pods,
            kind="DaemonSet" if is_daemon_set else "" if is_bare else "ReplicaSet",
            namespace="kube-system"
            if is_daemon_set
            else self._namespaces[int(random.integers(len(self._namespaces)))],
            containers=1 if is_daemon_set else int(random.choice((1, 2, 3), p=(0.6, 0.3, 0.1))),
            cpu_limit=100 if is_daemon_set else cpu,
            mib_limit=128 if is_daemon_set else 64 * int(random.integers(1, 1 + cpu // 16)),
            request_percent=0 if random.random() < _BEST_EFFORT_SHARE else percent,
            gpus=int(not is_daemon_set and random.random() < 0.005),
            sidecar=bool(random.random() < 0.1),
            priority=(None, None, 9500, 5500)[int(random.integers(4))],
        )

    def _draw_nodes(self) -> _Ints:
        """Return the node of each pod, -1 for a pending one."""
        random = self._random
        cores = np.array([machine.cores for machine in _MACHINES])[self._machine]
        low, high = np.log(_OVERCOMMIT)
        aim = cores * np.exp(random.uniform(low, high, self.node_count))
        aim = np.minimum(aim, _MOST_PODS_TO_MEAN * aim.mean())
        gpu_aim = np.where(self._machine == _GPU_MACHINE, aim, 0.0)
        chosen = np.empty(self.pod_count, np.int64)
        for workload in self._workloads:
            span = slice(workload.first, workload.first + workload.pods)
            if workload.kind == "DaemonSet":
                chosen[span] = np.arange(self.node_count)
                continue
            upto = np.cumsum(gpu_aim if workload.gpus else aim)
            chosen[span] = np.searchsorted(upto, random.random(workload.pods) * upto[-1])
            if workload.kind:
                chosen[span][random.random(workload.pods) < _PENDING_SHARE] = -1
        return chosen

    @cached_property
    def _workload_of_pod(self) -> _Ints:
        return np.repeat(np.arange(len(self._workloads)), [w.pods for w in self._workloads])

    def _node(self, row: int) -> bytes:
        machine = _MACHINES[self._machine[row]]
        name, zone = self.node_name(row), _ZONES[self._zone[row]]
        devices = {"nvidia.com/gpu": str(machine.gpus)} if machine.gpus else {}
        capacity = {
            "cpu": str(machine.cores),
            "ephemeral-storage": "104845292Ki",
            "hugepages-1Gi": "0",
            "memory": f"{machine.gib * 1024 * 1024 - 65_536}Ki",
            "pods": "250",
            **devices,
        }
        allocatable = {
            **capacity,
            "cpu": f"{machine.cores * 1000 - 80}m",
            "memory": f"{(machine.gib - 1) * 1024 * 1024}Ki",
        }
        labels = {
            "beta.kubernetes.io/arch": "amd64",
            "beta.kubernetes.io/os": "linux",
            "karpenter.sh/capacity-type": "spot" if self._is_spot[row] else "on-demand",
            "kubernetes.io/arch": "amd64",
            "kubernetes.io/hostname": name,
            "kubernetes.io/os": "linux",
            "node.kubernetes.io/instance-type": machine.name,
            "topology.kubernetes.io/region": zone[:-1],
            "topology.kubernetes.io/zone": zone,
            **({"accelerator": "nvidia-a10g"} if machine.gpus else {}),
        }
        taint = {"key": "nvidia.com/gpu", "value": "present", "effect": "NoSchedule"}
        return _object(
            "v1",
            "Node",
            {
                "name": name,
                "uid": _uid(10**9 + row),
                "creationTimestamp": _stamp(NOW - timedelta(days=90)),
                "labels": labels,
                "annotations": {"node.alpha.kubernetes.io/ttl": "300"},
            },
            spec={
                "providerID": f"aws:///{zone}/i-{row:017x}",
                **({"taints": [taint]} if machine.gpus else {}),
                **({"unschedulable": True} if row % 400 == 399 else {}),
            },
            status={
                "allocatable": allocatable,
                "capacity": capacity,
                "conditions": [
                    _condition(kind, "True" if kind == "Ready" else "False", _stamp(NOW))
                    for kind in ("MemoryPressure", "DiskPressure", "PIDPressure", "Ready")
                ],
                "images": [
                    {"names": [f"registry.example/image-{n}:v1.{n}"], "sizeBytes": 10**8 + n}
                    for n in range(20)
                ],
            },
        )

    def _node_metric(self, row: int, pods: _Ints) -> bytes:
        name = self.node_name(row)
        system_cpu, system_mib = 150 + row % 200, 600 + row % 500
        cpu, mib, reports = system_cpu, system_mib, []
        for at in pods.tolist():
            workload = self._workloads[self._workload_of_pod[at]]
            used = int(self._percent_used[at])
            pod_cpu = workload.containers * workload.cpu_limit * used // 400
            pod_mib = workload.containers * workload.mib_limit * used // 100
            cpu, mib = cpu + pod_cpu, mib + pod_mib
            reports.append(
                {
                    "namespace": workload.namespace,
                    "name": workload.pod_name(at - workload.first),
                    "priority": "koord-batch" if workload.priority == 5500 else "koord-prod",
                    "podUsage": _usage(pod_cpu, pod_mib),
                }
            )
        expired = row % 100 == 99
        aggregated = [
            {
                "duration": duration,
                "usage": {
                    kind: _usage(cpu * percent // 100, mib)
                    for kind, percent in (
                        ("avg", 90), ("p50", 88), ("p90", 120), ("p95", 130), ("p99", 150)
                    )
                },
            }
            for duration in ("5m0s", "10m0s", "30m0s")
        ]  # fmt: skip
        return _object(
            "slo.koordinator.sh/v1alpha1",
            "NodeMetric",
            {"name": name, "uid": _uid(2 * 10**9 + row)},
            spec={
                "metricCollectPolicy": {"aggregateDurationSeconds": 300, "reportIntervalSeconds": 60}
            },
            status={
                "updateTime": _stamp(NOW - timedelta(seconds=600 if expired else row % 60)),
                "nodeMetric": {
                    "nodeUsage": _usage(cpu, mib),
                    "systemUsage": _usage(system_cpu, system_mib),
                    "aggregatedNodeUsages": aggregated,
                },
                "podsMetric": reports,
            },
        )


def kubectl_list(objects: Iterator[bytes]) -> Iterator[bytes]:
    """Yield the parts of the `v1 List` that `kubectl get -o json` prints of `objects`."""
    yield b'{"apiVersion":"v1","items":['
    for number, item in enumerate(objects):
        yield b"," * bool(number) + b"\n" + item
    yield b'\n],"kind":"List","metadata":{"resourceVersion":""}}\n'


def _pod(workload: _Workload) -> _Json:
    """Return the template of a workload's pods."""
    spec: _Json = {
        "containers": [_container(workload, n) for n in range(workload.containers)],
        "dnsPolicy": "ClusterFirst",
        "enableServiceLinks": True,
        "nodeName": _NODE,
        "preemptionPolicy": "PreemptLowerPriority",
        "restartPolicy": "Always",
        "schedulerName": "default-scheduler",
        "securityContext": {"runAsNonRoot": True},
        "serviceAccountName": "default",
        "terminationGracePeriodSeconds": 30,
        "tolerations": [
            {
                "key": f"node.kubernetes.io/{kind}",
                "operator": "Exists",
                "effect": "NoExecute",
                "tolerationSeconds": 300,
            }
            for kind in ("not-ready", "unreachable")
        ],
        "volumes": [{"name": "token", "projected": {"defaultMode": 420, "sources": []}}],
    }
    if workload.sidecar:
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
    metadata: _Json = {
        "name": _NAME,
        "generateName": f"{workload.name}-",
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
        metadata["ownerReferences"] = [
            {
                "apiVersion": "apps/v1",
                "blockOwnerDeletion": True,
                "controller": True,
                "kind": workload.kind,
                "name": workload.name,
                "uid": _uid(workload.number),
            }
        ]
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
                "name": f"app-{n}",
                "image": f"registry.example/{workload.name}:v1.2.{n}",
                "containerID": f"containerd://{_UID}{n}",
                "ready": True,
                "restartCount": 0,
                "state": {"running": {"startedAt": _TIME}},
            }
            for n in range(workload.containers)
        ],
    }
    return {
        "apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec, "status": status
    }  # fmt: skip


def _container(workload: _Workload, number: int) -> _Json:
    resources: _Json = {}
    if workload.request_percent:
        cpu, mib = workload.cpu_limit, workload.mib_limit
        resources = _resources(cpu, mib, workload.request_percent)
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


def _normal(shares: tuple[float, ...]) -> NDArray[np.float64]:
    return np.array(shares) / sum(shares)


def _stamp(moment: datetime) -> str:
    return moment.strftime("%Y-%m-%dT%H:%M:%SZ")


def _uid(number: int) -> str:
    return f"{number:08x}-0000-4000-8000-{number * 2654435761 % 2**48:012x}"


def _suffix(number: int) -> str:
    """Return five letters, different for numbers below 27**5."""
    letters = ""
    for _ in range(5):
        number, digit = divmod(number, len(_LETTERS))
        letters += _LETTERS[digit]
    return letters
