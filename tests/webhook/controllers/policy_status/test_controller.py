from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec

from engine.model import api
from engine.model.policy_resource import policy_resource_of
from engine.report import OutcomeFigures, PolicyOutcome
from tests.fake_api_server import FakeApiServer, fake_api_server
from webhook.cluster.client.connection import Connection, connected
from webhook.controllers.policy_status.controller import PolicyStatusController
from webhook.controllers.policy_status.status import PolicyFacts
from webhook.placement.policy_resources import PolicyResources
from webhook.quota import MonotonicClock

Json = dict[str, Any]
VALID = {"filters": [{"plugin": "LimitAware"}]}
_WIRES = {
    "placementpolicies": api.PlacementPolicy,
    "namespacedplacementpolicies": api.NamespacedPlacementPolicy,
}


class World:
    """A server, its policies as they were seen last, and the controller."""

    def __init__(self, server: FakeApiServer, connection: Connection) -> None:
        self.server = server
        self.seconds = 0.0
        self.leads = True
        self.pods = 0
        self.resources = PolicyResources()
        self.controller = PolicyStatusController(
            connection,
            standings=lambda: self.resources.standings(frozenset()),
            facts=self.facts,
            today=lambda: "2026-01-01T00:00:00Z",
            clock=MonotonicClock(now=lambda: self.seconds),
            may_write=lambda: self.leads,
        )

    async def facts(self) -> Mapping[str, PolicyFacts]:
        return {
            each.policy.name: PolicyFacts(
                policy=each.policy,
                outcome=PolicyOutcome(
                    policy=each.policy.name, mode="Enforce", total=OutcomeFigures(pods=self.pods)
                ),
            )
            for each in self.resources.standings(frozenset())
            if each.policy is not None
        }

    def write(self, spec: Json, *, namespace: str = "") -> None:
        kind = "NamespacedPlacementPolicy" if namespace else "PlacementPolicy"
        plural = f"{kind.lower()[:-1]}ies"
        found = self.server.objects(plural).get((namespace, "web"))
        written = {
            "apiVersion": "stowplan.dev/v1alpha1",
            "kind": kind,
            "metadata": {"name": "web", **({"namespace": namespace} if namespace else {})},
            "spec": spec,
            "status": found.get("status", {}) if found else {},
        }
        (self.server.create if found is None else self.server.replace)(written)

    async def see(self) -> None:
        for plural, wire in _WIRES.items():
            for stored in self.server.objects(plural).values():
                self.resources.set(policy_resource_of(msgspec.convert(stored, wire)))
        await self.resources.compile_changed()

    async def round(self, *, after: float = 1) -> None:
        await self.see()
        self.seconds += after
        await self.controller.round()

    def status(self, namespace: str = "") -> Json:
        plural = "namespacedplacementpolicies" if namespace else "placementpolicies"
        status: Json = self.server.objects(plural)[namespace, "web"].get("status", {})
        return status

    def version(self) -> str:
        stored = self.server.objects("placementpolicies")["", "web"]
        return str(stored["metadata"]["resourceVersion"])


@asynccontextmanager
async def world(folder: Path) -> AsyncIterator[World]:
    async with (
        fake_api_server() as server,
        connected(server.kubeconfig(folder), None) as connection,
    ):
        yield World(server, connection)


async def test_the_status_of_both_kinds_is_written_once(tmp_path: Path) -> None:
    async with world(tmp_path) as live:
        live.write(VALID)
        live.write({"mode": "Audit"}, namespace="shop")
        await live.round()
        assert live.status()["mode"] == "Enforce"
        assert live.status("shop")["mode"] == "Audit"
        first = live.version()
        await live.controller.round()  # before the write is observed
        await live.round()
        assert live.version() == first


async def test_what_is_wrong_is_told_at_once_and_taken_back(tmp_path: Path) -> None:
    async with world(tmp_path) as live:
        live.write(VALID)
        await live.round()
        live.write({"mode": "?"})
        await live.round()
        accepted = live.status()["conditions"][0]
        assert (accepted["status"], accepted["observedGeneration"]) == ("False", 2)
        assert "generation 1 stays in force" in accepted["message"]
        live.write({"mode": "Audit"})
        await live.round()
        assert live.status()["conditions"][0]["status"] == "True"
        assert live.status()["mode"] == "Audit"


async def test_figures_alone_are_written_once_a_minute(tmp_path: Path) -> None:
    async with world(tmp_path) as live:
        live.write(VALID)
        await live.round()
        live.pods = 5
        await live.round(after=30)
        assert live.status()["outcome"]["pods"] == 0
        await live.round(after=30)
        assert live.status()["outcome"]["pods"] == 5


async def test_who_does_not_lead_writes_nothing(tmp_path: Path) -> None:
    async with world(tmp_path) as live:
        live.write(VALID)
        live.leads = False
        await live.round()
        assert live.status() == {}


async def test_a_failed_write_is_tried_again_later(tmp_path: Path) -> None:
    async with world(tmp_path) as live:
        live.write(VALID)
        await live.see()
        live.server.delete("placementpolicies", "", "web")
        await live.controller.round()  # it is gone
        live.write(VALID)
        await live.round()
        assert live.status() == {}
        await live.round(after=5)
        assert live.status()["mode"] == "Enforce"
