"""Where pods end up, how soon, and what that costs, on a real control plane.

Run as `python -m tests.e2e.bench_outcome`. Each arm (who places the pods) gets the same pods of
each load (how they come); `tests/e2e/outcome_workload.py` says what nodes and pods there are. The
ideal is the same engine deciding the same pods one by one on a recording, each counted before the
next; the gap is what lies between the spread of the stock scheduler and that, and how much of it an
arm closed is printed. All processes share this machine: compare arms of one run. They take turns,
in the other order for every second seed, and what is printed at the end is the median over seeds.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AsyncExitStack, contextmanager
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Final

import numpy as np
import uvloop

from tests.bench.bench_view import machine
from tests.e2e.allocations import allocated_bytes
from tests.e2e.build import executables
from tests.e2e.cluster import Json, connected, eventually
from tests.e2e.control_plane import ControlPlane, running
from tests.e2e.metrics_server import MetricsServer, metrics_server
from tests.e2e.namespaces import create_namespaces
from tests.e2e.outcome_arms import (
    ADVICE,
    ARMS,
    BINDING,
    COMPILED_STRONG,
    Arm,
    Stage,
    policy_of,
)
from tests.e2e.outcome_cluster import (
    add_nodes,
    add_owners,
    ideal,
    occupied,
    pods_of,
    record,
    report,
)
from tests.e2e.outcome_figures import IDEAL, STOCK, Figures, places_of, show, tables_of
from tests.e2e.outcome_workload import (
    WORKLOADS,
    Ask,
    Load,
    Machine,
    apps_of,
    asks_of,
    loads_of,
    machines_of,
)
from tests.e2e.part import Part
from tests.e2e.pod_stream import Course, PodStream, streaming
from tests.e2e.workloads import pod

_NAMESPACE, _BEFORE = "outcome", "outcome-before"
_LOADS: Final = {
    "burst": "as fast as forty clients can",
    "steady": "some in each second",
    "idle": "each when the one before is bound",
    "backlog": "while the scheduler hangs, whose time for a pod depends on nothing else then",
}
_CLIENTS = 40
_WARMING = 40
_BUSY = """
import os
parent = os.getppid()
while os.getppid() == parent:
    for _ in range(1_000_000): pass
"""


@dataclass(frozen=True, slots=True)
class Bench:
    """A cluster to place pods on."""

    size: argparse.Namespace
    stage: Stage
    metrics: MetricsServer
    owners: Mapping[str, Json]
    machines: Sequence[Machine]

    async def seed(self, seed: int) -> list[Figures]:
        """Return the figures of the ideal and of all arms."""
        loads = loads_of(self.size.workload, self.machines, seed)
        asks = asks_of(self.size.workload, self.size.pods, seed, self.size.pod_size)
        async with occupied(self.stage.cluster, _BEFORE, loads):
            report(self.metrics, loads)
            recording = self.stage.folder / f"recording-{seed}.json"
            await record(self.stage.cluster, recording)
            policy = policy_of(ADVICE, self.stage.folder)
            pods = pods_of(_NAMESPACE, IDEAL, asks, self.owners)
            nodes = await asyncio.to_thread(ideal, recording, policy, pods)
            round_ = Round(self, seed, loads, asks, nodes)
            figures = [round_.ideal()]
            for arm in self.size.arms if seed % 2 == 0 else self.size.arms[::-1]:
                figures += await round_.arm(arm)
        return figures


@dataclass(frozen=True, slots=True)
class Round:
    """What every arm has to do with one seed.

    Attributes:
        bench: it belongs to.
        seed: of loads and pods.
        loads: of all nodes.
        asks: the pods.
        nodes: of each pod, as the ideal has it.
    """

    bench: Bench
    seed: int
    loads: Mapping[str, Load]
    asks: Sequence[Ask]
    nodes: Sequence[str]

    def ideal(self) -> Figures:
        """Return the figures of the ideal, which are the same however pods come."""
        places = places_of(self.bench.machines, self.loads, self.asks, self.nodes)
        figures = Figures(
            nodes=len(self.loads), seed=self.seed, arm=IDEAL, load="any", places=places
        )
        show(figures)
        return figures

    async def arm(self, name: str) -> list[Figures]:
        """Return the figures of an arm for each load."""
        report(self.bench.metrics, self.loads)  # a report is good for three minutes
        async with self.bench.stage.arm(name, self.loads, _NAMESPACE) as arm:
            await self._warm_up()
            await eventually(arm.settled, "bindings are decided")
            figures = []
            for load in self.bench.size.loads:
                report(self.bench.metrics, self.loads)
                figures.append(await self._load(name, arm, load))
                show(figures[-1])
        return figures

    async def _load(self, name: str, arm: Arm, load: str) -> Figures:
        pods = pods_of(_NAMESPACE, load, self.asks, self.bench.owners)
        plane, size = self.bench.stage.control_plane, self.bench.size
        parts = {"scheduler": plane.scheduler, "API server": plane.api_server, "etcd": plane.etcd}
        parts |= {one.name: one for one in arm.processes}
        async with streaming(self.bench.stage.cluster, _NAMESPACE) as stream:
            counts, before = await arm.counts(), _cpu_seconds(parts)
            allocated = -await self._scheduler_bytes()
            await _create(stream, pods, load, plane, size.per_second)
            used = _cpu_seconds(parts)
            allocated += await self._scheduler_bytes()
            counts = {what: count - counts[what] for what, count in (await arm.counts()).items()}
        courses = list(stream.courses.values())
        bound = [one for one in courses if one.node]
        names = [one["metadata"]["name"] for one in pods]
        nodes = [stream.courses[one].node for one in names]
        p50, p99 = _percentiles(bound)
        return Figures(
            nodes=len(self.loads),
            seed=self.seed,
            arm=name,
            load=load,
            places=places_of(self.bench.machines, self.loads, self.asks, nodes),
            counts=counts,
            p50=p50,
            p99=p99,
            seconds=max((one.bound for one in bound), default=0.0) - courses[0].created,
            cpu_ms={one: (used[one] - before[one]) / len(pods) * 1_000 for one in parts},
            scheduler_kb=allocated / len(pods) / 1_000,
        )

    async def _warm_up(self) -> None:
        """Have some pods placed, which are no part of the figures."""
        pods = [
            pod(_NAMESPACE, f"warming-{number}", requests={"cpu": "10m"})
            for number in range(_WARMING)
        ]
        async with streaming(self.bench.stage.cluster, _NAMESPACE) as stream:
            await stream.burst(pods, _CLIENTS)

    async def _scheduler_bytes(self) -> float:
        plane = self.bench.stage.control_plane
        return await asyncio.to_thread(allocated_bytes, plane, plane.scheduler_url)


def main() -> None:
    """Run the benchmark and print its figures."""
    size = _parser().parse_args()
    print(machine())
    with (
        tempfile.TemporaryDirectory() as folder,
        running(executables(), Path(folder)) as control_plane,
        _busy(size.busy),
        asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner,
    ):
        figures = runner.run(_run(size, control_plane, Path(folder)))
    asked = f"{size.workload}: {size.pods} pods on {size.nodes} nodes, {size.seeds} seeds"
    asked += f", {size.pod_size} % of the usual size" if size.pod_size != 100 else ""
    print(f"\n{asked}, {size.replicas} replicas, {size.busy} busy processes\n")
    print(tables_of(figures))
    if size.json:
        size.json.write_text(json.dumps([asdict(one) for one in figures], indent=1), "utf-8")


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        description=__doc__,
        epilog=f"arms:\n{_listed(ARMS)}\n\nloads:\n{_listed(_LOADS)}\n\nEvery load waits three"
        " minutes at most for the last pod to be bound; what has no node then is `unbound`.",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    what = "nodes and pods of three sizes and fifty Deployments, or of one"
    parser.add_argument("--workload", default=WORKLOADS[0], choices=WORKLOADS, help=what)
    parser.add_argument("--nodes", type=int, default=200)
    parser.add_argument("--pods", type=int, default=400, help="of each load")
    parser.add_argument("--pod-size", type=int, default=100, help="of the usual, in percent")
    parser.add_argument("--seeds", type=int, default=3, help="how many")
    parser.add_argument("--replicas", type=int, default=1, help="of stowplan")
    parser.add_argument("--per-second", type=float, default=10, help="pods of the steady load")
    parser.add_argument("--busy", type=int, default=0, help="busy processes beside it")
    usual = [STOCK, COMPILED_STRONG, ADVICE, BINDING]
    add = partial(parser.add_argument, nargs="+", help="see below (%(default)s)")
    add("--arms", default=usual, choices=ARMS, metavar="ARM")
    add("--loads", default=["burst"], choices=_LOADS, metavar="LOAD")
    parser.add_argument("--json", type=Path, help="a file for the figures of every seed")
    return parser


def _listed(names: Mapping[str, str]) -> str:
    return "\n".join(f"  {name:14}{meaning}" for name, meaning in names.items())


async def _run(
    size: argparse.Namespace, control_plane: ControlPlane, folder: Path
) -> list[Figures]:
    started = time.monotonic()
    async with AsyncExitStack() as stack:
        cluster = await stack.enter_async_context(connected(control_plane))
        await create_namespaces(cluster, _NAMESPACE, _BEFORE)
        await eventually(
            lambda: cluster.get("serviceaccounts", "default", "default"), "pods can be created"
        )
        await asyncio.to_thread(control_plane.controllers.kill)  # nobody needs them from here on
        machines = machines_of(size.workload, size.nodes)
        await add_nodes(cluster, machines)
        print(f"{size.nodes} nodes after {time.monotonic() - started:.0f} s", flush=True)
        metrics = await stack.enter_async_context(metrics_server(cluster, control_plane.authority))
        owners = await add_owners(cluster, _NAMESPACE, apps_of(size.workload))
        stage = Stage(control_plane, cluster, folder, size.replicas)
        bench = Bench(size, stage, metrics, owners, machines)
        figures = []
        for seed in range(size.seeds):
            figures += await bench.seed(seed)
            print(f"seed {seed} after {time.monotonic() - started:.0f} s", flush=True)
        return figures


async def _create(
    stream: PodStream,
    pods: Sequence[Json],
    load: str,
    control_plane: ControlPlane,
    per_second: float,
) -> None:
    """Create pods as a load has them come, and wait until all are bound."""
    if load == "burst":
        await stream.burst(pods, _CLIENTS)
    elif load == "backlog":
        control_plane.scheduler.pause()
        await stream.create(pods, _CLIENTS)
        control_plane.scheduler.resume()
        await stream.all_bound(pods)
    elif load == "steady":
        await stream.steady(pods, per_second)
    else:
        await stream.idle(pods)


@contextmanager
def _busy(count: int) -> Iterator[None]:
    """Keep processors busy with other processes until the block is left."""
    command = [sys.executable, "-c", _BUSY]
    processes = [subprocess.Popen(command) for _ in range(count)]  # noqa: S603 (written above)
    try:
        yield
    finally:
        for process in processes:
            process.kill()
            process.wait()


def _cpu_seconds(parts: Mapping[str, Part]) -> dict[str, float]:
    return {name: part.cpu_seconds for name, part in parts.items()}


def _percentiles(courses: Sequence[Course]) -> tuple[float, float]:
    seconds = [one.seconds for one in courses]
    p50, p99 = np.percentile(seconds, [50, 99]) * 1_000 if seconds else (0, 0)
    return float(p50), float(p99)


if __name__ == "__main__":
    main()
