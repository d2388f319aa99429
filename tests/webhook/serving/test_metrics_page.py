from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Iterator

import pytest
from aiohttp import ClientSession, web
from aiohttp.test_utils import TestClient, TestServer
from prometheus_client import CollectorRegistry, Metric
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.parser import text_string_to_metric_families

from webhook.serving.metrics_page import metrics_page


class Watched:
    """Two metrics of 500 samples each, which note what happens while they are collected."""

    def __init__(self) -> None:
        self.turns = 0  # that others had
        self.turns_before: list[int] = []
        self.written_in: set[threading.Thread] = set()

    def collect(self) -> Iterator[Metric]:
        for name in ("first", "second"):
            self.turns_before.append(self.turns)
            metric = Noting(name, self.written_in)
            for number in range(500):
                metric.add_metric([f"quota-{number}"], number)
            yield metric


class Noting(GaugeMetricFamily):
    """Notes the threads in which it is written."""

    def __init__(self, name: str, written_in: set[threading.Thread]) -> None:
        self._written_in = written_in
        super().__init__(name, "of quotas", labels=["quota"])

    @property
    def documentation(self) -> str:
        self._written_in.add(threading.current_thread())
        return self._documentation

    @documentation.setter
    def documentation(self, text: str) -> None:
        self._documentation = text


@pytest.fixture
def watched() -> Watched:
    return Watched()


@pytest.fixture
async def client(watched: Watched) -> AsyncIterator[TestClient[web.Request, web.Application]]:
    registry = CollectorRegistry(auto_describe=True)
    registry.register(watched)
    watched.turns_before.clear()  # it was collected as it was registered
    app = web.Application()
    app.router.add_get("/metrics", metrics_page(registry))
    async with TestClient(TestServer(app)) as client:
        yield client


async def test_others_have_turns_while_metrics_are_collected_and_written(
    client: TestClient[web.Request, web.Application], watched: Watched
) -> None:
    async def count_turns() -> None:
        while True:
            watched.turns += 1
            await asyncio.sleep(0)

    others = asyncio.create_task(count_turns())
    async with client.get("/metrics") as answer:
        text = await answer.text()
    others.cancel()
    first, second = watched.turns_before
    assert second > first
    assert threading.main_thread() not in watched.written_in
    assert len(watched.written_in) == 1
    families = {family.name: family for family in text_string_to_metric_families(text)}
    assert families.keys() == {"first", "second"}
    assert [sample.value for sample in families["second"].samples] == list(range(500))


async def test_the_format_and_some_of_the_metrics_can_be_asked_for(
    client: TestClient[web.Request, web.Application],
) -> None:
    accept = {"Accept": "application/openmetrics-text; version=1.0.0"}
    async with client.get("/metrics", headers=accept, params={"name[]": "second"}) as answer:
        assert answer.content_type == "application/openmetrics-text"
        assert answer.headers["Content-Encoding"] in {"gzip", "deflate"}
        text = await answer.text()
    assert text.startswith("# HELP second of quotas")
    assert text.endswith('second{quota="quota-499"} 499.0\n# EOF\n')


async def test_without_a_wish_it_is_text(
    client: TestClient[web.Request, web.Application],
) -> None:
    async with ClientSession(auto_decompress=False) as session:
        url = client.make_url("/metrics")
        async with session.get(url, headers={"Accept-Encoding": "identity"}) as answer:
            assert answer.headers["Content-Type"].startswith("text/plain; version=")
            assert (await answer.read()).startswith(b"# HELP first of quotas")
