"""What a created pod costs the API server, with and without us, where there is no quota.

Run as `python -m tests.e2e.bench_rollout [--pods N --rounds N --nodes N]`. The arms take turns, so
that all see the same machine; figures are the CPU time of the API server and the bytes that it
allocates, divided by the pods. What else the machine does changes the first by half, the second
hardly. The scheduler is away: what is counted is the creation alone, with everybody who watches.
"""

from __future__ import annotations

import argparse
import asyncio
import statistics
import tempfile
from collections.abc import Mapping, Sequence
from contextlib import AsyncExitStack
from itertools import count
from pathlib import Path
from typing import NamedTuple

import uvloop
import yaml

from engine.placement.patch import REASON_ANNOTATION
from tests.bench.bench_view import machine
from tests.e2e.allocations import allocated_bytes
from tests.e2e.build import executables
from tests.e2e.chart import CONFIGURATIONS, Release, released
from tests.e2e.chart_replicas import chart_control, chart_replicas, running, values_beside
from tests.e2e.cluster import Cluster, connected, eventually
from tests.e2e.control_plane import ControlPlane
from tests.e2e.control_plane import running as control_plane_running
from tests.e2e.definitions import install
from tests.e2e.front import fronting
from tests.e2e.namespaces import create_namespaces
from tests.e2e.nodes import nodes_of
from tests.e2e.quotas import ELASTIC_QUOTAS
from tests.e2e.serving import LOCAL
from tests.e2e.workloads import pod

_SHOP, _NAMESPACE = "shop", "stowplan-system"
_NOBODY = "stowplan.dev"  # no namespace has this name
_WARM_UP_PODS = 50
_ADVISED = {REASON_ANNOTATION: "by hand"}  # a pod with an annotation of ours gets no patch

_serial = count()


def main() -> None:
    """Run the benchmark and print its figures."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--pods", type=int, default=400, help="of each arm in each round")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--nodes", type=int, default=200)
    parser.add_argument("--clients", type=int, default=8, help="each creates one pod at a time")
    size = parser.parse_args()
    print(machine())
    with (
        tempfile.TemporaryDirectory() as folder,
        control_plane_running(executables(), Path(folder)) as control_plane,
        asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner,
    ):
        runner.run(_run(size, control_plane, Path(folder)))


async def _run(size: argparse.Namespace, control_plane: ControlPlane, folder: Path) -> None:
    async with AsyncExitStack() as stack:
        cluster = await stack.enter_async_context(connected(control_plane))
        await install(cluster, yaml.safe_load(ELASTIC_QUOTAS.read_text(encoding="utf-8")))
        nodes = await stack.enter_async_context(nodes_of(cluster))
        for number in range(size.nodes):
            await nodes.add(f"node-{number}", {"cpu": "64", "memory": "256Gi", "pods": "1000"})
        await create_namespaces(cluster, _SHOP, _NAMESPACE)
        release = await stack.enter_async_context(released(cluster, control_plane, _NAMESPACE))
        front = await stack.enter_async_context(fronting([]))
        more = {"policies.inline": {}, "policies.shipped": ["balanced"]}
        values = values_beside(f"https://{LOCAL}:{front.port}", "nobody", **more)
        await release.change(**values)
        replicas = chart_replicas(release, control_plane, folder / "run", count=3, values=values)
        control = chart_control(release, control_plane, folder / "control", values=values, count=2)
        front.targets = [replica.port for replica in replicas]
        for part in (control_plane.scheduler, control_plane.controllers):
            part.kill()  # nobody needs them from here on
        stage = Stage(size, control_plane, cluster, release)
        for _ in range(size.rounds):
            await stage.select(*[_NOBODY] * 2)
            await stage.measure("without us")
            async with running([*replicas, *control]):
                await eventually(stage.is_trusted, "the API server trusts us")
                await stage.measure("replicas that watch")
                await stage.select(None, _NOBODY)
                await stage.measure("placement, no patch", _ADVISED)
                await stage.measure("placement; quota: Automatic")
                await stage.select(_NOBODY, None)
                await stage.measure("quota: All")
                await stage.select(None, None)
                await stage.measure("placement and quota: All")
        stage.show()


class _Cost(NamedTuple):
    """What a created pod costs the API server."""

    cpu_ms: float
    kilobytes: float


class Stage:
    """Creates pods, and adds up what that costs.

    Args:
        size: of the benchmark.
        control_plane: whose API server is measured.
        cluster: as its admin.
        release: whose configurations are changed.
    """

    def __init__(
        self,
        size: argparse.Namespace,
        control_plane: ControlPlane,
        cluster: Cluster,
        release: Release,
    ) -> None:
        self._size = size
        self._control_plane = control_plane
        self._cluster = cluster
        self._release = release
        self._costs: dict[str, list[_Cost]] = {}

    async def is_trusted(self) -> bool:
        """Return whether each webhook has a caBundle."""
        found = [await self._cluster.get(kind, self._release.name) for kind in CONFIGURATIONS]
        return all(
            "caBundle" in webhook["clientConfig"] for each in found for webhook in each["webhooks"]
        )

    async def select(self, *namespaces: str | None) -> None:
        """Have placement and quota asked about in one namespace, or in all but the excluded."""
        names = ("placement.stowplan.dev", "quota.stowplan.dev")
        for kind, name, namespace in zip(CONFIGURATIONS, names, namespaces, strict=True):
            configuration = await self._cluster.get(kind, self._release.name)
            index = [one["name"] for one in configuration["webhooks"]].index(name)
            selector = configuration["webhooks"][index]["namespaceSelector"]
            found = [one for one in selector["matchExpressions"] if one["operator"] != "In"]
            if namespace is not None:
                label = "kubernetes.io/metadata.name"
                found.append({"key": label, "operator": "In", "values": [namespace]})
            path = f"/webhooks/{index}/namespaceSelector/matchExpressions"
            patch = [{"op": "replace", "path": path, "value": found}]
            await self._cluster.patch(kind, self._release.name, patch, how="json")

    async def measure(self, arm: str, annotations: Mapping[str, str] | None = None) -> None:
        """Create pods, after some that do not count, and delete them.

        Args:
            arm: that is measured.
            annotations: of the pods.
        """
        await self._create(_WARM_UP_PODS, annotations)
        before = await self._cost()
        await self._create(self._size.pods, annotations)
        after = await self._cost()
        cost = _Cost(
            *((new - old) / self._size.pods for new, old in zip(after, before, strict=True))
        )
        self._costs.setdefault(arm, []).append(cost)
        await self._cluster.delete_all("pods", _SHOP, grace_seconds=0)

    async def _cost(self) -> _Cost:
        """Return what the API server has used so far."""
        plane = self._control_plane
        allocated = await asyncio.to_thread(allocated_bytes, plane, plane.url)
        return _Cost(plane.api_server.cpu_seconds * 1_000, allocated / 1_000)

    async def _create(self, pods: int, annotations: Mapping[str, str] | None) -> None:
        left = iter(range(pods))

        async def client() -> None:
            for _ in left:
                made = pod(_SHOP, f"pod-{next(_serial)}", requests={"cpu": "100m"})
                made["metadata"]["annotations"] = dict(annotations or {})
                await self._cluster.create(made)

        await asyncio.gather(*(client() for _ in range(self._size.clients)))

    def show(self) -> None:
        """Print the figures."""
        floor = _median(self._costs["without us"])
        for arm, costs in self._costs.items():
            cost, each = _median(costs), [one.cpu_ms for one in costs]
            print(
                f"  {arm:28}: {cost.cpu_ms:5.2f} ms a pod, {cost.cpu_ms / floor.cpu_ms:4.2f};"
                f" spread {max(each) - min(each):.2f}; {cost.kilobytes:4.0f} kB allocated,"
                f" {cost.kilobytes / floor.kilobytes:4.2f}"
            )


def _median(costs: Sequence[_Cost]) -> _Cost:
    return _Cost(*(statistics.median(values) for values in zip(*costs, strict=True)))


if __name__ == "__main__":
    main()
