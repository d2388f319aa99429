"""How long a cycle of the release controller takes beyond its decisions.

Run as `python -m tests.bench.bench_release [--held N]`. Times are medians of the processor time in
milliseconds and depend on the machine: compare the ratios, which are to decoding the same pods in
the same run.
"""

from __future__ import annotations

import argparse
import asyncio
import time
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory

import msgspec

from engine.model import api
from engine.model.hold import HOLD_GATE
from engine.model.node import Node
from engine.model.time import Micros, micros
from engine.pipeline import Scope
from engine.policy import PolicySet
from engine.queue import QueueOrder
from engine.quota.queueing import QueueRules
from tests.bench.bench_view import machine
from tests.bench.texts import NOW
from tests.fake_api_server import fake_api_server
from tests.webhook.controllers.release.gangs import gangs_beside
from webhook.cluster.client.connection import Connection, connected
from webhook.cluster.watch.event_applier import EventApplier
from webhook.controllers.release import (
    DecidedPods,
    HeldPodDecider,
    Outcomes,
    PodWriter,
    QueuedConditions,
    QuotaPace,
    QuotaQueue,
    Reclaims,
    Refusals,
    ReleaseController,
    ReleaseParts,
    ReleasingStatus,
    SchedulerLease,
    UnboundReleases,
    WriteParts,
)
from webhook.controllers.release.states import ReleaseDecision
from webhook.placement.gang_members import GangMembers
from webhook.placement.held_pods import HeldPod, HeldPods
from webhook.placement.placer import Placer
from webhook.placement.policy_counts import PolicyCounts

_ROUNDS = 9
_NODES = 1_000
_NOW = micros(NOW)


class _Decided(HeldPodDecider):
    """Decides without a decision: one node after the other."""

    def decide(self, pods: Sequence[HeldPod]) -> list[ReleaseDecision]:
        """Return a node for each pod."""
        decisions = [ReleaseDecision(node_name=f"node-{hash(held.key) % _NODES}") for held in pods]
        for held, decision in zip(pods, decisions, strict=True):
            self._state.nominate(held.key, decision.node_name)
        return decisions


def main() -> None:
    """Run the benchmark and print its figures."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--held", type=int, default=10_000)
    held = parser.parse_args().held
    print(machine())
    texts = [_text(number) for number in range(held)]
    decode = msgspec.json.Decoder(api.Pod).decode
    floor = median(_times(lambda: [decode(text) for text in texts]))
    print(f"decoding {held:,} pods                  {floor:8.1f} ms  1.00")
    with TemporaryDirectory() as folder:
        asyncio.run(_cycles(texts, floor, Path(folder)))


async def _cycles(texts: Sequence[bytes], floor: float, folder: Path) -> None:
    async with (
        fake_api_server() as server,
        connected(server.kubeconfig(folder), None) as connection,
    ):
        server.pause()  # writes are under way, and not answered
        for name, most in (("200 of them released", 200), ("none released, 200 unbound", 0)):
            taken = []
            for _ in range(_ROUNDS):
                controller = _controller(texts, connection, most)
                taken.append(await _time(controller.cycle))
                await controller.end()
            figure = median(taken)
            print(f"a cycle, {name:<26} {figure:8.1f} ms  {figure / floor:.2f}")


def _controller(texts: Sequence[bytes], connection: Connection, most: int) -> ReleaseController:
    """Return a controller that has seen the pods."""
    held, unbound, members = HeldPods(lambda: _NOW), UnboundReleases(most=most), GangMembers()
    applier = EventApplier(now=lambda: _NOW, observers=[held, unbound, members])
    for number in range(_NODES):
        name, room = f"node-{number}", {"cpu": 64_000, "memory": 1 << 38, "pods": 250}
        applier.state.set_node(Node(name=name, labels={}, allocatable=room))
    for text in texts:
        applier.prepare_pod(msgspec.json.decode(text, type=api.Pod), text)()
    outcomes = Outcomes()
    placer = Placer(view=applier.state.view, now=lambda: _NOW, scope=Scope())
    writes = WriteParts(
        state=applier.state,
        held=held,
        unbound=unbound,
        writer=PodWriter(connection, may_write=lambda: True),
        refusals=Refusals(connection, identity="bench"),
        releasing=ReleasingStatus(lambda _key, _value: None),
        conditions=QueuedConditions(),
        quota_queue=QuotaQueue(applier.state, held, unbound, QueueRules(), now=lambda: _NOW),
    )
    decided = DecidedPods(writes, now=lambda: _NOW)
    decider = _Decided(placer, PolicySet, applier.state, outcomes.nominates, PolicyCounts())
    return ReleaseController(
        ReleaseParts(
            writes=writes,
            decided=decided,
            gangs=gangs_beside(
                writes=writes,
                decided=decided,
                decider=decider,
                members=members,
                reclaims=Reclaims(),
                connection=connection,
                may_write=lambda: True,
                now=lambda: _NOW,
                clock=time.monotonic,
            ),
            decider=decider,
            order=QueueOrder(),
            outcomes=outcomes,
            pace=QuotaPace(lambda: _NOW),
            scheduler_lease=SchedulerLease(connection),
        ),
        is_ready=lambda: True,
        now=lambda: Micros(_NOW),
    )


def _text(number: int) -> bytes:
    """Return a held pod as a watch shows it."""
    container = {"name": "main", "image": "main", "resources": {"requests": {"cpu": "100m"}}}
    metadata = {
        "namespace": f"team-{number % 50}",
        "name": f"pod-{number}",
        "uid": f"{number:032x}",
        "creationTimestamp": f"{NOW:%Y-%m-%dT%H:%M:%SZ}",
        "resourceVersion": str(number),
    }
    spec = {"containers": [container], "schedulingGates": [{"name": HOLD_GATE}]}
    return msgspec.json.encode({"metadata": metadata, "spec": {**spec, "priority": number % 7}})


def _times(step: Callable[[], object]) -> list[float]:
    """Return the processor times of a step, in milliseconds."""
    taken = []
    for _ in range(_ROUNDS):
        began = time.process_time()
        step()
        taken.append((time.process_time() - began) * 1e3)
    return taken


async def _time(step: Callable[[], Awaitable[None]]) -> float:
    began = time.process_time()
    await step()
    return (time.process_time() - began) * 1e3


if __name__ == "__main__":
    main()
