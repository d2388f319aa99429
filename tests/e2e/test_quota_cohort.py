"""Quotas that share a cluster: min is kept, what is idle is borrowed, and shares are fair."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import pytest

from engine.model.elastic_quota import WEIGHT_ANNOTATION
from engine.model.hold import QUEUED_CONDITION
from tests.e2e.cluster import Cluster, Json, eventually
from tests.e2e.control_plane import ControlPlane
from tests.e2e.installed import Installed
from tests.e2e.namespaces import new_names, passing_namespaces
from tests.e2e.nodes import Nodes
from tests.e2e.quotas import elastic_quota
from tests.e2e.test_held_admission import gates_of
from tests.e2e.test_quota_queue import all_queue, queueing, worker

pytestmark = pytest.mark.usefixtures("crds")


async def share(
    cluster: Cluster,
    stowplan: Installed,
    namespace: str,
    *,
    minimum: int,
    maximum: int,
    weight: int = 1,
) -> None:
    """Create a quota of cores, and wait until pods wait for it."""
    quota = elastic_quota(namespace, {"cpu": str(maximum)})
    quota["metadata"]["annotations"] = {WEIGHT_ANNOTATION: str(weight)}
    quota["spec"]["min"] = {"cpu": str(minimum)}
    await cluster.create(quota)
    await all_queue(stowplan, namespace)


async def create(cluster: Cluster, namespace: str, names: str) -> None:
    """Create a pod of one core for each letter."""
    await asyncio.gather(*(cluster.create(worker(namespace, name)) for name in names))


async def count(cluster: Cluster, namespaces: Sequence[str]) -> Counter[tuple[int, str]]:
    """Return how many pods run, wait for quota, or wait for a node, by number of the namespace."""
    found: Counter[tuple[int, str]] = Counter()
    for number, namespace in enumerate(namespaces):
        for pod in await cluster.list_all("pods", namespace):
            found[number, _state(pod)] += 1
    return found


def _state(pod: Json) -> str:
    if gates_of(pod):
        return "queued"
    return "running" if pod["status"]["phase"] == "Running" else "pending"


async def eventually_counts(
    cluster: Cluster, namespaces: Sequence[str], expected: dict[tuple[int, str], int]
) -> None:
    async def is_so() -> bool:
        assert await count(cluster, namespaces) == Counter(expected)
        return True

    await eventually(is_so, "so many pods run and wait")


async def test_idle_room_is_borrowed_and_goes_first_to_whom_it_is_guaranteed(
    cluster: Cluster, control_plane: ControlPlane, nodes: Nodes, tmp_path: Path
) -> None:
    await nodes.add("node-a", {"cpu": "8"})
    async with (
        passing_namespaces(cluster, *new_names(2)) as namespaces,
        queueing(cluster, control_plane, tmp_path, replicas=2) as stowplan,
    ):
        shop, batch = namespaces
        await share(cluster, stowplan, shop, minimum=4, maximum=8)
        await share(cluster, stowplan, batch, minimum=2, maximum=6)
        # Nobody else wants the room: batch gets all that its max allows.
        await create(cluster, batch, "abcdefghij")
        await eventually_counts(cluster, namespaces, {(1, "running"): 6, (1, "queued"): 4})
        # Within min, shop waits for no quota: two run, and two wait for a node.
        await create(cluster, shop, "abcd")
        await eventually_counts(
            cluster,
            namespaces,
            {(0, "running"): 2, (0, "pending"): 2, (1, "running"): 6, (1, "queued"): 4},
        )
        # What borrowers leave goes to them, although batch would be within its max.
        running = [
            pod["metadata"]["name"]
            for pod in await cluster.list_all("pods", batch)
            if not gates_of(pod)
        ]
        for name in running[:2]:
            await cluster.delete("pods", name, batch, grace_seconds=0)
        await eventually_counts(
            cluster, namespaces, {(0, "running"): 4, (1, "running"): 4, (1, "queued"): 4}
        )
        # Beyond min shop borrows as batch does, and there is nothing left.
        await create(cluster, shop, "e")

        async def says_why() -> bool:
            pod = await cluster.get("pods", "e", shop)
            return any(
                condition["type"] == QUEUED_CONDITION
                and condition["reason"] == "WaitingForQuota"
                and f"needs cpu 1, 0 free; {batch}/team borrows cpu 2" in condition["message"]
                for condition in pod["status"].get("conditions", ())
            )

        await eventually(says_why, "the pod says what it waits for")
        # The next room goes to shop: with the pod it borrows 1, batch would borrow 2.
        await cluster.delete("pods", running[2], batch, grace_seconds=0)
        await eventually_counts(
            cluster, namespaces, {(0, "running"): 5, (1, "running"): 3, (1, "queued"): 4}
        )


async def test_room_is_shared_by_weight_beside_pods_of_no_quota(
    cluster: Cluster, control_plane: ControlPlane, nodes: Nodes, namespace: str, tmp_path: Path
) -> None:
    await nodes.add("node-b", {"cpu": "10"})
    async with (
        passing_namespaces(cluster, *new_names(2)) as namespaces,
        queueing(cluster, control_plane, tmp_path) as stowplan,
    ):
        light, heavy = namespaces
        await cluster.create(worker(namespace, "stays", "2"))
        await cluster.create(worker(namespace, "goes", "8"))
        await eventually_counts(cluster, [namespace], {(0, "running"): 2})
        await share(cluster, stowplan, light, minimum=0, maximum=10)
        await share(cluster, stowplan, heavy, minimum=0, maximum=10, weight=3)
        await create(cluster, light, "abcdefgh")
        await create(cluster, heavy, "abcdefgh")
        await eventually_counts(cluster, namespaces, {(0, "queued"): 8, (1, "queued"): 8})
        await cluster.delete("pods", "goes", namespace, grace_seconds=0)
        # 8 cores in shares of 1 to 3.
        await eventually_counts(
            cluster,
            namespaces,
            {(0, "running"): 2, (0, "queued"): 6, (1, "running"): 6, (1, "queued"): 2},
        )
