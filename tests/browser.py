"""Chromium of this machine, for tests of pages: what it loads and what it complains about."""

from __future__ import annotations

import os
import shutil
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

import pytest
from axe_playwright_python.async_playwright import Axe
from playwright.async_api import Browser, ConsoleMessage, Page, Request, async_playwright
from yarl import URL

from tests.patience import PATIENCE_SECONDS

_IS_REQUIRED = os.environ.get("STOWPLAN_TEST_BROWSER") == "required"
"""Whether a missing browser is a failure, as in CI."""


@asynccontextmanager
async def chromium() -> AsyncIterator[Browser]:
    """Start the browser; skips the test where there is none."""
    path = shutil.which("chromium") or shutil.which("chromium-browser")
    if path is None:
        problem = "there is no Chromium here: `apt-get install chromium`"
        if _IS_REQUIRED:
            pytest.fail(problem)
        pytest.skip(problem)
    async with async_playwright() as playwright:
        browser = await playwright.chromium.launch(executable_path=path, args=["--no-sandbox"])
        try:
            yield browser
        finally:
            await browser.close()


@dataclass(slots=True)
class Visit:
    """A tab with a session of its own.

    Attributes:
        page: the tab.
        complaints: errors and warnings on its console, and scripts that failed.
        hosts: of all requests.
    """

    page: Page
    complaints: list[str] = field(default_factory=list)
    hosts: set[str] = field(default_factory=set)

    def listen(self) -> None:
        """Note what happens from now on."""

        def on_console(message: ConsoleMessage) -> None:
            if message.type in {"error", "warning"}:
                self.complaints.append(message.text)

        def on_request(request: Request) -> None:
            url = URL(request.url)
            if url.scheme != "data":
                self.hosts.add(url.authority)

        self.page.on("console", on_console)
        self.page.on("pageerror", lambda error: self.complaints.append(str(error)))
        self.page.on("request", on_request)

    async def barriers(self) -> list[str]:
        """Return what axe-core finds on the page that keeps somebody from using it."""
        found = await Axe().run(self.page)
        return [
            f"{each['id']}: {node['html']}"
            for each in found.response["violations"]
            for node in each["nodes"]
        ]

    async def text(self, selector: str = "main") -> str:
        """Return the text that a person sees in an element."""
        return await self.page.locator(selector).first.inner_text()


@asynccontextmanager
async def visit(browser: Browser, *, token: str = "") -> AsyncIterator[Visit]:
    """Open a tab.

    Args:
        browser: the browser.
        token: a bearer token that all of its requests show.
    """
    headers = {"Authorization": f"Bearer {token}"} if token else {}
    context = await browser.new_context(ignore_https_errors=True, extra_http_headers=headers)
    context.set_default_timeout(PATIENCE_SECONDS * 1_000)
    try:
        visiting = Visit(await context.new_page())
        visiting.listen()
        yield visiting
    finally:
        await context.close()
