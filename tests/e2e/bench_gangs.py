"""Gangs that want the same room while single pods storm, against an offline ideal.

Run as `python -m tests.e2e.bench_gangs [--gangs 10 --members 8 --seconds 10]`. There is room for
two gangs at a time, each of which runs for some seconds. The exit status is 1 if a gang kept room
without using it for longer than it may, or all took longer than 1.3 times the ideal.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
import tempfile
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import yaml
from rich.console import Console
from rich.table import Table

from tests.bench.bench_view import machine
from tests.e2e.build import executables
from tests.e2e.cluster import CallError, Cluster, Json, connected
from tests.e2e.control_plane import ControlPlane, running
from tests.e2e.definitions import install
from tests.e2e.gangs import POD_GROUPS, Gangs, gang_in, is_bound, nominated
from tests.e2e.installed import installed
from tests.e2e.namespaces import create_namespaces
from tests.e2e.nodes import nodes_of
from tests.e2e.workloads import pod

_NAMESPACE: Final = "gangs"
_AT_A_TIME: Final = 2
_LONGEST_RATIO: Final = 1.3
_LONGEST_PREPARED_SECONDS: Final = 12.0  # 10, and a look each half second
_LOOK_SECONDS: Final = 0.5
_STORM_SECONDS: Final = 3.0  # for which a single pod runs


@dataclass(slots=True)
class Course:
    """What was seen of the gangs.

    Attributes:
        members: of each gang.
        bound_since: when a gang was first seen bound as a whole.
        partial_since: since when a part of a gang is bound.
        prepared_since: since when members are nominated and held.
        longest_partial: seconds for which a gang was bound in part.
        longest_prepared: seconds for which members were nominated and held.
    """

    members: int
    bound_since: dict[str, float] = field(default_factory=dict)
    partial_since: dict[str, float] = field(default_factory=dict)
    prepared_since: dict[str, float] = field(default_factory=dict)
    longest_partial: float = 0.0
    longest_prepared: float = 0.0

    def see(self, gang: str, pods: list[Json], now: float) -> None:
        """Note how far a gang is."""
        bound = sum(map(is_bound, pods))
        prepared = any(nominated(each) and each["spec"].get("schedulingGates") for each in pods)
        if bound == self.members:
            self.bound_since.setdefault(gang, now)
        is_partial = 0 < bound < self.members and gang not in self.bound_since
        self.longest_partial = max(
            self.longest_partial, _since(self.partial_since, gang, now, is_so=is_partial)
        )
        self.longest_prepared = max(
            self.longest_prepared, _since(self.prepared_since, gang, now, is_so=prepared)
        )


def main() -> None:
    """Run, print what came of it, and exit."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--gangs", type=int, default=10)
    parser.add_argument("--members", type=int, default=8)
    parser.add_argument("--seconds", type=float, default=10.0, help="for which each gang runs")
    arguments = parser.parse_args()
    with (
        tempfile.TemporaryDirectory() as folder,
        running(executables(), Path(folder)) as control_plane,
    ):
        logs = Path(folder, "logs")
        logs.mkdir()
        taken, course = asyncio.run(_run(control_plane, logs, arguments))
    ideal = -(-arguments.gangs // _AT_A_TIME) * arguments.seconds
    is_good = (
        taken <= _LONGEST_RATIO * ideal and course.longest_prepared <= _LONGEST_PREPARED_SECONDS
    )
    rows = {
        "gangs that ran as a whole": str(len(course.bound_since)),
        "seconds until the last has run": f"{taken:.1f}",
        "ideal": f"{ideal:.1f}",
        "ratio": f"{taken / ideal:.2f}",
        "longest time bound in part, seconds": f"{course.longest_partial:.1f}",
        "longest time nominated and held, seconds": f"{course.longest_prepared:.1f}",
    }
    table = Table(title=f"gangs, {machine()}")
    for name, value in rows.items():
        table.add_row(name, value)
    Console().print(table)
    sys.exit(not is_good)


async def _run(
    control_plane: ControlPlane, logs: Path, arguments: argparse.Namespace
) -> tuple[float, Course]:
    course = Course(arguments.members)
    async with connected(control_plane) as cluster, nodes_of(cluster) as nodes:
        await install(cluster, yaml.safe_load(POD_GROUPS.read_text(encoding="utf-8")))
        await create_namespaces(cluster, _NAMESPACE)
        for number in range(_AT_A_TIME * arguments.members):
            await nodes.add(f"node-{number}", {"cpu": "4"})
        gangs = Gangs(cluster, _NAMESPACE)
        async with installed(
            cluster, control_plane, logs, [], replicas=1, options=[("hold", "true")]
        ):
            raging = asyncio.create_task(_storm(cluster, arguments.members))
            began = time.monotonic()
            await asyncio.gather(
                *(_gang(gangs, f"gang-{number}", course) for number in range(arguments.gangs))
            )
            left = {f"gang-{number}" for number in range(arguments.gangs)}
            while left:
                await asyncio.sleep(_LOOK_SECONDS)
                left -= await _end_those_that_ran(gangs, left, course, arguments.seconds)
            taken = time.monotonic() - began
            raging.cancel()
            await asyncio.gather(raging, return_exceptions=True)
    return taken, course


async def _gang(gangs: Gangs, name: str, course: Course) -> None:
    await gangs.define(name, course.members)
    await gangs.join(name, *(f"{name}-{number}" for number in range(course.members)))


async def _end_those_that_ran(
    gangs: Gangs, left: set[str], course: Course, seconds: float
) -> set[str]:
    """Look at all gangs; delete those that have run for their time, and return them."""
    by_gang: Mapping[str, list[Json]] = {gang: [] for gang in left}
    for each in await gangs.pods():
        if gang_in(each) in by_gang:
            by_gang[gang_in(each)].append(each)
    now, ended = time.monotonic(), set[str]()
    for gang, pods in by_gang.items():
        course.see(gang, pods, now)
        if now - course.bound_since.get(gang, now) >= seconds:
            ended.add(gang)
            names = [each["metadata"]["name"] for each in pods]
            await asyncio.gather(*(_delete(gangs.cluster, name) for name in names))
    return ended


async def _storm(cluster: Cluster, most: int) -> None:
    """Let single pods of one core come and go, so many at a time."""
    number = 0
    while True:
        names = [f"storm-{number + each}" for each in range(most)]
        number += most
        for name in names:
            await cluster.create(pod(_NAMESPACE, name, requests={"cpu": "1"}))
        await asyncio.sleep(_STORM_SECONDS)
        await asyncio.gather(*(_delete(cluster, name) for name in names))


async def _delete(cluster: Cluster, name: str) -> None:
    try:
        await cluster.delete("pods", name, _NAMESPACE, grace_seconds=0)
    except CallError as error:
        if error.status != 404:
            raise


def _since(since: dict[str, float], gang: str, now: float, *, is_so: bool) -> float:
    """Note since when something is so of a gang; return the seconds."""
    if not is_so:
        since.pop(gang, None)
        return 0.0
    return now - since.setdefault(gang, now)


if __name__ == "__main__":
    main()
