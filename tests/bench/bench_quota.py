"""How many pods a second are admitted against quotas, and what a verdict takes.

Run as `python -m tests.bench.bench_quota [--namespaces N --replicas N --clients N]`. Replicas,
clients and the API server share one process here, so the ratio to bare writes matters: of one
compare-and-swap of an annotation after the other, over the same connection, in the same run.
"""

from __future__ import annotations

import argparse
import asyncio
import tempfile
import time
from pathlib import Path

import msgspec
import numpy as np

from engine.model import api
from engine.model.elastic_quota import quota_of
from tests.bench.bench_view import machine
from tests.fake_api_server import fake_api_server
from tests.webhook.quota.replicas import GROUP, create_quota, pod_named, replicas
from webhook.admission.handler import Outcome
from webhook.cluster.client.connection import connected
from webhook.quota.store import ApiStore

_PODS = 1_000  # all may be in one namespace, without any reservation being old enough to end
_WRITES = 300


def main() -> None:
    """Run the benchmark and print its figures."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--namespaces", type=int, default=20)
    parser.add_argument("--replicas", type=int, default=3)
    parser.add_argument("--clients", type=int, default=60, help="each creates one pod at a time")
    size = parser.parse_args()
    print(machine())
    with tempfile.TemporaryDirectory() as folder:
        bare = asyncio.run(_bare_writes(Path(folder)))
        print(f"  bare compare-and-swap, one at a time     {bare:8.0f} /s")
        for replicas_now, namespaces in ((1, 1), (size.replicas, 1), (1, size.namespaces)):
            asyncio.run(_admissions(Path(folder), replicas_now, namespaces, size.clients, bare))
        asyncio.run(_admissions(Path(folder), size.replicas, size.namespaces, size.clients, bare))


async def _bare_writes(folder: Path) -> float:
    """Return how many writes a second one client makes."""
    async with (
        fake_api_server() as server,
        connected(server.kubeconfig(folder), None) as connection,
    ):
        store = ApiStore(connection)
        create_quota(server, "shop", pods="1")
        (stored,) = server.objects(f"elasticquotas.{GROUP}").values()
        quota = await store.read(quota_of(msgspec.convert(stored, api.ElasticQuota)))
        start = time.perf_counter()
        for number in range(_WRITES):
            if quota is None:
                raise AssertionError("nobody deletes it")
            quota = await store.write(quota, f"{number}")
        return _WRITES / (time.perf_counter() - start)


async def _admissions(
    folder: Path, replicas_now: int, namespaces: int, clients: int, bare: float
) -> None:
    """Admit pods as fast as some clients ask, and print what that took."""
    names = [f"team-{i}" for i in range(namespaces)]
    seconds: list[float] = []
    async with replicas(
        folder, replicas_now, namespaces=names, real_time=True, pods="1000000"
    ) as world:

        async def client(mine: int) -> None:
            for number in range(mine, _PODS, clients):
                pod = pod_named(f"pod-{number}", names[number % namespaces])
                asked = time.perf_counter()
                outcome = await world.replicas[number % replicas_now].answer(pod)
                seconds.append(time.perf_counter() - asked)
                if outcome is not Outcome.ADMITTED:
                    raise AssertionError(f"there is room, but: {outcome}")
                world.server.create(pod)

        start = time.perf_counter()
        await asyncio.gather(*(client(mine) for mine in range(clients)))
        rate = _PODS / (time.perf_counter() - start)
        outcomes = [outcome for one in world.replicas for outcome in one.counted]
    p50, p99 = np.percentile(seconds, [50, 99]) * 1_000
    print(
        f"  {replicas_now} replicas, {namespaces:2} namespaces: {rate:8.0f} admitted/s,"
        f" {rate / bare:5.2f} x bare; p50 {p50:6.1f} ms, p99 {p99:6.1f} ms;"
        f" {outcomes.count('written')} writes, {outcomes.count('conflict')} conflicts"
    )


if __name__ == "__main__":
    main()
