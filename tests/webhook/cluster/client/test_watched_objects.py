from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.fake_api_server import FakeApiServer, fake_api_server
from tests.patience import PATIENCE_SECONDS
from tests.webhook.cluster.reflecting import eventually
from webhook.cluster.client.connection import ApiError, connected
from webhook.cluster.client.watched_objects import WatchedObjects

PATH = "/api/v1/namespaces/system/secrets/tls"


def secret(value: str, name: str = "tls") -> dict[str, Any]:
    metadata = {"namespace": "system", "name": name}
    return {"apiVersion": "v1", "kind": "Secret", "metadata": metadata, "data": {"key": value}}


@pytest.fixture
async def api_server() -> AsyncIterator[FakeApiServer]:
    async with fake_api_server() as server:
        yield server


@asynccontextmanager
async def watched(server: FakeApiServer, folder: Path) -> AsyncIterator[WatchedObjects]:
    async with connected(server.kubeconfig(folder), None) as connection:
        objects = WatchedObjects(connection, [PATH])
        running = asyncio.create_task(objects.run())
        await eventually(lambda: server.watches("secrets") == 1)
        yield objects
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)


async def value(objects: WatchedObjects) -> str:
    """Return what the Secret holds; "" where there is none."""
    try:
        return str(json.loads(await objects.get(PATH))["data"]["key"])
    except ApiError as error:
        if error.status != 404:
            raise
        return ""


async def becomes(objects: WatchedObjects, expected: str) -> None:
    async with asyncio.timeout(PATIENCE_SECONDS):
        while await value(objects) != expected:  # noqa: ASYNC110 - nobody tells us
            await asyncio.sleep(0)


def reads(server: FakeApiServer) -> int:
    return sum(1 for each in server.requests if each.method == "GET" and each.path == PATH)


async def test_changes_are_seen_without_a_further_request(
    api_server: FakeApiServer, tmp_path: Path
) -> None:
    api_server.create(secret("b25l"))
    async with watched(api_server, tmp_path) as objects:
        await becomes(objects, "b25l")
        before = reads(api_server)
        api_server.replace(secret("dHdv"))
        await becomes(objects, "dHdv")
        api_server.delete("secrets", "system", "tls")
        await becomes(objects, "")
        api_server.create(secret("dHJl"))
        await becomes(objects, "dHJl")
        assert reads(api_server) == before


async def test_what_is_not_there_is_looked_for_once(
    api_server: FakeApiServer, tmp_path: Path
) -> None:
    async with watched(api_server, tmp_path) as objects:
        for _ in range(5):
            assert not await value(objects)
        assert reads(api_server) <= 2  # one may have been under way while the watch began


async def test_an_own_write_is_read_at_once(api_server: FakeApiServer, tmp_path: Path) -> None:
    api_server.create(secret("b25l"))
    async with watched(api_server, tmp_path) as objects:
        await becomes(objects, "b25l")
        patch = json.dumps({"data": {"key": "dHdv"}}).encode()
        kind = "application/merge-patch+json"
        await objects.write("PATCH", PATH, patch, content_type=kind)
        assert await value(objects) == "dHdv"


async def test_other_objects_are_read_as_ever(api_server: FakeApiServer, tmp_path: Path) -> None:
    api_server.create(secret("b25l", "other"))
    async with watched(api_server, tmp_path) as objects:
        found = json.loads(await objects.get(PATH.replace("tls", "other")))
        assert found["data"]["key"] == "b25l"


async def test_while_there_is_no_watch_each_read_is_a_request(
    api_server: FakeApiServer, tmp_path: Path
) -> None:
    api_server.create(secret("b25l"))
    async with watched(api_server, tmp_path) as objects:
        await becomes(objects, "b25l")
        api_server.end_watches("secrets")
        await eventually(lambda: api_server.watches("secrets") == 0)
        api_server.replace(secret("dHdv"))
        await becomes(objects, "dHdv")
