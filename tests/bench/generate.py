"""A made-up cluster of any size, the same for the same seed, as the JSON its API server sends.

Objects are yielded one by one, so a cluster of 150,000 pods costs a few megabytes to describe and
seconds to write out. What they look like is in `tests.bench.texts`.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime, timedelta
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from tests.bench import texts
from tests.bench.texts import NOW, Machine, Workload

_MACHINES = (
    Machine("m6i.xlarge", 4, 16),
    Machine("c6i.2xlarge", 8, 16),
    Machine("r6i.2xlarge", 8, 64),
    Machine("m6i.4xlarge", 16, 64),
    Machine("c6i.8xlarge", 32, 64),
    Machine("m6i.16xlarge", 64, 256),
    Machine("g5.8xlarge", 32, 128, gpus=4),
)
_MACHINE_SHARES = (0.2, 0.2, 0.15, 0.25, 0.1, 0.07, 0.03)
_GPU_MACHINE = len(_MACHINES) - 1
_ZONES = ("eu-west-1a", "eu-west-1b", "eu-west-1c")
_SPOT_SHARE = 0.3
_OVERCOMMIT = (0.1, 6.0)  # least and greatest ratio of limits to allocatable aimed at
_MOST_PODS_TO_MEAN = 4.0  # no node gets many more pods than this many times the mean

_DAEMON_SETS = 6
_BARE_SHARE = 0.1  # of the workloads of one pod
_GPU_SHARE = 0.005  # of the workloads
_BEST_EFFORT_SHARE = 0.05
_SIDECAR_SHARE = 0.1
_PENDING_SHARE = 0.002  # of the pods
_FINISHED_SHARE = 0.01
_CPU_LIMITS = (100, 200, 250, 500, 750, 1000, 1500, 2000, 3000, 4000, 8000)  # millicores
_CPU_LIMIT_SHARES = (0.16, 0.16, 0.16, 0.18, 0.08, 0.13, 0.04, 0.05, 0.02, 0.015, 0.005)
_REQUEST_PERCENTS = (5, 10, 15, 20, 25, 50, 100)
_REQUEST_PERCENT_SHARES = (0.15, 0.25, 0.2, 0.15, 0.1, 0.1, 0.05)
_PRIORITIES = (None, None, 9500, texts.BATCH_PRIORITY)
_JUST_BOUND_EVERY = 97  # such a pod is 20 s old: estimates count beside its measurement

_Ints = NDArray[np.int64]


class GeneratedCluster:
    """Nodes, pods, usage, namespaces and quotas; each method yields the JSON of its objects.

    Limits of the pods on a node are between 0.1 and 6 times its allocatable on most nodes;
    every node has a NodeMetric that knows each of its pods; a few pods are pending or finished.

    Attributes:
        now: the moment it is looked at; ages of pods and of measurements go back from it.
        workloads: what the pods are made from.
    """

    def __init__(
        self, *, nodes: int = 5_000, pods: int = 150_000, seed: int = 1, now: datetime = NOW
    ) -> None:
        self.now = now
        self.node_count = nodes
        self.pod_count = pods
        random = np.random.default_rng(seed)
        self._machine = random.choice(len(_MACHINES), nodes, p=_MACHINE_SHARES)
        self._machine[0] = _GPU_MACHINE  # there is at least one
        self._zone = random.integers(0, len(_ZONES), nodes)
        self._is_spot = random.random(nodes) < _SPOT_SHARE
        self._namespaces = [f"team-{number:03d}" for number in range(nodes // 50 + 1)]
        self.workloads = list(self._draw_workloads(random))
        self._node_of_pod = self._draw_nodes(random)
        self._age = random.integers(3_600, 30 * 86_400, pods)  # seconds
        self._age[::_JUST_BOUND_EVERY] = 20
        self._is_finished = random.random(pods) < _FINISHED_SHARE
        self._percent_used = random.integers(1, 90, pods)  # of the limits

    def namespaces(self) -> Iterator[bytes]:
        """Yield the namespaces."""
        return map(texts.namespace, self._namespaces)

    def quotas(self) -> Iterator[bytes]:
        """Yield one ElasticQuota per namespace, of the two API groups by turns."""
        groups = ("scheduling.x-k8s.io", "scheduling.sigs.k8s.io")
        for number, namespace in enumerate(self._namespaces):
            yield texts.quota(namespace, groups[number % len(groups)])

    def nodes(self) -> Iterator[bytes]:
        """Yield the nodes."""
        for row in range(self.node_count):
            yield texts.node(
                self.node_name(row),
                _MACHINES[self._machine[row]],
                zone=_ZONES[self._zone[row]],
                is_spot=bool(self._is_spot[row]),
                is_cordoned=row % 400 == 399,
            )

    def pods(self) -> Iterator[bytes]:
        """Yield the pods, workload by workload."""
        for workload in self.workloads:
            template = texts.PodTemplate(workload)
            for ordinal in range(workload.pods):
                at = workload.first + ordinal
                row = int(self._node_of_pod[at])
                phase = "Succeeded" if self._is_finished[at] else "Running"
                yield template.pod(
                    ordinal,
                    node=self.node_name(row) if row >= 0 else "",
                    bound_at=self.now - timedelta(seconds=int(self._age[at])),
                    phase=phase if row >= 0 else "Pending",
                )

    def node_metrics(self) -> Iterator[bytes]:
        """Yield one Koordinator NodeMetric per node; every hundredth has expired."""
        order = np.argsort(self._node_of_pod, kind="stable")
        starts = np.searchsorted(self._node_of_pod[order], np.arange(self.node_count + 1))
        for row in range(self.node_count):
            pods = [self._pod_usage(at) for at in order[starts[row] : starts[row + 1]].tolist()]
            age = 600 if row % 100 == 99 else row % 60
            yield texts.node_metric(self.node_name(row), self.now - timedelta(seconds=age), pods)

    def objects(self) -> Iterator[bytes]:
        """Yield everything there is."""
        yield from self.others()
        yield from self.pods()

    def others(self) -> Iterator[bytes]:
        """Yield everything but the pods."""
        yield from self.namespaces()
        yield from self.quotas()
        yield from self.nodes()
        yield from self.node_metrics()

    def node_name(self, row: int) -> str:
        """Return the name of a node."""
        return f"ip-10-0-{row >> 8}-{row & 255}.eu-west-1.compute.internal"

    def _draw_workloads(self, random: np.random.Generator) -> Iterator[Workload]:
        daemon_sets = min(_DAEMON_SETS, self.pod_count // self.node_count // 3)
        sizes = [self.node_count] * daemon_sets
        left = self.pod_count - sum(sizes)
        while left:
            size = min(left, 1 + int(random.pareto(1.2) * 3), 1000)
            sizes.append(size)
            left -= size
        first = 0
        for number, size in enumerate(sizes):
            if number < daemon_sets:
                yield texts.daemon_set(number, first, size)
            else:
                yield self._draw_workload(random, number, first, size)
            first += size

    def _draw_workload(
        self, random: np.random.Generator, number: int, first: int, pods: int
    ) -> Workload:
        cpu = int(random.choice(_CPU_LIMITS, p=_CPU_LIMIT_SHARES))
        percent = int(random.choice(_REQUEST_PERCENTS, p=_REQUEST_PERCENT_SHARES))
        is_bare = pods == 1 and random.random() < _BARE_SHARE
        return Workload(
            number=number,
            first=first,
            pods=pods,
            kind="" if is_bare else "ReplicaSet",
            namespace=self._namespaces[int(random.integers(len(self._namespaces)))],
            containers=int(random.choice((1, 2, 3), p=(0.6, 0.3, 0.1))),
            cpu_limit=cpu,
            mib_limit=64 * int(random.integers(1, 2 + cpu // 16)),
            request_percent=0 if random.random() < _BEST_EFFORT_SHARE else percent,
            gpus=int(random.random() < _GPU_SHARE),
            has_sidecar=bool(random.random() < _SIDECAR_SHARE),
            priority=_PRIORITIES[int(random.integers(len(_PRIORITIES)))],
        )

    def _draw_nodes(self, random: np.random.Generator) -> _Ints:
        """Return the node of each pod, -1 for a pending one."""
        cores = np.array([machine.cores for machine in _MACHINES])[self._machine]
        least, most = np.log(_OVERCOMMIT)
        ratio = np.exp(random.uniform(least, most, self.node_count))
        weight = cores * ratio
        weight = np.minimum(weight, _MOST_PODS_TO_MEAN * weight.mean())
        gpu_weight = np.where(self._machine == _GPU_MACHINE, weight, 0.0)
        upto_with_gpus, upto_of_all = np.cumsum(gpu_weight), np.cumsum(weight)
        chosen = np.empty(self.pod_count, np.int64)
        for workload in self.workloads:
            span = slice(workload.first, workload.first + workload.pods)
            if workload.kind == "DaemonSet":
                chosen[span] = np.arange(self.node_count)
                continue
            upto = upto_with_gpus if workload.gpus else upto_of_all
            chosen[span] = np.searchsorted(upto, random.random(workload.pods) * upto[-1])
            chosen[span][random.random(workload.pods) < _PENDING_SHARE] = -1
        return chosen

    def _pod_usage(self, at: int) -> texts.PodUsage:
        workload = self.workloads[self._workload_of_pod[at]]
        percent = int(self._percent_used[at])
        return texts.PodUsage(
            workload=workload,
            ordinal=at - workload.first,
            cpu=workload.containers * workload.cpu_limit * percent // 400,
            mib=workload.containers * workload.mib_limit * percent // 100,
        )

    @cached_property
    def _workload_of_pod(self) -> _Ints:
        return np.repeat(np.arange(len(self.workloads)), [one.pods for one in self.workloads])


def kubectl_list(objects: Iterator[bytes]) -> Iterator[bytes]:
    """Yield the parts of the `v1 List` that `kubectl get -o json` prints of `objects`."""
    yield b'{"apiVersion":"v1","items":['
    for number, item in enumerate(objects):
        yield b",\n" if number else b"\n"
        yield item
    yield b'\n],"kind":"List","metadata":{"resourceVersion":""}}\n'
