"""Nodes that exist only as API objects, and the kubelet that runs their pods.

A kubelet runs containers and reports; this one only reports: a pod that is bound is Running and
Ready, a resized one has what it asks for, one that is being deleted is gone. Nodes need no
heartbeat (see `ControlPlane`).
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager, suppress
from datetime import UTC, datetime
from itertools import count

import aiohttp

from tests.e2e.cluster import CallError, Cluster, Json, eventually
from tests.e2e.workloads import pod

_BETWEEN_TRIES_SECONDS = 0.2
_SEEN = "example.com/seen"

_serial = count()


class Nodes:
    """The nodes of a test."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self.names: list[str] = []

    async def add(
        self,
        name: str,
        allocatable: Mapping[str, str] | None = None,
        *,
        labels: Mapping[str, str] | None = None,
        capacity: Mapping[str, str] | None = None,
        taints: tuple[Json, ...] = (),
    ) -> None:
        """Add a node that is Ready, and wait until pods may run there.

        Args:
            name: also its `kubernetes.io/hostname`.
            allocatable: by default 4 cores, 16Gi and 110 pods; given amounts change these.
            labels: beside the usual ones.
            capacity: where it differs from `allocatable`.
            taints: beside those that the cluster sets.
        """
        usual = {"kubernetes.io/hostname": name, "kubernetes.io/os": "linux"}
        amounts = {"cpu": "4", "memory": "16Gi", "pods": "110", **(allocatable or {})}
        node: Json = {
            "apiVersion": "v1",
            "kind": "Node",
            "metadata": {"name": name, "labels": {**usual, **(labels or {})}},
            "spec": {"taints": list(taints)},
        }
        await self._cluster.create(node)
        self.names.append(name)
        status = {
            "allocatable": amounts,
            "capacity": {**amounts, **(capacity or {})},
            "conditions": [_condition("Ready", "KubeletReady")],
        }
        await self._patch_status(name, status)
        await eventually(lambda: self._is_open(name), f"node {name} is open for pods")

    async def remove(self, name: str) -> None:
        """Delete a node; the cluster deletes its pods by and by."""
        await self._cluster.delete("nodes", name)
        self.names.remove(name)

    async def set_ready(self, name: str, *, ready: bool) -> None:
        """Let a node fail or recover; the cluster taints it accordingly."""
        condition = _condition("Ready", "KubeletReady" if ready else "KubeletNotReady", is_so=ready)
        await self._patch_status(name, {"conditions": [condition]})

    async def known(self, namespace: str) -> None:
        """Wait until the scheduler knows all that has happened to nodes by now.

        Its watch keeps the order of events. So it is asked for what came last: a label, which a pod
        wants.

        Args:
            namespace: of that pod, which is gone afterwards.
        """
        label = {_SEEN: str(next(_serial))}
        await self._cluster.patch("nodes", self.names[-1], {"metadata": {"labels": label}})
        probe = pod(namespace, f"probe-{label[_SEEN]}")
        probe["spec"] |= {"nodeSelector": label, "tolerations": [{"operator": "Exists"}]}
        name = (await self._cluster.create(probe))["metadata"]["name"]

        async def is_bound() -> bool:
            found = await self._cluster.get("pods", name, namespace)
            return bool(found["spec"].get("nodeName"))

        await eventually(is_bound, "the scheduler knows the nodes")
        await self._cluster.delete("pods", name, namespace, grace_seconds=0)

    async def _patch_status(self, name: str, status: Json) -> None:
        await self._cluster.patch(
            "nodes", name, {"status": status}, how="strategic", subresource="status"
        )

    async def _is_open(self, name: str) -> bool:
        node = await self._cluster.get("nodes", name)
        taints = node["spec"].get("taints", ())
        return not any(taint["key"] == "node.kubernetes.io/not-ready" for taint in taints)


async def kubelet(cluster: Cluster) -> None:
    """Run the pods of all nodes, for as long as it is not cancelled; outages are waited out."""
    while True:
        try:
            async with cluster.watch("pods", fieldSelector="spec.nodeName!=") as events:
                async for event in events:
                    if event["type"] in ("ADDED", "MODIFIED"):
                        await _report(cluster, event["object"])
        except (CallError, aiohttp.ClientError, TimeoutError):
            await asyncio.sleep(_BETWEEN_TRIES_SECONDS)


async def finish(cluster: Cluster, namespace: str, name: str, *, failed: bool = False) -> None:
    """Let a running pod end, well or not."""
    ended = _now()
    code, phase = (1, "Failed") if failed else (0, "Succeeded")
    pod = await cluster.get("pods", name, namespace)
    state = {"terminated": {"exitCode": code, "startedAt": ended, "finishedAt": ended}}
    status = {
        "phase": phase,
        "conditions": [_condition("Ready", "PodCompleted", is_so=False)],
        "containerStatuses": _container_statuses(pod, state, ready=False),
    }
    await _patch_pod_status(cluster, pod, status)


async def _report(cluster: Cluster, pod: Json) -> None:
    """Do what the kubelet does next for a pod."""
    metadata = pod["metadata"]
    try:
        if "deletionTimestamp" in metadata:
            await cluster.delete("pods", metadata["name"], metadata["namespace"], grace_seconds=0)
        elif pod["status"].get("phase") == "Pending":
            await _patch_pod_status(cluster, pod, _running(pod), if_unchanged=True)
        elif resized := _resized(pod):
            await _patch_pod_status(cluster, pod, {"containerStatuses": resized}, if_unchanged=True)
    except CallError as error:
        # The pod is gone, is another by now, or has changed: then its next event is on the way.
        if error.status not in (404, 409):
            raise


def _running(pod: Json) -> Json:
    started = _now()
    conditions = ("PodReadyToStartContainers", "Initialized", "ContainersReady", "Ready")
    return {
        "phase": "Running",
        "startTime": started,
        "hostIP": "10.0.1.1",
        "podIP": "10.0.2.1",
        "podIPs": [{"ip": "10.0.2.1"}],
        "conditions": [_condition(name) for name in conditions],
        "containerStatuses": _container_statuses(
            pod, {"running": {"startedAt": started}}, ready=True
        ),
    }


def _resized(pod: Json) -> list[Json]:
    """Return the container statuses of a pod with what it asks for now; none if that is known."""
    given = pod["status"].get("containerStatuses", [])
    asked = {one["name"]: one.get("resources", {}) for one in pod["spec"]["containers"]}
    after = [{**status, "resources": asked[status["name"]]} for status in given]
    return after if after != given else []


def _container_statuses(pod: Json, state: Json, *, ready: bool) -> list[Json]:
    return [
        {
            "name": container["name"],
            "image": container["image"],
            "imageID": container["image"],
            "containerID": f"e2e://{pod['metadata']['uid']}/{container['name']}",
            "ready": ready,
            "started": ready,
            "restartCount": 0,
            "state": state,
            "resources": container.get("resources", {}),
        }
        for container in pod["spec"]["containers"]
    ]


def _condition(name: str, reason: str = "", *, is_so: bool = True) -> Json:
    return {
        "type": name,
        "status": str(is_so),
        "reason": reason,
        "lastTransitionTime": _now(),
    }


async def _patch_pod_status(
    cluster: Cluster, pod: Json, status: Json, *, if_unchanged: bool = False
) -> None:
    metadata = pod["metadata"]
    preconditions = ("uid", "resourceVersion") if if_unchanged else ("uid",)
    patch = {"metadata": {name: metadata[name] for name in preconditions}, "status": status}
    await cluster.patch(
        "pods",
        metadata["name"],
        patch,
        metadata["namespace"],
        how="strategic",
        subresource="status",
    )


def _now() -> str:
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


@asynccontextmanager
async def nodes_of(cluster: Cluster) -> AsyncIterator[Nodes]:
    """Yield no nodes yet, with a kubelet for those that come; all are removed afterwards."""
    nodes = Nodes(cluster)
    running = asyncio.create_task(kubelet(cluster))
    try:
        yield nodes
        for name in list(nodes.names):
            await nodes.remove(name)
    finally:
        running.cancel()
        with suppress(asyncio.CancelledError):
            await running
