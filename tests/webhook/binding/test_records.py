from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from pathlib import Path

from tests.fake_api_server import FakeApiServer, fake_api_server
from tests.webhook.cluster.reflecting import eventually
from webhook.binding.records import BindingRecord, BindingRecords, Rebound, ReboundEvents
from webhook.cluster.client.connection import connected
from webhook.cluster.timing import MonotonicClock


def record(uid: str = "1", *, node: str = "node-b") -> BindingRecord:
    return BindingRecord(uid=uid, node=node, landings=())


def test_a_record_is_taken_once() -> None:
    records = BindingRecords()
    records.put("shop/web", record())
    found = records.take("shop/web", "1", "node-b")
    assert found is not None
    assert records.take("shop/web", "1", "node-b") is None


def test_a_pod_that_is_elsewhere_or_another_one_has_no_record() -> None:
    records = BindingRecords()
    records.put("shop/web", record())
    assert records.take("shop/web", "1", "node-a") is None
    records.put("shop/web", record())
    assert records.take("shop/web", "2", "node-b") is None


def test_a_later_try_replaces_an_earlier_one() -> None:
    records = BindingRecords()
    records.put("shop/web", record())
    records.put("shop/web", record(node="node-c"))
    assert records.take("shop/web", "1", "node-c") is not None


def test_bindings_that_nobody_counts_take_no_more_and_more_memory() -> None:
    records = BindingRecords()
    for number in range(5_000):
        records.put(f"shop/web-{number}", record())
    assert len(records) == 4_096
    assert records.take("shop/web-0", "1", "node-b") is None
    assert records.take("shop/web-4999", "1", "node-b") is not None


NOON = datetime(2026, 1, 5, 12, 0, tzinfo=UTC)


def rebound(name: str) -> Rebound:
    return Rebound(
        namespace="shop",
        name=name,
        uid=f"uid-of-{name}",
        scheduler_node="node-a",
        node="node-b",
        reason="balanced: 91 of 100 points, not 40",
    )


@asynccontextmanager
async def events(
    tmp_path: Path, pauses: list[float]
) -> AsyncIterator[tuple[FakeApiServer, ReboundEvents]]:
    async def sleep(seconds: float) -> None:
        pauses.append(seconds)
        await asyncio.sleep(0)

    async with (
        fake_api_server() as server,
        connected(server.kubeconfig(tmp_path), None) as connection,
    ):
        clock = MonotonicClock(sleep=sleep)
        yield (
            server,
            ReboundEvents(connection, identity="replica-1", now=lambda: NOON, clock=clock),
        )


async def test_an_event_says_from_where_to_where_and_why(tmp_path: Path) -> None:
    async with events(tmp_path, []) as (server, written):
        written.record(rebound("web"))
        task = asyncio.create_task(written.run())
        await eventually(lambda: bool(server.objects("events")))
        task.cancel()
        (event,) = server.objects("events").values()
    assert (event["reason"], event["type"]) == ("Rebound", "Normal")
    assert event["involvedObject"]["name"] == "web"
    assert event["involvedObject"]["uid"] == "uid-of-web"
    assert event["message"] == (
        "Bound to node-b instead of node-a, the scheduler's choice: balanced: 91 of 100 points,"
        " not 40"
    )


async def test_of_a_burst_few_get_an_event_and_those_slowly(tmp_path: Path) -> None:
    pauses: list[float] = []
    async with events(tmp_path, pauses) as (server, written):
        for number in range(200):
            written.record(rebound(f"web-{number}"))
        task = asyncio.create_task(written.run())
        await eventually(lambda: len(pauses) == 64)
        task.cancel()
        assert len(server.objects("events")) == 64
    assert set(pauses) == {1}
