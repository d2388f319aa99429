"""Marks follow the policies in force, on the nodes of an API server."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
from aiolimiter import AsyncLimiter

from engine.model import api
from engine.model.domain import Domain
from engine.model.node import Node, node_of
from engine.model.node_marks import AVOID_TAINT, mark_label
from engine.model.time import SECOND, Micros
from engine.model.usage import NodeUsage
from engine.policy import PolicySet
from engine.view import FRESH, ClusterState, ClusterView, Freshness
from tests.engine.policy.worlds import policies
from tests.fake_api_server import FakeApiServer, fake_api_server
from webhook.cluster.client.connection import Connection, connected
from webhook.controllers.node_marks.controller import MarkedCluster, NodeMarkController
from webhook.controllers.node_marks.removal import remove_marks
from webhook.controllers.node_marks.writer import NodeWriter
from webhook.quota import MonotonicClock

FILTERS = "filters: [{name: hot, expression: '!has(node.usage) || node.usage.cpu < 3.0'}]"
TAINTS = policies(p=FILTERS)
LABELS = policies(p=f"{FILTERS}\nplacement: {{dynamicFilters: Marked}}")
BUSY = 3900
LABEL = mark_label("p")


class World:
    """Nodes of an API server, as a replica observes them, and time."""

    def __init__(self, server: FakeApiServer, connection: Connection) -> None:
        self.server = server
        self.connection = connection
        self.state = ClusterState()
        self.seconds = 0.0
        self.policies: PolicySet | None = TAINTS
        self.freshness = FRESH
        self.leads = True
        self.shown: Mapping[str, int] = {}
        self.outcomes: list[str] = []
        self._cpu: dict[str, int] = {}
        self.controller = self.new_controller()

    def new_controller(self) -> NodeMarkController:
        """Return the controller of a replica that begins to lead."""
        return NodeMarkController(
            MarkedCluster(
                view=self.state.view,
                now=self.now,
                freshness=lambda: self.freshness,
                policies=lambda: self.policies,
            ),
            NodeWriter(
                self.connection, may_write=lambda: self.leads, limiter=AsyncLimiter(1000, 1)
            ),
            show=self.show,
            count_write=self.outcomes.append,
            clock=MonotonicClock(now=lambda: self.seconds),
        )

    def now(self) -> Micros:
        return Micros(int((1_000_000 + self.seconds) * SECOND))

    def show(self, nodes_by_key: Mapping[str, int]) -> None:
        self.shown = dict(nodes_by_key)

    def add(self, name: str, *, cpu: int) -> None:
        """Create a node that uses some millicores."""
        wire: dict[str, Any] = {
            "apiVersion": "v1",
            "kind": "Node",
            "metadata": {"name": name, "labels": {"zone": "a"}},
            "spec": {"taints": [{"key": "gpu", "effect": "NoSchedule"}]},
            "status": {"allocatable": {"cpu": "4", "memory": "8Gi", "pods": "110"}},
        }
        self.server.create(wire)
        self.uses(name, cpu)

    def uses(self, name: str, cpu: int) -> None:
        self._cpu[name] = cpu

    def observe(self) -> None:
        """Bring the view up to date."""
        found = {name: node for (_, name), node in self.server.objects("nodes").items()}
        for name in {*self._cpu} - {*found}:
            self.state.delete_node(name)
        for name, wire in found.items():
            self.state.set_node(node_of(msgspec.convert(wire, api.Node)))
            usage = {"cpu": self._cpu[name], "memory": 1}
            self.state.set_usage(NodeUsage(node_name=name, update_time=self.now(), usage=usage))

    async def pass_seconds(self, seconds: int) -> None:
        for _ in range(seconds // 5):
            self.observe()
            await self.controller.round()
            self.seconds += 5

    def marks(self, name: str) -> set[str]:
        """Return our marks on a node; whatever else is on it must have stayed."""
        wire = self.server.read("nodes", "", name)
        assert wire["metadata"]["labels"]["zone"] == "a"
        assert wire["spec"]["taints"][0] == {"key": "gpu", "effect": "NoSchedule"}
        return set(node_of(msgspec.convert(wire, api.Node)).marks)


@asynccontextmanager
async def world(tmp_path: Path) -> AsyncIterator[World]:
    async with (
        fake_api_server() as server,
        connected(server.kubeconfig(tmp_path), None) as connection,
    ):
        found = World(server, connection)
        found.add("hot", cpu=BUSY)
        found.add("cool", cpu=100)
        yield found


async def test_a_hot_node_is_tainted_until_it_has_cooled_down(tmp_path: Path) -> None:
    async with world(tmp_path) as cluster:
        await cluster.pass_seconds(70)
        assert (cluster.marks("hot"), cluster.marks("cool")) == ({AVOID_TAINT}, set())
        assert cluster.shown == {AVOID_TAINT: 1}
        cluster.uses("hot", 100)
        await cluster.pass_seconds(60)
        assert cluster.marks("hot") == {AVOID_TAINT}
        await cluster.pass_seconds(15)
        assert cluster.marks("hot") == set()
        assert cluster.outcomes == ["written", "written"]
        assert cluster.shown == {}


async def test_a_policy_that_says_so_labels_nodes_too_in_the_same_write(tmp_path: Path) -> None:
    async with world(tmp_path) as cluster:
        cluster.policies = LABELS
        await cluster.pass_seconds(70)
        assert cluster.marks("hot") == {AVOID_TAINT, LABEL}
        assert cluster.outcomes == ["written"]


async def test_marks_of_policies_that_are_gone_are_taken_back_at_once(tmp_path: Path) -> None:
    async with world(tmp_path) as cluster:
        cluster.policies = LABELS
        await cluster.pass_seconds(70)
        cluster.policies = TAINTS
        await cluster.pass_seconds(5)
        assert cluster.marks("hot") == {AVOID_TAINT}
        cluster.policies = PolicySet()
        await cluster.pass_seconds(5)
        assert cluster.marks("hot") == set()


async def test_nothing_is_marked_or_unmarked_before_policies_and_cluster_are_known(
    tmp_path: Path,
) -> None:
    async with world(tmp_path) as cluster:
        await cluster.pass_seconds(70)
        cluster.policies = None
        cluster.controller = cluster.new_controller()
        await cluster.pass_seconds(300)
        assert cluster.marks("hot") == {AVOID_TAINT}


async def test_two_leaders_in_a_row_agree(tmp_path: Path) -> None:
    async with world(tmp_path) as cluster:
        await cluster.pass_seconds(70)
        cluster.controller = cluster.new_controller()
        await cluster.pass_seconds(300)
        assert cluster.outcomes == ["written"]
        cluster.uses("hot", 100)
        cluster.controller = cluster.new_controller()
        await cluster.pass_seconds(70)
        assert cluster.marks("hot") == set()


async def test_who_does_not_lead_writes_nothing(tmp_path: Path) -> None:
    async with world(tmp_path) as cluster:
        cluster.leads = False
        await cluster.pass_seconds(90)
        assert cluster.marks("hot") == set()
        assert "written" not in cluster.outcomes


async def test_old_measurements_mark_nothing_and_keep_no_mark(tmp_path: Path) -> None:
    async with world(tmp_path) as cluster:
        await cluster.pass_seconds(70)
        cluster.freshness = Freshness(stale={Domain.METRICS: "usage is 95 s old"})
        await cluster.pass_seconds(70)
        assert cluster.marks("hot") == set()


async def test_nodes_come_and_go(tmp_path: Path) -> None:
    async with world(tmp_path) as cluster:
        await cluster.pass_seconds(40)
        cluster.add("new", cpu=BUSY)
        await cluster.pass_seconds(40)
        assert (cluster.marks("hot"), cluster.marks("new")) == ({AVOID_TAINT}, set())
        cluster.observe()
        cluster.server.delete("nodes", "", "hot")
        await cluster.controller.round()  # it is not observed yet that the node is gone
        await cluster.pass_seconds(40)
        assert cluster.marks("new") == {AVOID_TAINT}


async def test_a_round_writes_no_more_than_its_time_allows(tmp_path: Path) -> None:
    async with world(tmp_path) as cluster:
        for number in range(40):
            cluster.add(f"hot-{number}", cpu=BUSY)
        await cluster.pass_seconds(65)
        assert len(cluster.outcomes) == 25
        await cluster.pass_seconds(5)
        assert len(cluster.outcomes) == 41
        assert cluster.marks("hot-39") == {AVOID_TAINT}


async def test_all_marks_can_be_removed_without_a_leader(tmp_path: Path) -> None:
    async with world(tmp_path) as cluster:
        cluster.policies = LABELS
        await cluster.pass_seconds(70)
        removal = await remove_marks(cluster.connection, NodeWriter(cluster.connection))
        assert (removal.unmarked, removal.left) == (("hot",), {})
        assert cluster.marks("hot") == set()
        again = await remove_marks(cluster.connection, NodeWriter(cluster.connection))
        assert again.unmarked == ()


async def test_reviews_go_on_while_the_marks_of_many_nodes_are_read(tmp_path: Path) -> None:
    # 4,001 nodes are read 2,000 at a time, and a fourth look finds no more of them
    async with world(tmp_path) as cluster:
        for number in range(4_000):
            cluster.state.set_node(Node(name=f"node-{number}", allocatable={}))
        marks = frozenset({AVOID_TAINT})
        cluster.state.set_node(Node(name="marked", allocatable={}, marks=marks))
        turns = 0
        turns_at_looks: list[int] = []

        async def take_turns() -> None:
            nonlocal turns
            while True:
                turns += 1
                await asyncio.sleep(0)

        def view() -> ClusterView:
            turns_at_looks.append(turns)
            return cluster.state.view()

        cluster.leads = False  # or the mark, for which no policy stands, would be taken back
        cluster.policies = PolicySet()
        cluster.controller.cluster = replace(cluster.controller.cluster, view=view)
        others = asyncio.create_task(take_turns())
        await cluster.controller.round()
        others.cancel()
    assert cluster.shown == {AVOID_TAINT: 1}
    assert len(turns_at_looks) == 4
    assert len(set(turns_at_looks)) == 4
