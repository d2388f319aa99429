"""Quotas that queue for as long as wanted, judged by the oracle.

Run as `python -m tests.e2e.bench_elastic [--minutes 10 --quotas 20 --seed 1]`. Pods of all tenants
come and go at random on three replicas, of which the leader is killed each minute; a part of the
pods lasts, so that room that is lent comes back by reclaim alone. The exit status is 1 if the
oracle finds what must not be.
"""

from __future__ import annotations

import argparse
import asyncio
import pickle
import random
import sys
import tempfile
from pathlib import Path

import numpy as np
import yaml
from rich.console import Console
from rich.progress import Progress
from rich.table import Table

from tests.bench.bench_view import machine
from tests.e2e.build import executables
from tests.e2e.cluster import connected
from tests.e2e.control_plane import ControlPlane, running
from tests.e2e.definitions import install
from tests.e2e.elastic_load import ElasticLoad, remove, tenants_of
from tests.e2e.nodes import nodes_of
from tests.e2e.quota_oracle import Judgement, Patience, judge
from tests.e2e.quotas import ELASTIC_QUOTAS
from tests.e2e.test_quota_queue import queueing

_KILL_EVERY_SECONDS = 60.0
_LIFE_SECONDS = 900.0  # who borrows gives little back by itself
_QUIET_SECONDS = 15.0  # in which others borrow what quiet tenants had


def main() -> None:
    """Run, print what came of it, and exit."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--minutes", type=float, default=10)
    parser.add_argument("--quotas", type=int, default=3)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--reclaim-after", type=int, default=60, metavar="SECONDS")
    parser.add_argument("--logs", type=Path, help="a new folder for what replicas say")
    arguments = parser.parse_args()
    with (
        tempfile.TemporaryDirectory() as folder,
        running(executables(), Path(folder)) as control_plane,
    ):
        logs = arguments.logs or Path(folder, "logs")
        logs.mkdir()
        load = asyncio.run(_run(control_plane, logs, arguments))
    if arguments.logs:
        (logs / "recording.pickle").write_bytes(pickle.dumps(load.recording))
    # A Lease runs out in 15 s, its successor plans in turn, and the room is seen to be there.
    patience = Patience(idle=35.0, within_min=arguments.reclaim_after + 40.0)
    found = judge(load.recording, patience)
    _print(found, load)
    sys.exit(not found.is_clean)


async def _run(
    control_plane: ControlPlane, logs: Path, arguments: argparse.Namespace
) -> ElasticLoad:
    seconds, quotas = 60.0 * arguments.minutes, arguments.quotas
    async with connected(control_plane) as cluster, nodes_of(cluster) as nodes:
        await install(cluster, yaml.safe_load(ELASTIC_QUOTAS.read_text(encoding="utf-8")))
        for number in range(1 + quotas):
            await nodes.add(f"node-{number}")  # 4 cores: all of min fits, and two of three max
        after = arguments.reclaim_after
        async with queueing(
            *(cluster, control_plane, logs), replicas=3, reclaim_after_seconds=after
        ) as stowplan:
            bounds = [(3 + number % 3, 8 + number % 5) for number in range(quotas)]
            tenants = await tenants_of(cluster, stowplan, bounds)
            load = ElasticLoad(
                *(cluster, tenants, random.Random(arguments.seed)),
                life_seconds=_LIFE_SECONDS,
                busy_seconds=after + 30.0,
                quiet_seconds=_QUIET_SECONDS,
                sizes=["1"],  # so that each pod needs the end of one other
            )
            moments = np.arange(20.0, seconds - 25.0, _KILL_EVERY_SECONDS).tolist()
            try:
                async with load.recorded():
                    killing = asyncio.create_task(load.kill_leaders(stowplan, moments))
                    showing = asyncio.create_task(_show(load, seconds))
                    await load.come_and_go(seconds)
                    await killing
                    await load.settle()
                    showing.cancel()
                    await asyncio.gather(showing, return_exceptions=True)
            finally:
                await remove(cluster, tenants)
    return load


async def _show(load: ElasticLoad, seconds: float) -> None:
    with Progress(console=Console(stderr=True)) as progress:
        bar = progress.add_task("pods come and go", total=seconds)
        for _ in range(round(seconds)):
            await asyncio.sleep(1)
            progress.update(bar, advance=1, description=f"{len(load.recording)} events")


def _print(found: Judgement, load: ElasticLoad) -> None:
    waits = np.array(list(found.waits.values()) or [0.0])
    within_min = np.array(list(found.within_min_waits.values()) or [0.0])
    charged, room = found.charged_seconds["cpu"], found.room_seconds["cpu"]
    rows = {
        "quotas": len(load.tenants),
        "leaders killed": load.kills,
        "pods created": sum(tenant.created for tenant in load.tenants),
        "creations denied while nobody released": sum(tenant.refused for tenant in load.tenants),
        "pods that waited": len(found.waits),
        "seconds waited, p50": f"{np.percentile(waits, 50):.1f}",
        "seconds waited, p99": f"{np.percentile(waits, 99):.1f}",
        "cores charged, of those of the nodes": f"{charged / max(room, 1):.0%}",
        "overshoot of max": max(found.overshoot.values(), default=0),
        "pods that waited beside free room": len(found.idle_waits),
        "pods within min without room in time": len(found.late_within_min),
        "seconds waited within min, p99": f"{np.percentile(within_min, 99):.1f}",
        "evictions": found.evictions,
        "pods that reclaimed room": found.reclaimed,
        "evictions below min": len(found.below_min),
        "seconds in which no more could be evicted": f"{found.limited_seconds:.0f}",
        "owners evicted within their rest": len(found.hasty),
    }
    table = Table("what", "figure", title=machine())
    for name, value in rows.items():
        table.add_row(name, str(value))
    Console().print(table)
    for name, times in (("idle", found.idle_waits), ("late", found.late_within_min)):
        for uid, seconds in sorted(times.items(), key=lambda item: -item[1])[:10]:
            print(f"{name}: {uid} {seconds:.0f} s")


if __name__ == "__main__":
    main()
