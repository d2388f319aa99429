"""Debug pages of a live cluster: only for those whom the API server lets."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from tests.fake_api_server import FakeApiServer, fake_api_server
from tests.webhook.conftest import Caller, Start, local_settings
from tests.webhook.serving.test_services import replica

TOKENS, ACCESS = (
    "/apis/authentication.k8s.io/v1/tokenreviews",
    "/apis/authorization.k8s.io/v1/subjectaccessreviews",
)
USERS = {
    "reader": {"username": "ann", "uid": "1", "groups": ["operators"], "extra": {"a": ["b"]}},
    "stranger": {"username": "bob", "groups": ["tenants"]},
}


class Reviewer:
    """Reviews of the two users above; only operators may read."""

    def __init__(self, server: FakeApiServer) -> None:
        self.access: list[Any] = []
        server.play("POST", TOKENS, self.token)
        server.play("POST", ACCESS, self.right)

    def token(self, review: dict[str, Any]) -> object:
        user = USERS.get(review["spec"]["token"])
        return {"status": {"authenticated": True, "user": user} if user else {}}

    def right(self, review: dict[str, Any]) -> object:
        self.access.append(review["spec"])
        return {"status": {"allowed": "operators" in review["spec"]["groups"]}}


@pytest.fixture
async def api_server() -> AsyncIterator[FakeApiServer]:
    async with fake_api_server(tls=True) as server:
        yield server


async def read(
    caller: Caller,
    token: str = "",
    page: str = "/debug/decisions",
    session: aiohttp.ClientSession | None = None,
) -> tuple[int, str]:
    headers = {"Authorization": f"Bearer {token}"} if token else {}
    url = f"{caller.server.metrics_url}{page}"
    async with (session or caller.session).get(url, headers=headers) as response:
        return response.status, await response.text()


async def test_decisions_are_shown_to_those_whom_the_api_server_lets(
    api_server: FakeApiServer, tmp_path: Path
) -> None:
    reviewer = Reviewer(api_server)
    async with replica(api_server, tmp_path) as caller:
        status, text = await read(caller)
        assert (status, "kubectl create token" in text) == (401, True)
        assert await read(caller, "forged") == (401, "the bearer token is not valid\n")
        assert reviewer.access == []
        assert await read(caller, "stranger") == (
            403,
            "`bob` may not get the nonResourceURL `/debug/decisions`\n",
        )
        assert await read(caller, "reader") == (200, "[]")
        assert reviewer.access[-1] == {
            "user": "ann",
            "uid": "1",
            "groups": ["operators"],
            "extra": {"a": ["b"]},
            "nonResourceAttributes": {"path": "/debug/decisions", "verb": "get"},
        }
        assert (await read(caller, page="/metrics"))[0] == 200


async def test_where_the_api_server_does_not_say_nobody_reads(
    api_server: FakeApiServer, tmp_path: Path
) -> None:
    async with replica(api_server, tmp_path) as caller:
        status, text = await read(caller, "reader")
    assert (status, "does not say" in text) == (503, True)


async def test_callers_beyond_a_few_at_a_time_cost_the_api_server_nothing(
    api_server: FakeApiServer, tmp_path: Path
) -> None:
    Reviewer(api_server)
    elsewhere = aiohttp.TCPConnector(local_addr=("127.0.0.2", 0))
    async with (
        replica(api_server, tmp_path) as caller,
        aiohttp.ClientSession(connector=elsewhere) as session,
    ):
        api_server.pause()
        tokens = ["reader", "reader", "reader", "forged"]
        waiting = [asyncio.create_task(read(caller, token)) for token in tokens]

        def reviewed() -> int:
            return sum(request.path == TOKENS for request in api_server.requests)

        await api_server.until(lambda: reviewed() == 4)
        assert (await read(caller, "another"))[0] == 429
        assert reviewed() == 4
        other = asyncio.create_task(read(caller, "reader", session=session))  # its own share
        await api_server.until(lambda: reviewed() == 5)
        api_server.resume()
        assert [status for status, _ in await asyncio.gather(*waiting)] == [200, 200, 200, 401]
        assert (await other)[0] == 200


@pytest.mark.parametrize(("on", "status"), [(True, 200), (False, 404)])
async def test_debug_pages_can_be_switched_off_alone(
    start: Start, *, on: bool, status: int
) -> None:
    async with start(debug_pages=on) as caller:
        assert (await read(caller))[0] == status
        assert (await read(caller, page="/metrics"))[0] == 200


def test_debug_pages_are_on_by_default() -> None:
    assert local_settings().debug_pages
