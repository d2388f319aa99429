from __future__ import annotations

import asyncio
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from subprocess import Popen

import aiohttp
import pytest
from yarl import URL

from tests.fake_api_server import fake_api_server
from tests.patience import PATIENCE_SECONDS
from tests.webhook.cli.running import CLUSTER, POLICIES, Stowplan, process
from tests.webhook.serving.test_services import node, pod


@contextmanager
def dashboard(*flags: str | Path) -> Iterator[tuple[Popen[str], URL]]:
    """Run the command until the block is left; yield the URL that it prints."""
    with process("dashboard", *flags, "--no-browser") as running:
        assert running.stdout is not None
        try:
            what = running.stdout.readline()
            assert what.rstrip().endswith("is shown at"), (what, running.communicate())
            yield running, URL(running.stdout.readline().strip())
        finally:
            running.send_signal(signal.SIGINT)


async def text_of(url: URL, page: str) -> str:
    """Return a page as a browser gets it that has opened the URL."""
    async with aiohttp.ClientSession(cookie_jar=aiohttp.CookieJar(unsafe=True)) as session:
        async with session.get(url) as response:
            assert response.status == 200
            assert "token" not in response.url.query
        async with session.get(url.with_query(None).join(URL(page))) as response:
            assert response.status == 200
            return await response.text()


async def test_a_recording_is_shown_to_whoever_has_the_url(stowplan: Stowplan) -> None:  # noqa: ARG001 - its environment
    with dashboard(*CLUSTER, *POLICIES) as (running, url):
        assert url.host == "127.0.0.1"
        assert "node" in await text_of(url, "nodes")
        async with (
            aiohttp.ClientSession() as session,
            session.get(url.with_query(None)) as response,
        ):
            assert response.status == 401
        running.send_signal(signal.SIGINT)
        assert await asyncio.to_thread(running.wait, PATIENCE_SECONDS) == 0


async def test_a_live_cluster_is_shown_and_nothing_is_written_to_it(tmp_path: Path) -> None:
    async with fake_api_server(tls=True) as server:
        server.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "shop"}})
        server.create(node("node-a"))
        server.create(pod("web", node_name="node-a"))

        def shown() -> tuple[str, str]:
            with dashboard("--kubeconfig", server.kubeconfig(tmp_path), *POLICIES) as (_, url):
                return asyncio.run(_two_pages(url))

        nodes, web = await asyncio.to_thread(shown)
        assert "node-a" in nodes
        assert "node-a" in web
        assert {request.method for request in server.requests} == {"GET"}


async def _two_pages(url: URL) -> tuple[str, str]:
    return await text_of(url, "nodes"), await text_of(url, "pod?namespace=shop&name=web")


@pytest.mark.parametrize(
    ("flags", "status", "problem"),
    [
        (("--cluster", "none.json"), 3, "none.json"),
        (("--kubeconfig", "none"), 1, "none"),
        ((*CLUSTER, "--policies", "none"), 3, "none"),
    ],
)
def test_what_cannot_be_shown_is_said_at_once(
    stowplan: Stowplan, flags: tuple[str, ...], status: int, problem: str
) -> None:
    ran = stowplan("dashboard", "--no-browser", *flags)
    assert (ran.status, problem in ran.err) == (status, True)


@pytest.mark.parametrize(
    ("status", "problem"),
    [
        (0, "no contact with the API server: "),
        (401, "the API server does not accept our credentials: "),
    ],
)
async def test_a_cluster_that_does_not_answer_is_said_once(
    stowplan: Stowplan, tmp_path: Path, status: int, problem: str
) -> None:
    async with fake_api_server(tls=True) as server:
        server.fail_next(100, status)
        flags = ("--no-browser", "--kubeconfig", server.kubeconfig(tmp_path))
        ran = await asyncio.to_thread(stowplan, "dashboard", *flags)
    assert (ran.status, ran.out) == (1, "")
    assert ran.err.startswith(problem)
    assert ran.err.count(problem) == 1


async def test_what_may_not_be_listed_is_said_once(tmp_path: Path) -> None:
    async with fake_api_server(tls=True) as server:
        server.fail_next(100, 403, path_prefix="/api/v1/namespaces")

        def notes() -> str:
            with dashboard("--kubeconfig", server.kubeconfig(tmp_path)) as (running, _):
                running.send_signal(signal.SIGINT)
                return running.communicate(timeout=PATIENCE_SECONDS)[1]

        assert (await asyncio.to_thread(notes)).splitlines() == [
            "namespaces: we lack the permission to list and watch them: failed by the test"
        ]
