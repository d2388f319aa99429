from __future__ import annotations

import json
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from tests.fake_api_server import FakeApiServer, fake_api_server
from tests.webhook.conftest import Caller
from tests.webhook.serving.test_authorization import Reviewer, read
from tests.webhook.serving.test_services import replica
from webhook.placement.held_pods import ObservedLease

Json = dict[str, Any]


@pytest.fixture
async def api_server() -> AsyncIterator[FakeApiServer]:
    """An API server on whose cluster another replica leads, and releases no pod for now."""
    async with fake_api_server(tls=True) as server:
        Reviewer(server)
        server.create(
            {
                "apiVersion": "coordination.k8s.io/v1",
                "kind": "Lease",
                "metadata": {"namespace": "stowplan-system", "name": "stowplan"},
                "spec": {
                    "holderIdentity": "another",
                    "leaseDurationSeconds": 3_600,
                    "renewTime": datetime.now(UTC).isoformat(),
                },
            }
        )
        for name, priority, hours in (("old", 0, 3), ("urgent", 7, 2), ("new", 0, 0)):
            server.create(_held(name, priority, hours))
        yield server


def _held(name: str, priority: int, hours: int) -> Json:
    created = datetime.now(UTC) - timedelta(hours=hours)
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "namespace": "shop",
            "name": name,
            "creationTimestamp": created.isoformat(),
        },
        "spec": {
            "schedulingGates": [{"name": "stowplan.dev/hold"}],
            "containers": [{"name": "c"}],
            "priority": priority,
        },
        "status": {"phase": "Pending"},
    }


async def _queue(caller: Caller, query: str = "") -> Json:
    status, text = await read(caller, "reader", f"/debug/queue{query}")
    assert status == 200
    queue: Json = json.loads(text)
    return queue


async def test_a_replica_that_does_not_lead_shows_the_queue(
    api_server: FakeApiServer, tmp_path: Path
) -> None:
    async with replica(api_server, tmp_path, hold=True, hold_seconds=3_600) as caller:
        queue = await _queue(caller)
        assert (queue["queueSort"], queue["held"], queue["overdue"]) == ("PrioritySort", 3, 2)
        assert queue["releaser"] == {"holder": "another"}
        names = [(pod["place"], pod["pod"]["name"], pod["message"]) for pod in queue["pods"]]
        assert names == [(1, "urgent", "1st of 3"), (2, "old", "2nd of 3"), (3, "new", "3rd of 3")]


async def test_some_pods_may_be_asked_for(api_server: FakeApiServer, tmp_path: Path) -> None:
    async with replica(api_server, tmp_path, hold=True) as caller:
        (found,) = (await _queue(caller, "?pod=shop/old"))["pods"]
        assert found["place"] == 2
        assert len((await _queue(caller, "?limit=2"))["pods"]) == 2
        assert (await read(caller, "reader", "/debug/queue?limit=x"))[0] == 400


async def test_only_those_read_it_whom_the_api_server_lets(
    api_server: FakeApiServer, tmp_path: Path
) -> None:
    async with replica(api_server, tmp_path, hold=True) as caller:
        assert (await read(caller, page="/debug/queue"))[0] == 401
        assert (await read(caller, "stranger", "/debug/queue"))[0] == 403


async def test_the_status_of_a_replica_counts_held_pods(
    api_server: FakeApiServer, tmp_path: Path
) -> None:
    async with replica(api_server, tmp_path, hold=True, hold_seconds=3_600) as caller:
        _, text = await caller.get(f"{caller.server.url}/statusz")
        held = json.loads(text)["held"]
        # Seen a moment ago: nobody can release what is not seen yet.
        assert held.pop("overdueSeconds", 0) < 60
        assert held == {"held": 3, "notHolding": "no_leader"}


async def test_where_no_pod_is_ever_held_there_is_no_queue(
    api_server: FakeApiServer, tmp_path: Path
) -> None:
    async with replica(api_server, tmp_path) as caller:
        assert (await read(caller, "reader", "/debug/queue"))[0] == 404
        _, text = await caller.get(f"{caller.server.url}/statusz")
        assert json.loads(text)["held"] is None


def _no_lease() -> ObservedLease:
    return ObservedLease(holder="", annotations={}, age_seconds=0.0)
