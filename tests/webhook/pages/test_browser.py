from __future__ import annotations

from pathlib import Path

import pytest
from msgspec import structs
from playwright.async_api import Browser, Route
from yarl import URL

from engine.report import PoliciesReport, PolicyRow, RuleKind, RuleRejections, RuleRow
from tests.browser import visit
from tests.webhook.pages.reports import HOSTILE
from tests.webhook.pages.test_simulation import arm, report
from webhook.pages import Frame, assets, document, policies_page, report_page, update

pytestmark = pytest.mark.asyncio(loop_scope="session")

OPEN_ALL = "for (const each of document.querySelectorAll('details')) each.open = true"


@pytest.fixture
def path(tmp_path: Path) -> Path:
    rejected = RuleRejections(policy=HOSTILE, rule=HOSTILE, pods=1, nodes=2, example=HOSTILE)
    arms = arm("stock"), arm(HOSTILE, rejections=(rejected,))
    path = tmp_path / "report.html"
    path.write_text(report_page(report(*arms, text=HOSTILE)))
    return path


async def test_a_report_draws_all_its_plots_without_a_network_or_a_complaint(
    path: Path, browser: Browser
) -> None:
    async with visit(browser) as tab:
        await tab.page.goto(path.as_uri())
        await tab.page.evaluate(OPEN_ALL)
        plots = tab.page.locator(".plot")
        assert await plots.count() == 4  # two heat maps, a distribution, and rejections
        for index in range(await plots.count()):
            await plots.nth(index).locator(".main-svg").first.wait_for()
        assert tab.complaints == []
        assert await tab.barriers() == []
        assert tab.hosts <= {""}  # the file itself


async def test_a_report_shows_hostile_text_as_text(path: Path, browser: Browser) -> None:
    async with visit(browser) as tab:
        await tab.page.goto(path.as_uri())
        await tab.page.locator(".main-svg").first.wait_for()
        assert await tab.page.locator("img").count() == 0
        assert "onerror" in await tab.text()


async def test_a_report_is_read_by_keyboard_and_is_as_wide_as_a_narrow_window(
    path: Path, browser: Browser
) -> None:
    async with visit(browser) as tab:
        await tab.page.set_viewport_size({"width": 400, "height": 800})
        await tab.page.goto(path.as_uri())
        await tab.page.keyboard.press("Tab")
        assert await tab.page.locator(":focus").inner_text() == "Skip to the content"
        while await tab.page.locator("summary:focus").count() == 0:
            await tab.page.keyboard.press("Tab")  # tables that scroll come before it
        await tab.page.keyboard.press("Enter")
        assert await tab.page.locator("details[open]").count() == 1
        assert await tab.page.evaluate("document.documentElement.scrollWidth") == 400


async def test_an_event_replaces_what_changed_and_draws_plots_that_are_new(
    browser: Browser,
) -> None:
    rules = (RuleRow(kind=RuleKind.FILTER, name="zone", rejected_nodes=5),)
    row = PolicyRow(name="calm", mode="Enforce", placed_at="Admission", priority=1, rules=())
    before = policies_page(PoliciesReport(policies=(row,)), {})
    after = policies_page(PoliciesReport(policies=(structs.replace(row, rules=rules),)), {})

    async def answer(route: Route) -> None:
        name = URL(route.request.url).name
        if name == "events":
            await route.fulfill(content_type="text/event-stream", body="data: 1\n\n")
        elif name in assets():
            asset = assets()[name]
            await route.fulfill(content_type=asset.content_type, body=asset.body)
        elif "/data/" in route.request.url:
            await route.fulfill(content_type="application/json", body=update(after))
        else:
            text = document(before, Frame(cluster="prod", is_live=True))
            await route.fulfill(content_type="text/html", body=text)

    async with visit(browser) as tab:
        await tab.page.route("**/*", answer)
        await tab.page.goto("http://dashboard.invalid/policies")
        await tab.page.locator("#turned-away .main-svg").first.wait_for()
        assert "zone" in await tab.text()
        assert tab.complaints == []
