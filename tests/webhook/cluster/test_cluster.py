from __future__ import annotations

import asyncio

import pytest

from engine.model.decision import Advice
from engine.model.time import SECOND, Micros
from engine.view import ClusterState
from tests.engine.measured_cluster import NOW, node, pod
from webhook.cluster import Cluster

BURST = 200


class Burst:
    """A live cluster of one node, and a burst of pods advised to go there that never come."""

    def __init__(self) -> None:
        self.now = NOW
        self.state = ClusterState(in_flight_seconds=10)
        self.state.set_node(node("a", cpu="8"))
        self.known = Cluster(state=self.state, now=lambda: self.now, is_live=True)
        for number in range(BURST):
            self.known.assume(pod("p"), Advice(nodes=("a",), id=str(number)))

    def pass_seconds(self, seconds: int) -> None:
        self.now = Micros(self.now + seconds * SECOND)

    def assumed(self) -> int:
        return int(self.state.view().assumed.sum())


@pytest.fixture
def cluster() -> Burst:
    return Burst()


def test_nobody_who_asks_for_a_view_waits_until_a_whole_burst_is_released(cluster: Burst) -> None:
    cluster.pass_seconds(9)
    assert cluster.known.view().assumed.sum() == BURST
    cluster.pass_seconds(1)
    assert [cluster.known.view().assumed.sum() for _ in range(5)] == [136, 72, 8, 0, 0]


async def test_a_burst_is_released_also_while_nobody_asks(cluster: Burst) -> None:
    releasing = asyncio.create_task(cluster.known.release_assumed())
    await asyncio.sleep(0)
    assert cluster.assumed() == BURST
    releasing.cancel()

    cluster.pass_seconds(10)
    releasing = asyncio.create_task(cluster.known.release_assumed())
    left = []
    while cluster.assumed():
        left.append(cluster.assumed())
        await asyncio.sleep(0)
    assert left == [200, 136, 72, 8]  # others had their turn meanwhile
    releasing.cancel()
