"""How many pods a second a real API server creates under quotas, and what a verdict adds.

Run as `python -m tests.e2e.bench_quota [--pods N --clients N --per-second N --cases 3x20 ...]`, a
case being so many replicas x so many namespaces. All share this machine, so compare with the floor:
the same creations past a webhook that allows everything, in the same run. Two loads each: as fast
as the clients can, for the rate; and a steady one far below it, for the latency.
"""

from __future__ import annotations

import argparse
import asyncio
import base64
import os
import socket
import sys
import tempfile
import time
from collections import Counter
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from functools import partial
from http import HTTPStatus
from itertools import count
from pathlib import Path

import numpy as np
import uvloop
import yaml

from tests.bench.bench_view import machine
from tests.e2e.build import executables
from tests.e2e.cluster import CallError, Cluster, Json, connected, eventually
from tests.e2e.control_plane import ControlPlane, running
from tests.e2e.definitions import install
from tests.e2e.front import fronting
from tests.e2e.installed import NAME
from tests.e2e.namespaces import create_namespaces, new_names
from tests.e2e.part import Part
from tests.e2e.ports import free_ports
from tests.e2e.quotas import (
    ELASTIC_QUOTAS,
    GROUP,
    enforced,
    nobodys_pod,
    quotas_known,
)
from tests.e2e.replica import Replica
from tests.e2e.reviewer import rule
from tests.e2e.serving import LOCAL

_WARM_UP_PODS = 200
_NAMESPACES = 20
_CASES = ("1x1", "1x20", "3x1", "3x20")
_CONFIGURATIONS = ("mutatingwebhookconfigurations", "validatingwebhookconfigurations")

_serial = count()


@dataclass(frozen=True, slots=True, kw_only=True)
class Figures:
    """What a case measured; latencies of the steady load, ms, p50 and p99."""

    per_second: float
    hasty: tuple[float, float]
    steady: tuple[float, float]
    costs: str


@dataclass(frozen=True, slots=True)
class Bench:
    """A control plane and clients."""

    size: argparse.Namespace
    control_plane: ControlPlane
    cluster: Cluster
    namespaces: Sequence[str]
    folder: Path

    async def measure(self, parts: Sequence[Part], namespaces: int) -> Figures:
        """Create pods in some namespaces with both loads."""
        names = self.namespaces[:namespaces]
        size = self.size
        await self._hasty(names, _WARM_UP_PODS)
        plane = self.control_plane
        groups: dict[str, Sequence[Part]] = {
            "API server": [plane.api_server],
            "etcd": [plane.etcd],
            "webhook": parts,
        }
        before = _cpu_seconds(groups)
        start = time.perf_counter()
        hasty = await self._hasty(names, size.pods)
        took = time.perf_counter() - start
        after = _cpu_seconds(groups)
        used = {one: after[one] - before[one] for one in after}
        costs = [f"{one} {seconds / size.pods * 1_000:.1f}" for one, seconds in used.items()]
        share = sum(used.values()) / took / (os.cpu_count() or 1)
        return Figures(
            per_second=size.pods / took,
            hasty=_percentiles(hasty),
            steady=_percentiles(await self._steady(names)),
            costs=f"CPU ms a pod: {', '.join(costs)}; {share:.0%} of the machine",
        )

    async def _hasty(self, names: Sequence[str], pods: int) -> list[float]:
        """Create pods as fast as some clients can; return what each took, seconds."""
        left = iter(range(pods))

        async def client() -> list[float]:
            return [await self._create(names[number % len(names)]) for number in left]

        took = await asyncio.gather(*(client() for _ in range(self.size.clients)))
        return [seconds for one in took for seconds in one]

    async def _steady(self, names: Sequence[str]) -> list[float]:
        """Create pods one after the other whether or not earlier ones are done."""
        loop = asyncio.get_running_loop()
        begin, creations = loop.time(), []
        for number in range(self.size.pods // 2):
            await asyncio.sleep(begin + number / self.size.per_second - loop.time())
            creations.append(asyncio.create_task(self._create(names[number % len(names)])))
        return await asyncio.gather(*creations)

    async def _create(self, namespace: str) -> float:
        """Create a pod, trying again like anybody; return what that took, seconds."""
        asked = time.perf_counter()
        while True:
            try:
                await self.cluster.create(nobodys_pod(namespace, f"pod-{next(_serial)}"))
            except CallError as error:
                if error.status != HTTPStatus.INTERNAL_SERVER_ERROR:
                    raise
            else:
                return time.perf_counter() - asked


def main() -> None:
    """Run the benchmark and print its figures."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--pods", type=int, default=1_200, help="per case")
    parser.add_argument("--clients", type=int, default=40, help="each creates one pod at a time")
    parser.add_argument("--per-second", type=float, default=40, help="of the steady load")
    parser.add_argument("--cases", nargs="+", default=_CASES, help="replicas x namespaces")
    size = parser.parse_args()
    print(machine())
    with (
        tempfile.TemporaryDirectory() as folder,
        running(executables(), Path(folder)) as control_plane,
        asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner,
    ):
        runner.run(_run(size, control_plane, Path(folder)))


async def _run(size: argparse.Namespace, control_plane: ControlPlane, folder: Path) -> None:
    async with connected(control_plane) as cluster:
        await install(cluster, yaml.safe_load(ELASTIC_QUOTAS.read_text(encoding="utf-8")))
        namespaces = await create_namespaces(cluster, *new_names(_NAMESPACES))
        for namespace in namespaces:
            await cluster.create(_limit(namespace))
        for part in (control_plane.scheduler, control_plane.controllers):
            part.kill()  # nobody needs them from here on
        bench = Bench(size, control_plane, cluster, namespaces, folder)
        for replicas, namespaces_now in (map(int, case.split("x")) for case in size.cases):
            async with _passing(bench, replicas) as parts:
                floor = await bench.measure(parts, namespaces_now)
            _show(f"floor, {replicas} x {namespaces_now}", floor, floor)
            name = f"case-{replicas}-{namespaces_now}"
            await asyncio.to_thread((folder / name).mkdir)
            async with enforced(
                cluster, control_plane, folder / name, replicas=replicas
            ) as stowplan:
                await quotas_known(stowplan.replicas, _NAMESPACES)
                await cluster.delete(_CONFIGURATIONS[0], NAME)  # the floor has none
                figures = await bench.measure(stowplan.replicas, namespaces_now)
                more = await _outcomes(stowplan.replicas)
            _show(f"quota, {replicas} x {namespaces_now}", figures, floor, f"; {more}")


@asynccontextmanager
async def _passing(bench: Bench, replicas: int) -> AsyncIterator[Sequence[Part]]:
    """Have pods reviewed by webhooks that allow everything."""
    authority = bench.control_plane.authority
    pair = authority.issue("pass-through", hosts=[LOCAL])
    async with AsyncExitStack() as stack:
        parts, ports = [], free_ports(replicas)
        for port in ports:
            command = [sys.executable, "-m", "tests.e2e.pass_through"]
            command += [str(port), str(pair.certificate), str(pair.key)]
            log = bench.folder / f"pass-through-{port}.log"
            parts.append(Part(f"pass-through-{port}", command, log, partial(_listens, port)))
            await asyncio.to_thread(parts[-1].start)
            stack.push_async_callback(asyncio.to_thread, parts[-1].kill)
        front = await stack.enter_async_context(fronting([]))
        await bench.cluster.create(_configuration(front.port, authority.pem))
        stack.push_async_callback(bench.cluster.delete, _CONFIGURATIONS[1], NAME)

        async def is_asked() -> bool:
            obj = nobodys_pod(bench.namespaces[0], "tried")
            try:
                await bench.cluster.create(obj, dry_run=True)
            except CallError as error:
                return error.status == HTTPStatus.INTERNAL_SERVER_ERROR
            return False

        await eventually(is_asked, "the API server asks somebody who is not there")
        front.targets = ports
        yield parts


def _listens(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex((LOCAL, port)) == 0


def _configuration(port: int, ca: bytes) -> Json:
    webhook = {
        "name": "validate.stowplan.dev",
        "clientConfig": {
            "url": f"https://{LOCAL}:{port}/validate",
            "caBundle": base64.b64encode(ca).decode(),
        },
        "rules": [rule("", ["pods"], "CREATE")],
        "sideEffects": "None",
        "admissionReviewVersions": ["v1"],
        "failurePolicy": "Fail",
        "timeoutSeconds": 5,
    }
    return {
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": "ValidatingWebhookConfiguration",
        "metadata": {"name": NAME},
        "webhooks": [webhook],
    }


def _limit(namespace: str) -> Json:
    return {
        "apiVersion": f"{GROUP}/v1alpha1",
        "kind": "ElasticQuota",
        "metadata": {"name": "team", "namespace": namespace},
        "spec": {"max": {"cpu": "1000000"}},
    }


async def _outcomes(replicas: Sequence[Replica]) -> str:
    """Return what came of all reviews, and of all writes of reservations."""
    reviews, writes = Counter[str](), Counter[str]()
    for replica in replicas:
        reviews.update(await replica.reviews("validate"))
        writes.update(await replica.quota_writes())
    counts = [*reviews.items(), *writes.items()]
    return ", ".join(f"{number} {outcome}" for outcome, number in counts if number)


def _show(label: str, figures: Figures, floor: Figures, more: str = "") -> None:
    (p50, p99), (floor50, floor99) = figures.steady, floor.steady
    ratio = figures.per_second / floor.per_second
    print(
        f"  {label:13}: {figures.per_second:5.0f} pods/s, {ratio:5.0%} of the floor,"
        f" p50 {figures.hasty[0]:4.0f} p99 {figures.hasty[1]:4.0f} ms;"
        f" steady p50 {p50:5.1f} p99 {p99:5.1f} ms,"
        f" added {p50 - floor50:+5.1f} {p99 - floor99:+5.1f}; {figures.costs}{more}",
        flush=True,
    )


def _percentiles(seconds: Sequence[float]) -> tuple[float, float]:
    p50, p99 = np.percentile(seconds, [50, 99]) * 1_000
    return float(p50), float(p99)


def _cpu_seconds(groups: dict[str, Sequence[Part]]) -> dict[str, float]:
    """Return what each group of processes has used so far, and the clients as well."""
    used = {name: sum(part.cpu_seconds for part in parts) for name, parts in groups.items()}
    return {**used, "clients and front": time.process_time()}


if __name__ == "__main__":
    main()
