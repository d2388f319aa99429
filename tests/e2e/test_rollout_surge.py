"""Rollouts of Deployments whose quota is full, on a real API server."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from typing import Protocol

import pytest

from engine.model.elastic_quota import SURGE_ANNOTATION
from engine.model.pod import HASH_LABEL
from tests.e2e.cluster import Cluster, Json, eventually
from tests.e2e.control_plane import ControlPlane
from tests.e2e.installed import Installed
from tests.e2e.nodes import Nodes
from tests.e2e.quotas import GROUP, enforced, limit
from tests.e2e.test_held_admission import gates_of
from tests.e2e.test_quota_queue import queueing
from tests.e2e.workloads import deployment

pytestmark = pytest.mark.usefixtures("crds")

_QUOTAS = f"elasticquotas.{GROUP}"
_SIZES = {"web": 2, "mail": 1}
_MAX = sum(_SIZES.values())


class _Install(Protocol):
    def __call__(
        self, cluster: Cluster, control_plane: ControlPlane, folder: Path, *, replicas: int
    ) -> AbstractAsyncContextManager[Installed]:
        """Install replicas with quotas in one of the modes."""


class _Rollouts:
    """Deployments that fill a quota, and what they used of it at most.

    Attributes:
        most: pods that counted at a time, while they were watched.
    """

    def __init__(self, cluster: Cluster, namespace: str) -> None:
        self._cluster = cluster
        self._namespace = namespace
        self._counting: set[str] = set()
        self.most = 0

    async def begin(self) -> None:
        for name, replicas in _SIZES.items():
            await self._cluster.create(
                deployment(self._namespace, name, replicas=replicas, requests={"cpu": "1"})
            )
        await eventually(lambda: self._is_complete({}), "the Deployments fill the quota")

    async def roll_out(self) -> dict[str, str]:
        """Change the templates; return the revisions that were there before, by Deployment."""
        old = await self.revisions()
        changed = {"spec": {"template": {"metadata": {"labels": {"round": "2"}}}}}
        for name in _SIZES:
            await self._cluster.patch("deployments.apps", name, changed, self._namespace)
        return old

    async def end(self, old: dict[str, str]) -> None:
        await eventually(lambda: self._is_complete(old), "all pods are new ones")

    async def revisions(self) -> dict[str, str]:
        pods = await self._pods()
        return {
            each["metadata"]["labels"]["app"]: each["metadata"]["labels"][HASH_LABEL]
            for each in pods
        }

    @asynccontextmanager
    async def watched(self) -> AsyncIterator[None]:
        """Count the pods with each event, however short they are there."""

        async def is_seen() -> bool:
            return {each["metadata"]["name"] for each in await self._pods()} == self._counting

        watching = asyncio.create_task(self._watch())
        try:
            await eventually(is_seen, "the watch begins with what there is")
            yield
            await eventually(is_seen, "the watch has shown all")
        finally:
            watching.cancel()
            await asyncio.gather(watching, return_exceptions=True)

    async def _watch(self) -> None:
        async with self._cluster.watch("pods", self._namespace) as events:
            async for event in events:
                name = event["object"]["metadata"]["name"]
                if event["type"] == "DELETED" or gates_of(event["object"]):
                    self._counting.discard(name)
                else:
                    self._counting.add(name)
                self.most = max(self.most, len(self._counting))

    async def _pods(self) -> list[Json]:
        """Return the pods that hold quota."""
        pods = await self._cluster.list_all("pods", self._namespace)
        return [each for each in pods if not gates_of(each)]

    async def _is_complete(self, old: dict[str, str]) -> bool:
        pods = await self._pods()
        revisions = await self.revisions()
        return (
            len(pods) == _MAX
            and all(each["status"]["phase"] == "Running" for each in pods)
            and all(revisions[name] != old.get(name) for name in _SIZES)
        )


@pytest.mark.parametrize("install", [enforced, queueing], ids=["Enforce", "Queue"])
async def test_a_full_quota_lets_one_pod_of_each_deployment_surge_where_it_says_so(
    install: _Install,
    cluster: Cluster,
    control_plane: ControlPlane,
    nodes: Nodes,
    namespace: str,
    tmp_path: Path,
) -> None:
    await nodes.add("node-a")
    async with install(cluster, control_plane, tmp_path, replicas=2) as stowplan:
        await limit(cluster, stowplan, namespace, {"cpu": str(_MAX)})
        rollouts = _Rollouts(cluster, namespace)
        await rollouts.begin()
        async with rollouts.watched():
            old = await rollouts.roll_out()

            async def is_stopped() -> bool:
                found = [await cluster.get("deployments.apps", name, namespace) for name in _SIZES]
                return all(each["status"].get("observedGeneration") == 2 for each in found)

            await eventually(is_stopped, "the Deployments have tried")
            assert await rollouts.revisions() == old

            allowed = {"metadata": {"annotations": {SURGE_ANNOTATION: "1"}}}
            await cluster.patch(_QUOTAS, "team", allowed, namespace)
            await rollouts.end(old)
        assert _MAX < rollouts.most <= _MAX + len(_SIZES)

        async def is_over() -> bool:
            quota = await cluster.get(_QUOTAS, "team", namespace)
            return '"surge"' not in str(quota["metadata"]["annotations"])

        await eventually(is_over, "no surge is listed any more")
