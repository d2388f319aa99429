"""Where pods end up, and how soon: the stock scheduler, advice, held pods, and the ideal.

Run as `python -m tests.e2e.bench_outcome [--nodes N --pods N --seeds N]`. A tenth of the nodes is
hot. Each arm gets the same pods of a ReplicaSet: in a burst, at a steady pace, some one by one, and
as a backlog, created while the scheduler hangs, so that its time for a pod depends on nothing else.
"bare" is what held pods cannot cost less than: gated pods without anything of ours, which whoever
creates them nominates to the nodes of the ideal and releases at once, by the same two writes.
The ideal is the same engine deciding the same pods one by one on a recording, each counted before
the next; the gap is what lies between the spread of the stock scheduler and that. All processes
share this machine: compare arms of one run.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import tempfile
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Final

import numpy as np
import uvloop

from engine.model.hold import HOLD_GATE
from tests.bench.bench_view import machine
from tests.e2e.allocations import allocated_bytes
from tests.e2e.build import executables
from tests.e2e.cluster import Cluster, Json, connected, eventually
from tests.e2e.control_plane import ControlPlane, running
from tests.e2e.hot_nodes import (
    POLICY,
    HotNodes,
    add_nodes,
    add_owner,
    hot_nodes,
    ideal,
    millicores_of,
    over_threshold,
    pods_of,
    record,
    spread,
)
from tests.e2e.installed import installed
from tests.e2e.metrics_server import MetricsServer, metrics_server
from tests.e2e.namespaces import create_namespaces
from tests.e2e.nodes import Nodes
from tests.e2e.nominations import GATE, Nominations
from tests.e2e.outcome_figures import IDEAL, STOCK, Figures, show, table_of
from tests.e2e.part import Part
from tests.e2e.pod_stream import Course, PodStream, streaming
from tests.e2e.workloads import pod

_NAMESPACE = "outcome"
_BARE, _ADVICE, _HELD = "bare", "advice", "held"
_ARMS = (STOCK, _BARE, _ADVICE, _HELD)
_LOADS = ("burst", "steady", "idle", "backlog")
_CLIENTS = 40
_AT: Final = {_ADVICE: "Admission", _HELD: "Release"}


@dataclass(frozen=True, slots=True)
class Bench:
    """A cluster to place pods on."""

    size: argparse.Namespace
    control_plane: ControlPlane
    cluster: Cluster
    metrics: MetricsServer
    owner: Json
    names: Sequence[str]
    folder: Path

    async def seed(self, seed: int) -> list[Figures]:
        """Return the figures of all arms."""
        loads = hot_nodes(self.names, seed)
        loads.measured(self.metrics)
        recording = self.folder / f"recording-{seed}.json"
        await record(self.cluster, recording)
        chosen = {load: self._chosen(recording, seed, load) for load in self.size.loads}
        figures = [self._ideal(loads, chosen[load], seed, load) for load in self.size.loads]
        for arm in self.size.arms:
            loads.measured(self.metrics)  # a report is good for three minutes
            async with self._arm(arm, seed) as replicas:
                for load in self.size.loads:
                    nodes = chosen[load] if arm == _BARE else ()
                    figures.append(await self._load(loads, seed, arm, load, replicas, nodes))
                    show(figures[-1])
        return figures

    def _pods(self, seed: int, load: str) -> list[dict[str, object]]:
        return pods_of(_NAMESPACE, load, self.size.pods, seed, owner=self.owner)

    def _chosen(self, recording: Path, seed: int, load: str) -> Sequence[str]:
        """Return the node of each pod of a load as the ideal has it, "" for none."""
        return ideal(recording, self._policy(_ADVICE), self._pods(seed, load))

    def _ideal(self, loads: HotNodes, chosen: Sequence[str], seed: int, load: str) -> Figures:
        pods = self._pods(seed, load)
        placed = [
            (node, millicores_of(one)) for node, one in zip(chosen, pods, strict=True) if node
        ]
        after = loads.loads(placed)
        figures = Figures(
            nodes=len(self.names),
            seed=seed,
            arm=IDEAL,
            load=load,
            spread=spread(after),
            over=over_threshold(after),
            on_hot=sum(node in loads.hot for node, _ in placed),
            unbound=len(pods) - len(placed),
        )
        show(figures)
        return figures

    async def _load(
        self,
        loads: HotNodes,
        seed: int,
        arm: str,
        load: str,
        replicas: Sequence[Part],
        nodes: Sequence[str],
    ) -> Figures:
        pods = self._pods(seed, load)
        plane = self.control_plane
        groups = ([plane.scheduler], [plane.api_server], replicas)
        by_hand = self._by_hand(pods, nodes) if nodes else None
        async with streaming(self.cluster, _NAMESPACE, and_then=by_hand) as stream:
            before = [_cpu_seconds(parts) for parts in groups]
            allocated = -await self._scheduler_bytes()
            await self._create(stream, pods, load)
            used = [_cpu_seconds(parts) - was for parts, was in zip(groups, before, strict=True)]
            allocated += await self._scheduler_bytes()
        courses = list(stream.courses.values())
        bound = [one for one in courses if one.node]
        there = loads.loads((one.node, millicores_of(one.raw)) for one in bound)
        nominated = [one for one in bound if one.nominated]
        scheduler, api_server, webhook = (seconds / len(pods) * 1_000 for seconds in used)
        p50, p99 = _percentiles(bound)
        return Figures(
            nodes=len(self.names),
            seed=seed,
            arm=arm,
            load=load,
            spread=spread(there),
            over=over_threshold(there),
            on_hot=sum(one.node in loads.hot for one in bound),
            unbound=len(courses) - len(bound),
            nominated=len(nominated),
            landed=sum(one.node == one.nominated for one in nominated),
            p50=p50,
            p99=p99,
            scheduler_ms=scheduler,
            api_server_ms=api_server,
            webhook_ms=webhook,
            scheduler_kb=allocated / len(pods) / 1_000,
        )

    async def _scheduler_bytes(self) -> float:
        plane = self.control_plane
        return await asyncio.to_thread(allocated_bytes, plane, plane.scheduler_url)

    def _by_hand(
        self, pods: Sequence[Json], nodes: Sequence[str]
    ) -> Callable[[Json], Awaitable[None]]:
        """Gate pods; return what nominates one of them, each to its node, and releases it."""
        by_hand = Nominations(self.cluster, Nodes(self.cluster), _NAMESPACE)
        for made in pods:
            made["spec"]["schedulingGates"] = [{"name": GATE}]
        names = [made["metadata"]["name"] for made in pods]
        node_of = dict(zip(names, nodes, strict=True))

        async def release(made: Json) -> None:
            name = made["metadata"]["name"]
            if node_of[name]:
                await by_hand.nominate(name, node_of[name])
            await by_hand.release(name)

        return release

    async def _create(
        self, stream: PodStream, pods: Sequence[dict[str, object]], load: str
    ) -> None:
        if load == "burst":
            await stream.burst(pods, _CLIENTS)
        elif load == "backlog":
            self.control_plane.scheduler.pause()
            await stream.create(pods, _CLIENTS)
            self.control_plane.scheduler.resume()
            await stream.all_bound(pods)
        elif load == "steady":
            await stream.steady(pods, self.size.per_second)
        else:
            await stream.idle(pods)

    @asynccontextmanager
    async def _arm(self, arm: str, seed: int) -> AsyncIterator[Sequence[Part]]:
        """Have pods placed as an arm does until the block is left; yield the replicas."""
        if arm in {STOCK, _BARE}:
            yield []
            return
        folder = self.folder / f"{arm}-{seed}"
        await asyncio.to_thread(folder.mkdir)
        options = [("hold", "true")] if arm == _HELD else []
        async with installed(
            self.cluster,
            self.control_plane,
            folder,
            [self._policy(arm)],
            options=options,
            admission_policies=True,
        ) as stowplan:
            await stowplan.knows_usage(len(self.names))
            if arm == _HELD:
                await eventually(self._is_held, "pods are held")
            yield stowplan.replicas

    async def _is_held(self) -> bool:
        tried = await self.cluster.create(pod(_NAMESPACE, "tried"), dry_run=True)
        return {"name": HOLD_GATE} in tried["spec"].get("schedulingGates", ())

    def _policy(self, arm: str) -> Path:
        path = self.folder / f"{arm}.yaml"
        path.write_text(POLICY.format(at=_AT[arm]), encoding="utf-8")
        return path


def main() -> None:
    """Run the benchmark and print its figures."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else "")
    parser.add_argument("--nodes", type=int, default=200)
    parser.add_argument("--pods", type=int, default=400, help="of each load")
    parser.add_argument("--seeds", type=int, default=3, help="how many")
    parser.add_argument("--per-second", type=float, default=50, help="of the steady load")
    parser.add_argument("--arms", nargs="+", default=_ARMS, choices=_ARMS)
    parser.add_argument("--loads", nargs="+", default=_LOADS, choices=_LOADS)
    parser.add_argument("--json", type=Path, help="a file for all figures")
    size = parser.parse_args()
    print(machine())
    with (
        tempfile.TemporaryDirectory() as folder,
        running(executables(), Path(folder)) as control_plane,
        asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner,
    ):
        figures = runner.run(_run(size, control_plane, Path(folder)))
    print(table_of(figures))
    if size.json:
        size.json.write_text(json.dumps([asdict(one) for one in figures], indent=1), "utf-8")


async def _run(
    size: argparse.Namespace, control_plane: ControlPlane, folder: Path
) -> list[Figures]:
    started = time.monotonic()
    async with AsyncExitStack() as stack:
        cluster = await stack.enter_async_context(connected(control_plane))
        await create_namespaces(cluster, _NAMESPACE)
        await eventually(
            lambda: cluster.get("serviceaccounts", "default", "default"), "pods can be created"
        )
        await asyncio.to_thread(control_plane.controllers.kill)  # nobody needs them from here on
        names = await add_nodes(cluster, size.nodes)
        print(f"{size.nodes} nodes after {time.monotonic() - started:.0f} s", flush=True)
        metrics = await stack.enter_async_context(metrics_server(cluster, control_plane.authority))
        owner = await add_owner(cluster, _NAMESPACE)
        bench = Bench(size, control_plane, cluster, metrics, owner, names, folder)
        return [one for seed in range(size.seeds) for one in await bench.seed(seed)]


def _cpu_seconds(parts: Sequence[Part]) -> float:
    return sum(part.cpu_seconds for part in parts)


def _percentiles(courses: Sequence[Course]) -> tuple[float, float]:
    seconds = [one.seconds for one in courses]
    p50, p99 = np.percentile(seconds, [50, 99]) * 1_000 if seconds else (0, 0)
    return float(p50), float(p99)


if __name__ == "__main__":
    main()
