from __future__ import annotations

import asyncio
import selectors
import tempfile
from collections import Counter
from contextlib import AsyncExitStack
from pathlib import Path

from tests.fake_api_server import FakeApiServer, fake_api_server
from tests.webhook.cluster.reflecting import eventually
from tests.webhook.conftest import local_settings
from webhook.serving.composition import run_server
from webhook.serving.services import Role

MOST_CALLS_A_MINUTE = 60
SETTLE_SECONDS = 120.0
_IDLE_SECONDS = 0.005  # of real time: then nothing is under way between processes of this test


class _Selector(selectors.DefaultSelector):
    """Does not wait for timers: it has the loop skip the time to the next one."""

    loop: _Loop

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        if not self.loop.skips or not timeout:
            return super().select(timeout)
        ready = super().select(min(timeout, _IDLE_SECONDS))
        if not ready:
            self.loop.skipped += timeout
        return ready


class _Loop(asyncio.SelectorEventLoop):
    """An event loop whose idle time passes at once, as soon as `skips` is set."""

    def __init__(self) -> None:
        self.skips = False
        self.skipped = 0.0
        selector = _Selector()
        selector.loop = self
        super().__init__(selector)

    def time(self) -> float:
        return super().time() + self.skipped


def configurations(server: FakeApiServer) -> None:
    for kind in ("MutatingWebhookConfiguration", "ValidatingWebhookConfiguration"):
        server.create(
            {
                "apiVersion": "admissionregistration.k8s.io/v1",
                "kind": kind,
                "metadata": {"name": "stowplan"},
                "webhooks": [{"name": "w.stowplan.dev", "clientConfig": {"url": "https://x/"}}],
            }
        )


async def _bookmarks(server: FakeApiServer) -> None:
    """Send them as an API server does in quiet watches, about once a minute."""
    while True:
        await asyncio.sleep(50)
        server.send_bookmarks()


async def _calls_of_an_idle_minute(loop: _Loop) -> Counter[str]:
    """Return the calls of three processes that answer reviews and two of which one leads."""
    async with AsyncExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        server = await stack.enter_async_context(fake_api_server(tls=True))
        configurations(server)
        settings = local_settings(
            kubeconfig=server.kubeconfig(folder),
            policies=[],
            policy_resources=True,
            certificate_secret="stowplan-tls",  # noqa: S106 - its name
            certificate_names=["127.0.0.1"],
            quota_mode="Audit",
        )
        for role in (Role.CONTROL, Role.CONTROL, Role.REVIEWS, Role.REVIEWS, Role.REVIEWS):
            running = await stack.enter_async_context(run_server(settings, role=role))
            await eventually(running.health.ready)
        loop.skips = True
        bookmarks = asyncio.create_task(_bookmarks(server))
        await asyncio.sleep(SETTLE_SECONDS)
        before = len(server.requests)
        await asyncio.sleep(60)
        loop.skips = False
        bookmarks.cancel()
        return Counter(f"{each.method} {each.path}" for each in server.requests[before:])


def test_an_idle_installation_of_three_and_two_makes_at_most_a_call_a_second() -> None:
    with asyncio.Runner(loop_factory=_Loop) as runner:
        loop = runner.get_loop()
        assert isinstance(loop, _Loop)
        calls = runner.run(_calls_of_an_idle_minute(loop))
    lease = "PUT /apis/coordination.k8s.io/v1/namespaces/stowplan-system/leases/stowplan"
    assert calls[lease] + 1 >= 60 / 4.8  # it did go on: a renewal every 4 s, up to a fifth later
    assert calls.total() <= MOST_CALLS_A_MINUTE, calls
