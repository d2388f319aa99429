"""How long the leader takes to say which pods that wait for quota may go, and why others wait.

Run as `python -m tests.bench.bench_quota_queue [--pods N --quotas N]`. Times are medians of the
processor time in milliseconds and depend on the machine: compare the ratios, which are to decoding
the same pods in the same run.
"""

from __future__ import annotations

import argparse
import random
import time
from collections.abc import Callable, Mapping, Sequence
from itertools import islice
from statistics import median
from typing import Final

import msgspec

from engine.model import api
from engine.model.elastic_quota import UPSTREAM_GROUP, ElasticQuota
from engine.model.hold import HOLD_FOR_QUOTA, HOLD_GATE, HOLD_REASONS_ANNOTATION
from engine.model.node import Node
from engine.model.time import SECOND, Micros, date, micros
from engine.quota.queueing import QueueRules, QuotaWait
from engine.release import HeldPod, HeldPodRegistry, QueueOrder
from tests.bench.bench_view import machine
from tests.bench.texts import NOW
from webhook.cluster.watch.event_applier import EventApplier
from webhook.controllers.release import QuotaPace, QuotaQueue, ReleasedPods
from webhook.controllers.release.conditions import IN_ORDER, QueuedConditions
from webhook.placement.held_pods import HeldPods

_ROUNDS: Final = 9
_MOST_UNBOUND: Final = 200
_NOW: Final = micros(NOW)
_LATER: Final = Micros(_NOW + 60 * SECOND)
_SHAPES: Final = ("250m", "500m", "1", "2", "3")
_GI: Final = 1 << 30
_decode: Final = msgspec.json.Decoder(api.Pod).decode


class WaitingPods:
    """A cluster in which pods wait for quota.

    Args:
        pods: how many wait.
        quotas: how many quotas they wait for.
        free: the part of the cluster that nobody uses.
        waited_seconds: for how long they have waited.
    """

    def __init__(
        self, pods: int, quotas: int, *, free: float = 0.1, waited_seconds: int = 0
    ) -> None:
        chance = random.Random(0)
        self._held, unbound = HeldPods(lambda: _NOW), ReleasedPods()
        applier = EventApplier(now=lambda: _NOW, observers=[self._held, unbound])
        self._state = applier.state
        nodes = max(1, pods // 2)
        for number in range(nodes):
            room = {"cpu": 32_000, "memory": 128 * _GI, "pods": 110}
            self._state.set_node(Node(name=f"node-{number}", labels={}, allocatable=room))
        cores = 32_000 * nodes // quotas
        for number in range(quotas):
            self._state.set_quota(_quota(f"team-{number}", cores, chance))
        self._texts = [_text(number, quotas, chance, waited_seconds) for number in range(pods)]
        for number in range(nodes):
            running = _running(number, quotas, round(32_000 * (1 - free)))
            applier.prepare_pod(msgspec.json.decode(running, type=api.Pod), running)()
        for text in self._texts:
            applier.prepare_pod(msgspec.json.decode(text, type=api.Pod), text)()
        self.queue = QuotaQueue(
            self._state, self._held, unbound.pods, QueueRules(), now=lambda: Micros(_NOW)
        )
        self._pace = QuotaPace(lambda: Micros(_NOW))

    def decode(self) -> list[api.Pod]:
        """Return the pods that wait, decoded anew."""
        return [_decode(text) for text in self._texts]

    def explained(self) -> Mapping[str, QuotaWait]:
        """Return why each pod waits, in a world whose last cycle let none go."""
        return dict(self.queue.waits)

    def cycle_with_waits(self) -> None:
        """Do all that the leader does in a cycle for pods that stay."""
        ordered = self.ordered()
        list(islice(self.queue.releasable(ordered, (), self._state.view()), _MOST_UNBOUND))
        self._pace.cycle_ended(self.queue.waits, ())
        conditions = QueuedConditions(HeldPodRegistry())
        conditions.due(ordered, _LATER, lambda held: self._pace.condition(held.key) or IN_ORDER)
        waits = self.queue.waits
        all(held.key in waits for held in self._held)

    def ordered(self) -> list[HeldPod]:
        """Return the pods in the queue order."""
        return QueueOrder().sorted(self._held, self._state.view(), pod_of=lambda held: held.pod)

    def cycle(self) -> list[HeldPod]:
        """Return the next pods that may go, as many as a scheduler gets at a time."""
        turns = self.queue.releasable(self.ordered(), (), self._state.view())
        return [turn.held for turn in islice(turns, _MOST_UNBOUND)]


def main() -> None:
    """Run the benchmark and print its figures."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--pods", type=int, default=10_000)
    parser.add_argument("--quotas", type=int, default=1_000)
    given = parser.parse_args()
    print(machine())
    pods, quotas = given.pods, given.quotas
    waiting = WaitingPods(pods, quotas)
    floor = median(times(waiting.decode))
    print(f"decoding {pods:,} pods            {floor:8.1f} ms  1.00")
    worlds = {
        "room": waiting,
        "no room": WaitingPods(pods, quotas, free=0.0),
        "no room for long": WaitingPods(pods, quotas, free=0.0, waited_seconds=600),
        "one quota": WaitingPods(pods, 1),
    }
    for name, world in worlds.items():
        world.cycle()
        figure = median(times(world.cycle))
        print(f"a cycle, {name:<22} {figure:8.1f} ms  {figure / floor:.2f}")
    for name, step in (
        ("the queue order", waiting.ordered),
        ("a cycle, no room, and who waits", worlds["no room"].cycle_with_waits),
        ("why each of them waits", worlds["no room"].explained),
    ):
        figure = median(times(step))
        print(f"{name:<31} {figure:8.1f} ms  {figure / floor:.2f}")


def times(step: Callable[[], object]) -> Sequence[float]:
    """Return the processor times of a step, in milliseconds."""
    taken = []
    for _ in range(_ROUNDS):
        began = time.process_time()
        step()
        taken.append((time.process_time() - began) * 1e3)
    return taken


def _quota(namespace: str, cores: int, chance: random.Random) -> ElasticQuota:
    """Return a quota that guarantees half of its part of the cluster, and allows twice of it."""
    return ElasticQuota(
        namespace=namespace,
        name="quota",
        group=UPSTREAM_GROUP,
        min={"cpu": cores // 2, "memory": cores // 2 * _GI // 250},
        max={"cpu": cores * 2, "memory": cores * 2 * _GI // 250},
        used={},
        weight=chance.randrange(1, 5),
    )


def _running(number: int, quotas: int, millicores: int) -> bytes:
    return _pod(f"team-{number % quotas}", f"running-{number}", f"{millicores}m", node=number)


def _text(number: int, quotas: int, chance: random.Random, waited_seconds: int) -> bytes:
    """Return a pod that waits, as a watch shows it."""
    created = Micros(_NOW - (waited_seconds + chance.randrange(60)) * SECOND)
    namespace = f"team-{min(int(chance.expovariate(4) * quotas), quotas - 1)}"
    return _pod(
        namespace,
        f"pod-{number}",
        chance.choice(_SHAPES),
        created=created,
        priority=number % 3,
    )


def _pod(
    namespace: str,
    name: str,
    cpu: str,
    *,
    node: int | None = None,
    created: Micros = _NOW,
    priority: int = 0,
) -> bytes:
    """Return a pod; one without a node waits for quota."""
    requests = {"cpu": cpu, "memory": "1Gi"}
    container = {"name": "main", "image": "main", "resources": {"requests": requests}}
    annotations = {HOLD_REASONS_ANNOTATION: HOLD_FOR_QUOTA} if node is None else {}
    spec = (
        {"schedulingGates": [{"name": HOLD_GATE}]} if node is None else {"nodeName": f"node-{node}"}
    )
    metadata = {
        "namespace": namespace,
        "name": name,
        "uid": f"uid-{namespace}-{name}",
        "creationTimestamp": f"{date(created):%Y-%m-%dT%H:%M:%SZ}",
        "resourceVersion": "1",
        "annotations": annotations,
    }
    return msgspec.json.encode(
        {
            "metadata": metadata,
            "spec": {"containers": [container], "priority": priority, **spec},
            "status": {"phase": "Pending" if node is None else "Running"},
        }
    )


if __name__ == "__main__":
    main()
