from __future__ import annotations

import asyncio
import json
import socket
from pathlib import Path

import pytest
from yarl import URL

from tests.patience import PATIENCE_SECONDS
from tests.webhook.conftest import Start
from webhook.settings import SettingsError

REVIEW = json.loads((Path(__file__).parents[1] / "reviews" / "generate_name.json").read_text())[
    "review"
]


async def test_the_greeting_says_where_and_how_to_call(start: Start) -> None:
    async with start() as caller:
        greeting = caller.server.greeting()
        assert "policies  2, over 3 nodes" in greeting
        for url in (
            f"{caller.server.url}/mutate",
            f"{caller.server.url}/validate",
            f"{caller.server.url}/readyz",
            f"{caller.server.metrics_url}/metrics",
        ):
            assert url in greeting
        assert caller.server.ca_pem.decode().strip() in greeting


def _has_ipv6_loopback() -> bool:
    try:
        socket.create_server(("::1", 0), family=socket.AF_INET6).close()
    except OSError:
        return False
    return True


@pytest.mark.parametrize(
    ("host", "address", "peer"),
    [("::", "127.0.0.1", "127.0.0.1"), ("::", "[::1]", "::1"), ("::1", "[::1]", "::1")],
)
async def test_it_is_called_over_either_family(
    start: Start, host: str, address: str, peer: str
) -> None:
    if "::1" in {host, peer} and not _has_ipv6_loopback():
        pytest.skip("this machine has no ::1")
    async with start(host=host, metrics_host=host) as caller:
        reviews, metrics = URL(caller.server.url), URL(caller.server.metrics_url)
        async with caller.session.get(f"http://{address}:{metrics.port}/metrics") as answer:
            assert answer.status == 200
        url = f"https://{address}:{reviews.port}/mutate"
        async with caller.session.post(url, json=REVIEW) as answer:
            assert (answer.status, (await answer.json())["response"]["allowed"]) == (200, True)
        assert {getattr(each, "peer", "") for each in caller.server.reviews.connections} == {peer}


async def test_a_machine_without_ipv6_is_served_over_ipv4(
    start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(socket, "has_dualstack_ipv6", lambda: False)
    async with start(host="::") as caller:
        port = URL(caller.server.url).port
        async with caller.session.get(f"https://127.0.0.1:{port}/readyz") as answer:
            assert answer.status == 200


async def test_while_draining_it_serves_on_but_wants_no_more(start: Start) -> None:
    async with start() as caller:
        await caller.post("/mutate", REVIEW)  # leaves a connection open, as the API server does
        draining = asyncio.create_task(caller.server.drain(30.0))
        await asyncio.sleep(0)
        async with caller.session.get(f"{caller.server.url}/readyz") as response:
            assert response.status == 503
            assert response.headers["Connection"] == "close"
        async with caller.session.post(f"{caller.server.url}/mutate", json=REVIEW) as response:
            assert response.status == 200
            assert response.headers["Connection"] == "close"
        await draining  # ends by itself: every connection was closed by its last answer


async def test_it_leaves_callers_time_to_learn_that_it_ends_though_nobody_is_connected(
    start: Start,
) -> None:
    async with start() as caller:
        draining = asyncio.create_task(caller.server.drain(0.0, delay_seconds=60.0))
        while not caller.server.health.draining:  # noqa: ASYNC110 - it says so at once
            await asyncio.sleep(0)
        async with caller.session.post(f"{caller.server.url}/mutate", json=REVIEW) as response:
            assert response.status == 200
        assert not draining.done()
        draining.cancel()


async def test_draining_ends_in_time_even_if_a_connection_stays_open(start: Start) -> None:
    async with start() as caller:
        await caller.post("/mutate", REVIEW)
        async with asyncio.timeout(PATIENCE_SECONDS):
            await caller.server.drain(0.01)
        assert caller.server.reviews.connections


async def test_a_port_that_is_taken_is_named(start: Start) -> None:
    async with start() as caller:
        port = caller.server.url.rsplit(":", 1)[1]
        with pytest.raises(SettingsError, match=rf"127\.0\.0\.1:{port}: cannot be listened on"):
            async with start(port=int(port)):
                pass
