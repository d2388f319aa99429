"""What the policies of a team cost its own pods, and reviews of quotas of others meanwhile.

Run as `python -m tests.bench.bench_policy_cost [--nodes N]`. Four pods at a time are decided by as
many policies of one namespace as are taken, all that they may cost; beside them, in the same event
loop, pods of another namespace are admitted against their quota. Compare the ratio to the same
reviews without the pods, measured in the same run. Then: what is left of policies that ask for a
thousand rules.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import logging
import tempfile
import time
from collections.abc import AsyncIterator, Iterable
from itertools import count
from pathlib import Path
from typing import Final

import msgspec
import numpy as np

from engine.model import api
from engine.model.pod import pod_of
from engine.model.policy_resource import PolicyKind, PolicyResource
from engine.model.request import PlacementRequest
from engine.model.time import micros
from engine.pipeline import Scope
from engine.policy import MOST_COST_OF_A_NAMESPACE, PolicySet, compile_resource
from tests.bench.bench_view import machine
from tests.bench.generate import GeneratedCluster
from tests.bench.measuring import loaded
from tests.bench.texts import NOW
from tests.webhook.quota.replicas import pod_named, replicas
from webhook.admission.concurrency_limiter import ConcurrencyLimiter
from webhook.admission.review_result import Outcome
from webhook.cluster import Cluster
from webhook.placement.live_policies import LivePolicies
from webhook.placement.placer import Placer
from webhook.placement.policy_resources import MOST_PER_NAMESPACE, PolicyResources

_NOW: Final = micros(NOW)
_CLIENTS: Final = 4
_REVIEWS: Final = 300  # of quotas, one after the other
_ROUND_TRIP_SECONDS: Final = 0.002  # of a client of the API server
_HOSTILE_RULES: Final = 61
_HOSTILE_LOOKUPS: Final = 20


class Team:
    """Pods of a namespace with policies of its own, each another pod."""

    def __init__(self, nodes: int) -> None:
        state = loaded(GeneratedCluster(nodes=nodes, pods=10 * nodes).objects(), PolicySet())
        known = Cluster(state=state, now=lambda: _NOW, is_live=False)
        self._state = state
        self._placer = Placer(view=known.view, now=known.now, scope=Scope(), clock=time.monotonic)
        self._turns = ConcurrencyLimiter(128, time.monotonic)
        self._policies = PolicySet()
        self._numbers = count()
        self.seconds: list[float] = []

    async def take_up(self, written: Iterable[PolicyResource]) -> int:
        """Let policies come into force, as far as they may; return how many do."""
        resources = PolicyResources()
        for each in written:
            resources.set(each)
        live = LivePolicies((), resources=resources, track=self._state.track_sums)
        await live.take_up(resources)
        self._policies = live.current
        return len(self._policies)

    @contextlib.asynccontextmanager
    async def creating(self) -> AsyncIterator[None]:
        """Create pods all the time, some at a time."""
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(self._create()) for _ in range(_CLIENTS)]
            yield
            for task in tasks:
                task.cancel()

    async def _create(self) -> None:
        while True:
            await self._turns.run_serialized(self.decide)
            await asyncio.sleep(_ROUND_TRIP_SECONDS)

    def decide(self) -> None:
        """Decide for another pod."""
        number = next(self._numbers)
        metadata = {"name": f"pod-{number}", "namespace": "team-0", "uid": f"{number}"}
        raw = msgspec.json.encode({"metadata": metadata, "spec": {"containers": [{"name": "c"}]}})
        pod = pod_of(msgspec.json.decode(raw, type=api.Pod))
        began = time.thread_time()
        self._placer.place(PlacementRequest(pod=pod, raw=raw), self._policies)
        self.seconds.append(time.thread_time() - began)


def main() -> None:
    """Run the benchmark and print its figures."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--nodes", type=int, default=200)
    team = Team(parser.parse_args().nodes)
    print(machine())
    logging.disable()  # what is not accepted is expected
    with tempfile.TemporaryDirectory() as folder:
        asyncio.run(_run(team, Path(folder)))


async def _run(team: Team, folder: Path) -> None:
    async with replicas(folder, 1, namespaces=["other"], real_time=True, pods="1000000") as world:

        async def reviews() -> float:
            """Return the 99th percentile of a review of a quota, in milliseconds.

            They are of what the event loop does until the answer, so another load does not count.
            """
            seconds = []
            for _ in range(_REVIEWS):
                pod = pod_named(f"pod-{next(world.numbers)}", "other")
                await asyncio.sleep(_ROUND_TRIP_SECONDS)
                asked = time.thread_time()
                await asyncio.sleep(0)  # it comes while the loop may be busy
                if await world.replicas[0].answer(pod) is not Outcome.ADMITTED:
                    raise AssertionError("there is room")
                seconds.append(time.thread_time() - asked)
                world.server.create(pod)
            return float(np.percentile(seconds, 99)) * 1e3

        await reviews()
        for what, written in (
            ("no policies", []),
            ("all they may cost", _at_the_bound()),
            (f"{_HOSTILE_RULES} rules of {_HOSTILE_LOOKUPS} labels each", _hostile()),
        ):
            in_force = await team.take_up(written)
            quiet = await reviews()
            team.decide()  # what is remembered of nodes is no part of the others
            team.seconds.clear()
            async with team.creating():
                beside = await reviews()
            cpu = np.percentile(team.seconds, [50, 99]) * 1e3
            print(
                f"  {what:28} {in_force:2} in force; a decision p50 {cpu[0]:6.2f} ms,"
                f" p99 {cpu[1]:6.2f} ms of CPU; a quota review p99 {quiet:6.1f} ms quiet,"
                f" {beside:6.1f} ms beside {len(team.seconds)} decisions: {beside / quiet:5.2f} x",
                flush=True,
            )


def _at_the_bound() -> list[PolicyResource]:
    """Return as many policies as are taken, with as many look-ups as they may have together."""
    most = MOST_COST_OF_A_NAMESPACE // MOST_PER_NAMESPACE
    costs = (_cost(lookups) <= most for lookups in count(1))
    lookups = next(number for number, fits in enumerate(costs) if not fits)
    return [_policy(number, 1, lookups) for number in range(MOST_PER_NAMESPACE)]


def _cost(lookups: int) -> int:
    compiled = compile_resource(_policy(0, 1, lookups)).policy
    return MOST_COST_OF_A_NAMESPACE if compiled is None else compiled.cost


def _hostile() -> list[PolicyResource]:
    return [
        _policy(number, _HOSTILE_RULES, _HOSTILE_LOOKUPS) for number in range(MOST_PER_NAMESPACE)
    ]


def _policy(number: int, rules: int, lookups: int) -> PolicyResource:
    """Return a policy whose rules compare labels of nodes with the name of the pod."""
    scores = []
    for rule in range(rules):
        first = (number * rules + rule) * lookups
        labels = range(first, first + lookups)
        compared = " || ".join(f"node.labels[?'l{i}'].orValue('') == pod.name" for i in labels)
        scores.append({"name": f"s{rule}", "expression": f"{compared} ? 1 : 0"})
    kind = PolicyKind.NAMESPACED
    return PolicyResource(
        kind=kind, namespace="team-0", name=f"p{number}", created=number, spec={"scores": scores}
    )


if __name__ == "__main__":
    main()
