from __future__ import annotations

from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec

from engine.gang import GangKey, GangMember, member_of
from engine.model import api
from engine.model.gang import pod_group_of
from engine.model.pod import pod_of
from engine.view import ClusterState
from tests.fake_api_server import FakeApiServer, fake_api_server
from webhook.cluster.client.connection import Connection, connected
from webhook.cluster.timing import MonotonicClock
from webhook.controllers.pod_group_status import PodGroupStatuses
from webhook.controllers.reconciler import Reconciler

Json = dict[str, Any]
GROUP = "scheduling.x-k8s.io"
LABEL = f"{GROUP}/pod-group"


class World:
    """A server, its PodGroups and pods as they were seen last, and the controller."""

    def __init__(self, server: FakeApiServer, connection: Connection) -> None:
        self.server = server
        self.seconds = 0.0
        self.leads = True
        self.state = ClusterState()
        self._members: list[GangMember] = []
        self.controller = Reconciler(
            connection,
            PodGroupStatuses(connection, self.state.view, self._members_of),
            clock=MonotonicClock(now=lambda: self.seconds),
            may_write=lambda: self.leads,
        )

    def pod_group(self, name: str, least: int = 2, *, group: str = GROUP, **status: object) -> None:
        self.server.create(
            {
                "apiVersion": f"{group}/v1alpha1",
                "kind": "PodGroup",
                "metadata": {"name": name, "namespace": "shop"},
                "spec": {"minMember": least},
                "status": status,
            }
        )

    def pod(self, name: str, phase: str = "Pending", *, namespace: str = "shop") -> None:
        found = self.server.objects("pods").get((namespace, name))
        metadata = {
            "name": name,
            "namespace": namespace,
            "labels": {LABEL: "train"},
            "ownerReferences": [{"apiVersion": "batch/v1", "kind": "Job", "name": "job"}],
        }
        written: Json = {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": metadata,
            "spec": {"containers": [{"name": "c"}]},
            "status": {"phase": phase},
        }
        (self.server.create if found is None else self.server.replace)(written)

    def see(self) -> None:
        for name, kind in (
            (f"podgroups.{GROUP}", api.PodGroup),
            ("podgroups.scheduling.sigs.k8s.io", api.KoordinatorPodGroup),
        ):
            for stored in self.server.objects(name).values():
                self.state.set_extra(pod_group_of(msgspec.convert(stored, kind)))
        pods = (
            pod_of(msgspec.convert(each, api.Pod)) for each in self.server.objects("pods").values()
        )
        self._members = [each for each in map(member_of, pods) if each is not None]

    async def round(self, *, after: float = 5) -> None:
        self.see()
        self.seconds += after
        await self.controller.round()

    def status(self, name: str = "train", group: str = GROUP) -> Json:
        stored = self.server.objects(f"podgroups.{group}")["shop", name]
        status: Json = stored.get("status", {})
        return status

    def requests(self, method: str) -> int:
        return sum(request.method == method for request in self.server.requests)

    def _members_of(self, key: GangKey) -> Iterable[GangMember]:
        return [each for each in self._members if each.gang == key]


@asynccontextmanager
async def world(tmp_path: Path) -> AsyncIterator[World]:
    async with (
        fake_api_server(without=()) as server,
        connected(server.kubeconfig(tmp_path), None) as connection,
    ):
        yield World(server, connection)


async def test_a_status_follows_the_members(tmp_path: Path) -> None:
    async with world(tmp_path) as now:
        now.pod_group("train")
        await now.round()
        assert now.status()["phase"] == "Pending"
        now.pod("a")
        now.pod("b")
        await now.round()
        assert (now.status()["phase"], now.status()["occupiedBy"]) == ("Scheduling", "shop/job")
        now.pod("a", "Running")
        now.pod("b", "Running")
        await now.round()
        assert (now.status()["phase"], now.status()["running"]) == ("Running", 2)
        now.pod("a", "Succeeded")
        await now.round()
        assert (now.status()["running"], now.status()["succeeded"]) == (1, 1)
        now.pod("b", "Succeeded")
        await now.round()
        assert (now.status()["phase"], now.status()["succeeded"]) == ("Finished", 2)


async def test_pods_of_other_namespaces_are_not_members(tmp_path: Path) -> None:
    async with world(tmp_path) as now:
        now.pod_group("train")
        now.pod("a")
        now.pod("b", namespace="other")
        await now.round()
        assert now.status()["phase"] == "Pending"


async def test_nothing_is_read_or_written_while_nothing_changes(tmp_path: Path) -> None:
    async with world(tmp_path) as now:
        now.pod_group("train")
        now.pod("a")
        now.pod("b")
        await now.round()
        before = len(now.server.requests)
        for _ in range(3):
            await now.round()
        assert len(now.server.requests) == before


async def test_what_somebody_else_has_written_is_put_right(tmp_path: Path) -> None:
    async with world(tmp_path) as now:
        now.pod_group("train", phase="Running", running=7)
        await now.round()
        assert (now.status()["phase"], now.status()["running"]) == ("Pending", 0)


async def test_a_group_that_has_ended_is_left_alone(tmp_path: Path) -> None:
    async with world(tmp_path) as now:
        now.pod_group("train", phase="Finished", succeeded=2)
        await now.round()
        assert not now.server.requests


async def test_groups_of_koordinator_are_left_alone(tmp_path: Path) -> None:
    async with world(tmp_path) as now:
        now.pod_group("train", group="scheduling.sigs.k8s.io")
        await now.round()
        assert not now.server.requests


async def test_who_leads_no_longer_writes_nothing(tmp_path: Path) -> None:
    async with world(tmp_path) as now:
        now.pod_group("train")
        now.leads = False
        await now.round()
        assert not now.server.requests


async def test_many_groups_are_looked_at_in_turns(tmp_path: Path) -> None:
    async with world(tmp_path) as now:
        for number in range(25):
            now.pod_group(f"gang-{number}")
        for expected in (10, 20, 25):
            await now.round(after=1)
            assert now.requests("PATCH") == expected


async def test_a_name_that_no_label_can_hold_has_no_members(tmp_path: Path) -> None:
    async with world(tmp_path) as now:
        now.pod_group("x" * 64)
        await now.round()
        assert now.status("x" * 64)["phase"] == "Pending"
        assert now.requests("GET") == 0
