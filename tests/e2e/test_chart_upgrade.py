"""The chart and the program of before are upgraded to these, while pods wait for their quota."""

from __future__ import annotations

import asyncio
import io
import subprocess
import tarfile
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from operator import itemgetter
from pathlib import Path

import pytest

from engine.model.hold import HOLD_GATE
from tests.e2e.chart import CHART, HelmError, Release, released
from tests.e2e.chart_pods import linted, started_pod
from tests.e2e.chart_replicas import (
    becomes,
    chart_control,
    chart_replicas,
    running,
    values_beside,
)
from tests.e2e.cluster import CallError, Cluster, Json, eventually
from tests.e2e.control_plane import ControlPlane
from tests.e2e.front import fronting
from tests.e2e.nodes import Nodes, finish
from tests.e2e.quotas import GROUP, elastic_quota, quotas_known
from tests.e2e.replica import PROGRAM
from tests.e2e.serving import LOCAL
from tests.e2e.workloads import is_running, pod

BEFORE = "bdd82a2292b0383af1417f49a8d636850341884e"
"""A commit whose chart has no Deployment of the leader: each replica may lead."""

ROOT = CHART.parents[1]
CORES = 3


@pytest.fixture(scope="module")
def before(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the chart and the program of before."""
    folder = tmp_path_factory.mktemp("before")
    git = ("git", "-C", str(ROOT), "archive", BEFORE, "charts", "engine", "policies", "webhook")
    archive = subprocess.run(git, capture_output=True, check=False)  # noqa: S603 - ours
    if archive.returncode:
        pytest.skip(f"this clone has no commit {BEFORE}: git fetch --unshallow")
    with tarfile.open(fileobj=io.BytesIO(archive.stdout)) as files:
        files.extractall(folder, filter="data")
    return folder


@dataclass(slots=True)
class Turns:
    """What became of the pods of a namespace, as a watch tells.

    Attributes:
        released: pods without our gate, in the order in which they lost it or came without.
        most: the greatest number of them at a time.
    """

    released: list[str] = field(default_factory=list)
    most: int = 0
    _counted: set[str] = field(default_factory=set)

    @asynccontextmanager
    async def recorded(self, cluster: Cluster, namespace: str) -> AsyncIterator[None]:
        """Record until the block is left."""
        async with cluster.watch("pods", namespace) as events:
            recording = asyncio.create_task(self._record(events))
            try:
                yield
            finally:
                recording.cancel()

    async def _record(self, events: AsyncIterator[Json]) -> None:
        async for event in events:
            found = event["object"]
            name = found["metadata"]["name"]
            if event["type"] == "DELETED":
                self._counted.discard(name)
            elif not _is_held(found) and name not in self._counted:
                self._counted.add(name)
                self.released.append(name)
                self.most = max(self.most, len(self._counted))


def _is_held(found: Json) -> bool:
    return {"name": HOLD_GATE} in found["spec"].get("schedulingGates", ())


async def _worker(cluster: Cluster, namespace: str, name: str) -> Json:
    return await cluster.create(pod(namespace, name, requests={"cpu": "1"}))


async def _waiting(cluster: Cluster, namespace: str, name: str) -> Json | None:
    """Create a pod that waits, and return it; it is denied where nobody would release it."""
    try:
        created = await _worker(cluster, namespace, name)
    except CallError as refused:
        if "exceeded quota" not in refused.message:
            raise
        return None
    assert _is_held(created)
    return created


def _in_turn(waiting: Iterable[Json | None]) -> list[str]:
    """Return the names of pods that wait, in the order in which they are to be released."""
    found = [pod["metadata"] for pod in waiting if pod is not None]
    found.sort(key=itemgetter("creationTimestamp", "uid"))
    return [metadata["name"] for metadata in found]


async def _runs(cluster: Cluster, namespace: str, name: str) -> None:
    await eventually(partial(is_running, cluster, namespace, name), f"{name} runs")


async def _next_turn(cluster: Cluster, namespace: str, ends: str, runs: str) -> None:
    """End a pod, and wait until another one runs."""
    await cluster.delete("pods", ends, namespace, grace_seconds=0)
    await _runs(cluster, namespace, runs)


async def _upgrade(cluster: Cluster, release: Release) -> None:
    """Upgrade as the docs say, and do what the hook does."""
    with pytest.raises(HelmError, match="nodeMarks"):  # a value that there is no more
        await release.upgrade()
    upgrading = asyncio.create_task(release.upgrade("--set=nodeMarks=null"))
    hook = await started_pod(cluster, release.namespace, f"{release.name}-lint")
    code, said = await linted(cluster, hook)
    assert code == 0, said
    await finish(cluster, release.namespace, hook["metadata"]["name"])
    await upgrading


@pytest.mark.usefixtures("crds")
async def test_pods_that_wait_through_an_upgrade_are_released_in_turn_and_quota_stays_exact(
    cluster: Cluster,
    control_plane: ControlPlane,
    nodes: Nodes,
    namespace: str,
    shop: str,
    before: Path,
    tmp_path: Path,
) -> None:
    for name in ("node-a", "node-b"):
        await nodes.add(name)
    chart = before / "charts" / "stowplan"
    queueing = {"hold.enabled": True, "quota.mode": "Queue"}
    async with (
        fronting([]) as front,
        released(cluster, control_plane, namespace, chart) as of_before,
    ):
        values = values_beside(f"https://{LOCAL}:{front.port}", "node-a", **queueing)
        old_values = {**values, "nodeMarks.enabled": True}
        del old_values["control.replicas"]
        await of_before.change(**old_values)
        old = chart_replicas(
            *(of_before, control_plane, tmp_path / "old"),
            count=2,
            values=old_values,
            program=("env", f"PYTHONPATH={before}", PROGRAM),
        )
        turns = Turns()
        async with running(old), turns.recorded(cluster, shop):
            front.targets = [replica.port for replica in old]
            await becomes(cluster, shop, "node-a")
            await cluster.create(elastic_quota(shop, {"cpu": str(CORES)}))
            await quotas_known(old, 1)

            # 1. Before: some run, the others wait, and the first of these has its turn.
            names = [f"runs-{number}" for number in range(CORES)]
            for name in names:
                await _worker(cluster, shop, name)
                await _runs(cluster, shop, name)
            waiting = [
                await eventually(partial(_waiting, cluster, shop, f"waits-{number}"), "it waits")
                for number in range(6)
            ]
            names += _in_turn(waiting)
            await _next_turn(cluster, shop, names[0], names[CORES])

            # 2. Upgraded: those of before serve with the rights of the new chart, until they end.
            release = replace(of_before, chart=CHART)
            await _upgrade(cluster, release)
            waiting = [await _waiting(cluster, shop, f"waits-too-{number}") for number in range(3)]
            names += _in_turn(waiting)
            await cluster.delete("pods", names[1], shop, grace_seconds=0)
            new = chart_replicas(release, control_plane, tmp_path / "new", count=2, values=values)
            control = chart_control(release, control_plane, tmp_path / "control", values=values)
            async with running([*new, *control]):
                front.targets = [replica.port for replica in new]
                for replica in old:
                    await asyncio.to_thread(replica.stop)

                # 3. After: all have their turn.
                await _runs(cluster, shop, names[CORES + 1])
                for ends, runs in zip(names[2:], names[CORES + 2 :], strict=False):
                    await _next_turn(cluster, shop, ends, runs)

                async def is_exact() -> bool:
                    quota = await cluster.get(f"elasticquotas.{GROUP}", "team", shop)
                    assert turns.released == names
                    return bool(quota["status"]["used"]["cpu"] == str(CORES))

                await eventually(is_exact, "the quota uses what runs")
                assert turns.most == CORES
