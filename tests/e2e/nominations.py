"""Gated pods, nominated and released by hand, without anything of ours in between."""

from __future__ import annotations

from collections.abc import Mapping

from tests.e2e.cluster import Cluster, Json, eventually
from tests.e2e.nodes import Nodes
from tests.e2e.workloads import pod

GATE = "example.com/held"
_HOSTNAME = "kubernetes.io/hostname"


class Nominations:
    """Pods of one namespace, and what the scheduler does with them.

    Args:
        cluster: as its admin.
        nodes: where the pods may run.
        namespace: of the pods.
    """

    def __init__(self, cluster: Cluster, nodes: Nodes, namespace: str) -> None:
        self._cluster = cluster
        self._nodes = nodes
        self._namespace = namespace

    async def add_nodes(self, *names: str, cpu: str = "4") -> None:
        """Add nodes, and wait until the scheduler knows them."""
        for name in names:
            await self._nodes.add(name, {"cpu": cpu})
        await self.nodes_seen()

    async def nodes_seen(self) -> None:
        """Wait until the scheduler knows all that has happened to nodes by now."""
        await self._nodes.known(self._namespace)

    async def hold(self, name: str, cpu: str, node: str = "", **spec: object) -> None:
        """Create a gated pod.

        Args:
            name: of the pod.
            cpu: what it asks for.
            node: what it is nominated to; empty leaves it without a nomination.
            spec: more of the pod's spec.
        """
        await self.create(name, cpu, schedulingGates=[{"name": GATE}], **spec)
        if node:
            await self.nominate(name, node)

    async def create(self, name: str, cpu: str, **spec: object) -> Json:
        """Create a pod, without a gate unless the spec has one."""
        made = pod(self._namespace, name, requests={"cpu": cpu})
        made["metadata"]["labels"] = {"app": name}
        made["spec"] |= spec
        return await self._cluster.create(made)

    async def nominate(self, name: str, node: str | None) -> Json:
        """Nominate a node for a pod; None takes the nomination back."""
        status = {"status": {"nominatedNodeName": node}}
        return await self._cluster.patch(
            "pods", name, status, self._namespace, subresource="status"
        )

    async def release(self, name: str) -> None:
        """Remove the gate."""
        await self._cluster.patch(
            "pods", name, {"spec": {"schedulingGates": None}}, self._namespace
        )

    async def delete(self, name: str, *, grace_seconds: int | None = 0) -> None:
        """Delete a pod."""
        await self._cluster.delete("pods", name, self._namespace, grace_seconds=grace_seconds)

    async def get(self, name: str) -> Json:
        """Return a pod."""
        return await self._cluster.get("pods", name, self._namespace)

    async def nominated(self, name: str) -> str:
        """Return the node that a pod is nominated to, empty for none."""
        node: str = (await self.get(name))["status"].get("nominatedNodeName", "")
        return node

    async def bound(self, name: str) -> str:
        """Return the node of a pod, as soon as it has one."""

        async def node_of() -> str:
            node: str = (await self.get(name))["spec"].get("nodeName", "")
            return node

        return await eventually(node_of, f"{name} is bound")

    async def unschedulable(self, name: str) -> str:
        """Return why the scheduler finds no node for a pod, as soon as it says so."""

        async def message() -> str:
            condition = _scheduled(await self.get(name))
            return condition["message"] if condition.get("reason") == "Unschedulable" else ""

        return await eventually(message, f"{name} is unschedulable")

    async def waits(self, name: str) -> bool:
        """Return whether a pod is gated and the scheduler has seen that."""
        return _scheduled(await self.get(name)).get("reason") == "SchedulingGated"


def only_on(node: str) -> Mapping[str, str]:
    """Return the `nodeSelector` of a pod that may run on one node alone."""
    return {_HOSTNAME: node}


def _scheduled(pod: Json) -> Json:
    conditions: list[Json] = pod["status"].get("conditions", [])
    return next((one for one in conditions if one["type"] == "PodScheduled"), {})
