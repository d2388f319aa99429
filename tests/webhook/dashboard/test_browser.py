"""The pages of a live webhook in a real browser."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager
from pathlib import Path

import pytest
import pytest_asyncio
from playwright.async_api import Browser
from yarl import URL

from tests.browser import visit
from tests.fake_api_server import FakeApiServer, fake_api_server
from tests.webhook.conftest import Caller
from tests.webhook.serving.test_authorization import ACCESS, TOKENS
from tests.webhook.serving.test_services import node, pod, replica

pytestmark = pytest.mark.asyncio(loop_scope="session")

NODES = 5_000
READER = "reader"
PAGES = {
    "nodes": "node-0000",
    "node?name=node-first": "shop/web",
    "pod?namespace=shop": "shop/web",
    "pod?namespace=shop&name=web": "node-first",
    "quotas": "team",
    "queue": "no pod",
    "policies": "least-limits",
    "policy?name=least-limits": "Its effect",
}
"""What each page shows."""


@pytest_asyncio.fixture(loop_scope="session")
async def api_server() -> AsyncIterator[FakeApiServer]:
    """A cluster with a node, a pod on it and a quota, and a reader who may read everything."""
    async with fake_api_server(tls=True) as server:
        server.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "shop"}})
        server.create(node("node-first"))
        server.create(pod("web", node_name="node-first"))
        server.create(
            {
                "apiVersion": "scheduling.x-k8s.io/v1alpha1",
                "kind": "ElasticQuota",
                "metadata": {"namespace": "shop", "name": "team"},
                "spec": {"min": {"cpu": "2"}, "max": {"cpu": "4"}},
            }
        )
        user = {"username": "ann", "groups": ["operators"]}
        server.play("POST", TOKENS, lambda _: {"status": {"authenticated": True, "user": user}})
        server.play("POST", ACCESS, lambda _: {"status": {"allowed": True}})
        yield server


def dashboard(api_server: FakeApiServer, tmp_path: Path) -> AbstractAsyncContextManager[Caller]:
    """Start a webhook with a dashboard."""
    return replica(api_server, tmp_path, dashboard_port=0, hold=True)


async def test_every_page_opens_without_a_complaint_and_without_another_host(
    api_server: FakeApiServer, browser: Browser, tmp_path: Path
) -> None:
    for number in range(NODES):
        api_server.create(node(f"node-{number:04}"))
    async with (
        dashboard(api_server, tmp_path) as caller,
        visit(browser, token=READER) as tab,
    ):
        url = URL(caller.server.dashboard_url)
        for page, shows in PAGES.items():
            response = await tab.page.goto(f"{url}/dashboard/{page}")
            assert response is not None
            assert response.status == 200, page
            await tab.page.get_by_text(shows).first.wait_for()
            assert tab.complaints == [], page
            assert await tab.barriers() == [], page
            await tab.page.set_viewport_size({"width": 390, "height": 800})
            assert await tab.page.evaluate("document.documentElement.scrollWidth") == 390, page
            captions = "Array.from(document.querySelectorAll('caption'), each => each.offsetWidth)"
            assert max(await tab.page.evaluate(captions), default=0) <= 390, page
            await tab.page.set_viewport_size({"width": 1280, "height": 720})
        assert tab.hosts == {url.authority}


async def test_links_lead_from_a_node_over_its_pods_to_why_they_are_there_and_to_the_policy(
    api_server: FakeApiServer, browser: Browser, tmp_path: Path
) -> None:
    async with (
        dashboard(api_server, tmp_path) as caller,
        visit(browser, token=READER) as tab,
    ):
        await tab.page.goto(f"{caller.server.dashboard_url}/dashboard/nodes")
        for link in ("node-first", "shop/web", "least-limits"):
            await tab.page.get_by_role("link", name=link, exact=True).first.click()
        assert await tab.text("h1") == "Policy least-limits"


async def test_a_page_follows_the_cluster_without_being_loaded_again(
    api_server: FakeApiServer, browser: Browser, tmp_path: Path
) -> None:
    async with (
        dashboard(api_server, tmp_path) as caller,
        visit(browser, token=READER) as tab,
    ):
        await tab.page.goto(f"{caller.server.dashboard_url}/dashboard/quotas?namespace=shop")
        assert "later" not in await tab.text()
        await tab.page.evaluate("window.loadedOnce = true")
        later = {
            "apiVersion": "scheduling.x-k8s.io/v1alpha1",
            "kind": "ElasticQuota",
            "metadata": {"namespace": "shop", "name": "later"},
            "spec": {"max": {"cpu": "4"}},
        }
        api_server.create(later)
        await tab.page.get_by_text("later").first.wait_for()
        assert await tab.page.evaluate("window.loadedOnce")
        assert tab.complaints == []


async def test_a_person_signs_in_by_keyboard_and_out_again(
    api_server: FakeApiServer, browser: Browser, tmp_path: Path
) -> None:
    async with (
        dashboard(api_server, tmp_path) as caller,
        visit(browser) as tab,
    ):
        response = await tab.page.goto(f"{caller.server.dashboard_url}/dashboard/nodes")
        assert response is not None
        assert response.status == 401
        await tab.page.get_by_label("token").focus()
        await tab.page.keyboard.type(READER)
        await tab.page.keyboard.press("Enter")
        await tab.page.get_by_text("node-first").first.wait_for()
        cookies = await tab.page.context.cookies()
        kept = [(each.get("name"), each.get("httpOnly"), each.get("secure")) for each in cookies]
        assert kept == [("__Host-stowplan", True, True)]
