"""Try to overrun quotas on a real API server, again and again.

Run as `python -m tests.e2e.overrun --runs 20`. In each run 100 clients create pods in a namespace
with room for 40, then in ten such namespaces, then in one with room for 300, while two of three
replicas are killed and started and the third one hears everything 5 s late. The exit status is 1 if
one pod was too many, or if in the end what is free cannot be used.
"""

from __future__ import annotations

import argparse
import asyncio
import random
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

import yaml

from tests.e2e.build import executables
from tests.e2e.cluster import connected
from tests.e2e.control_plane import ControlPlane, running
from tests.e2e.definitions import install
from tests.e2e.installed import Installed
from tests.e2e.namespaces import create_namespaces, new_names
from tests.e2e.quotas import (
    ELASTIC_QUOTAS,
    LARGE_ROOM,
    Shop,
    enforced,
    one_on_a_link,
)

_NAMESPACES = 10
_TOO_MANY = 60
_WATCH_DELAY_SECONDS = 5
_LONGEST_LIFE_SECONDS = 2.0


def main() -> None:
    """Run, print what came of each run, and exit."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=20)
    runs: int = parser.parse_args().runs
    with (
        tempfile.TemporaryDirectory() as folder,
        running(executables(), Path(folder)) as control_plane,
    ):
        sys.exit(asyncio.run(_tried(runs, control_plane, Path(folder))))


async def _tried(runs: int, control_plane: ControlPlane, folder: Path) -> bool:
    """Try some times; return whether there was ever a pod too many."""
    async with connected(control_plane) as cluster:
        await install(cluster, yaml.safe_load(ELASTIC_QUOTAS.read_text(encoding="utf-8")))
        async with (
            enforced(cluster, control_plane, folder) as stowplan,
            one_on_a_link(stowplan, control_plane, folder) as link,
        ):
            link.watch_delay_seconds = _WATCH_DELAY_SECONDS
            shops, overshoot = [], 0
            for run in range(runs):
                one = Shop(cluster, await create_namespaces(cluster, *new_names(1)))
                ten = Shop(cluster, await create_namespaces(cluster, *new_names(_NAMESPACES)))
                large = Shop(
                    cluster, await create_namespaces(cluster, *new_names(1)), room=LARGE_ROOM
                )
                shops += [one, ten, large]
                for shop in (one, ten, large):
                    await shop.limit(stowplan)
                overshoot += await _run(run, (one, ten, large), stowplan)
            print("what is free can be used:", flush=True)
            await asyncio.gather(*(shop.fills_up() for shop in shops))
            overshoot += sum([await shop.overshoot() for shop in shops])
    print(f"{runs} runs, overshoot {overshoot}")
    return overshoot > 0


async def _run(run: int, shops: Sequence[Shop], stowplan: Installed) -> int:
    """Have pods created while replicas come and go; return how many were too many."""
    killing = asyncio.create_task(_come_and_go(stowplan))
    start = time.perf_counter()
    try:
        outcomes = [await shop.burst(each=shop.room + _TOO_MANY) for shop in shops]
    finally:
        killing.cancel()
        kills = await killing
    overshoot = sum([await shop.overshoot() for shop in shops])
    told = "; ".join(
        f"{len(shop.namespaces)} namespaces: {dict(one)}"
        for shop, one in zip(shops, outcomes, strict=True)
    )
    print(
        f"  run {run + 1:2}: {told}; {kills} kills, {time.perf_counter() - start:4.1f} s,"
        f" overshoot {overshoot}",
        flush=True,
    )
    return overshoot


async def _come_and_go(stowplan: Installed) -> int:
    """Kill one of the first two replicas after the other, until cancelled; return how often."""
    kills = 0
    try:
        while True:
            for replica in stowplan.replicas[:2]:
                await asyncio.sleep(random.uniform(0, _LONGEST_LIFE_SECONDS))
                replica.kill()
                kills += 1
                await asyncio.to_thread(replica.start)
    except asyncio.CancelledError:
        for replica in stowplan.replicas[:2]:
            await asyncio.to_thread(replica.start)
        return kills


if __name__ == "__main__":
    main()
