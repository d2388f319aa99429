from __future__ import annotations

import asyncio
import json
import re
import signal
import ssl
import sys
from asyncio.subprocess import PIPE, Process
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import aiohttp
import pytest

from engine.errors import InvalidFileError
from tests.webhook.conftest import ADVISING, Start
from webhook.settings_sources import SettingsError

ROOT = Path(__file__).parents[3]
REVIEW = json.loads((Path(__file__).parents[1] / "reviews" / "generate_name.json").read_text())[
    "review"
]
NODE = """
apiVersion: v1
kind: Node
metadata: {name: node-a, labels: {kubernetes.io/hostname: node-a}}
status: {allocatable: {cpu: "4", memory: 16Gi, pods: "110"}}
"""


async def test_bad_policies_keep_it_from_starting(start: Start, policies: Path) -> None:
    (policies / "bad.yaml").write_text("kind: Nothing\n")
    with pytest.raises(InvalidFileError, match=r"bad\.yaml"):
        async with start():
            pass


async def test_changed_policy_files_are_noticed_and_a_bad_change_is_told(
    start: Start, policies: Path
) -> None:
    async with start(reload_seconds=0.01) as caller:

        async def loaded() -> tuple[int, str]:
            _, text = await caller.get(f"{caller.server.url}/readyz")
            policies = json.loads(text)["policies"]
            return policies["loaded"], policies["lastReloadError"]

        async with asyncio.timeout(30):
            (policies / "more.yaml").write_text(ADVISING.replace("balance-limits", "more"))
            while await loaded() != (3, ""):
                pass
            (policies / "more.yaml").write_text("kind: Nothing\n")
            while not (await loaded())[1]:
                pass
        assert (await loaded())[0] == 3
        status, _ = await caller.post("/mutate", REVIEW)
        assert status == 200
        _, metrics = await caller.get(f"{caller.server.metrics_url}/metrics")
        assert 'stowplan_policy_reloads_total{outcome="loaded"}' in metrics
        assert 'stowplan_policy_reloads_total{outcome="failed"}' in metrics
        assert "stowplan_policies_last_reload_successful 0.0" in metrics


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
        async with asyncio.timeout(30):
            await caller.server.drain(0.01)
        assert caller.server.reviews.connections


@asynccontextmanager
async def process(tmp_path: Path, *flags: str) -> AsyncIterator[tuple[Process, str, str]]:
    """Start `serve` as a process of its own; yields it with its URL and its greeting."""
    (tmp_path / "cluster.yaml").write_text(NODE)
    (tmp_path / "policy.yaml").write_text(ADVISING)
    program = (
        "from webhook.serving.process import serve; from webhook.settings import Settings;"
        f"serve(Settings(cluster=['{tmp_path / 'cluster.yaml'}'],"
        f" policies=['{tmp_path / 'policy.yaml'}'], host='127.0.0.1', port=0, metrics_port=0,"
        f" {','.join(flags)}))"
    )
    running = await asyncio.create_subprocess_exec(
        sys.executable, "-W", "error", "-c", program, cwd=ROOT, stdout=PIPE, stderr=PIPE
    )
    try:
        assert running.stdout is not None
        async with asyncio.timeout(60):
            greeting = (await running.stdout.readuntil(b"curl")).decode()
        found = re.search(r"https://127\.0\.0\.1:\d+", greeting)
        assert found is not None
        yield running, found[0], greeting
    finally:
        if running.returncode is None:
            running.kill()
        await running.communicate()


async def held_connection(url: str) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """Open a connection that has no request on it, and so keeps a draining server waiting."""
    blind = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    blind.check_hostname, blind.verify_mode = False, ssl.CERT_NONE
    return await asyncio.open_connection("127.0.0.1", int(url.rsplit(":", 1)[1]), ssl=blind)


@pytest.mark.parametrize("which", [signal.SIGTERM, signal.SIGINT])
async def test_a_signal_ends_an_idle_process_well(tmp_path: Path, which: signal.Signals) -> None:
    async with process(tmp_path) as (running, url, _):
        connector = aiohttp.TCPConnector(ssl=False)
        async with (
            aiohttp.ClientSession(connector=connector) as session,
            session.post(f"{url}/mutate", json=REVIEW) as response,
        ):
            assert "patch" in (await response.json())["response"]
        running.send_signal(which)
        out, log = await asyncio.wait_for(running.communicate(), 30)
        assert running.returncode == 0
        assert out is not None
        assert all(json.loads(line)["level"] == "info" for line in log.splitlines())


async def test_a_second_signal_ends_at_once(tmp_path: Path) -> None:
    async with process(tmp_path, "drain_seconds=600") as (running, url, _):
        reader, writer = await held_connection(url)
        running.send_signal(signal.SIGTERM)
        assert running.stderr is not None
        async with asyncio.timeout(30):
            await running.stderr.readuntil(b"ending")
            running.send_signal(signal.SIGTERM)
            assert await running.wait() == -signal.SIGTERM
        writer.transport.abort()
        await reader.read()


async def test_a_port_that_is_taken_is_named(start: Start) -> None:
    async with start() as caller:
        port = caller.server.url.rsplit(":", 1)[1]
        with pytest.raises(SettingsError, match=rf"127\.0\.0\.1:{port}: cannot be listened on"):
            async with start(port=int(port)):
                pass
