from __future__ import annotations

import asyncio
import io
import json
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from aiohttp import ClientSession, web
from aiohttp.test_utils import TestClient, TestServer
from prometheus_client import CollectorRegistry, Metric
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.parser import text_string_to_metric_families

from tests.webhook.conftest import Caller, Start
from webhook.fairness import RenderLimiter
from webhook.serving.app import metrics_page


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
    app.router.add_get("/metrics", metrics_page(registry, RenderLimiter()))
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


REVIEW: dict[str, Any] = json.loads(
    (Path(__file__).parents[1] / "reviews" / "generate_name.json").read_text()
)["review"]


def named(name: str) -> dict[str, Any]:
    request = REVIEW["request"]
    pod = {**request["object"], "metadata": {"name": name}}
    return {**REVIEW, "request": {**request, "uid": f"uid-{name}", "object": pod}}


async def test_the_probes_answer_and_readiness_says_what_is_loaded(caller: Caller) -> None:
    assert await caller.get(f"{caller.server.url}/livez") == (200, "ok\n")
    status, text = await caller.get(f"{caller.server.url}/readyz")
    detail = json.loads(text)
    assert status == 200
    assert detail["ready"] is True
    assert detail["policies"].pop("loadedAt")
    assert len(detail["policies"].pop("digest")) == 32
    assert detail["policies"] == {
        "loaded": 2,
        "lastReloadError": "",
        "refused": [],
        "holding": [],
        "atBinding": [],
    }
    assert detail["view"]["nodes"] == 3
    assert detail["view"]["stale"] == detail["sources"] == []
    assert detail["certificate"]["expiresAt"]


async def test_a_webhook_whose_certificate_has_expired_is_not_ready(start: Start) -> None:
    moment = [0]
    async with start(now=lambda: moment[0]) as caller:
        # A self-signed certificate is valid for a year of 365 days.
        moment[0] = 366 * 86_400 * 1_000_000
        assert not caller.server.health.ready()


async def test_the_state_of_a_replica_can_be_read_though_it_is_not_ready(caller: Caller) -> None:
    await caller.post("/mutate", named("a"))
    caller.server.health.draining = True
    status, text = await caller.get(f"{caller.server.url}/statusz")
    state = json.loads(text)
    assert (status, state["ready"]) == (200, False)
    assert state["reviews"] == {"mutate": 1}
    assert state["modes"] == {"placement": "Enforce", "quota": "Enforce"}


@pytest.mark.parametrize(("mode", "outcome"), [("Audit", "abstained"), ("Off", "ignored")])
async def test_an_installation_that_does_not_enforce_changes_no_pod(
    start: Start, mode: str, outcome: str
) -> None:
    async with start(placement_mode=mode) as caller:
        _, answer = await caller.post("/mutate", named("a"))
        assert "patch" not in answer["response"]
        assert await caller.count("mutate", outcome) == 1


async def test_metrics_and_debug_pages_are_not_where_reviews_go(caller: Caller) -> None:
    for page in ("/metrics", "/debug/decisions"):
        assert (await caller.get(f"{caller.server.url}{page}"))[0] == 404
        assert (await caller.get(f"{caller.server.metrics_url}{page}"))[0] == 200
    assert caller.server.metrics_url.startswith("http://")


async def test_metrics_tell_what_came_of_reviews_and_what_is_known(caller: Caller) -> None:
    await caller.post("/mutate", named("a"))
    await caller.post("/validate", named("a"))
    assert await caller.count("mutate", "placed") == 1
    assert await caller.count("validate", "admitted") == 1
    _, text = await caller.get(f"{caller.server.metrics_url}/metrics")
    for line in (
        "stowplan_view_nodes 3.0",
        "stowplan_view_pods 0.0",
        "stowplan_policies 2.0",
        "stowplan_policies_last_reload_successful 1.0",
        'stowplan_reviews_in_flight{path="mutate"} 0.0',
        'stowplan_review_seconds_count{path="mutate"} 1.0',
    ):
        assert line in text.splitlines()
    for name in (
        "stowplan_view_version",
        'stowplan_view_age_seconds{source="recording"}',
        "stowplan_certificate_expiry_timestamp_seconds",
        "stowplan_rule_errors_total",
    ):
        assert f"\n{name} " in text


async def test_two_webhooks_in_one_process_count_for_themselves(start: Start) -> None:
    async with start() as one, start() as other:
        await one.post("/mutate", named("a"))
        assert await one.count("mutate", "placed") == 1
        assert await other.count("mutate", "placed") == 0


async def test_the_latest_decisions_can_be_read_and_searched(caller: Caller) -> None:
    for name in ("web-1", "db", "web-2"):
        await caller.post("/mutate", named(name))

    async def names(query: str) -> list[str]:
        _, text = await caller.get(f"{caller.server.metrics_url}/debug/decisions{query}")
        return [one["pod"]["name"] for one in json.loads(text)]

    assert await names("") == ["web-2", "db", "web-1"]
    assert await names("?pod=shop/web") == ["web-2", "web-1"]
    assert await names("?limit=1") == ["web-2"]
    assert await names("?limit=0") == []


@pytest.mark.parametrize("limit", ["-1", "x", "1e3", "٣", "9" * 5000])
async def test_a_limit_that_is_no_number_is_refused(caller: Caller, limit: str) -> None:
    url = f"{caller.server.metrics_url}/debug/decisions"
    async with caller.session.get(url, params={"limit": limit}) as response:
        assert response.status == 400


async def test_the_server_does_not_say_what_it_is_made_of(caller: Caller) -> None:
    async with caller.session.get(f"{caller.server.url}/livez") as response:
        assert response.headers["Server"] == "stowplan"


async def test_a_review_above_seven_mebibytes_is_refused(caller: Caller) -> None:
    headers = {"Content-Type": "application/json"}
    url = f"{caller.server.url}/mutate"
    body = b" " * (8 * 1024 * 1024)
    async with caller.session.post(url, data=io.BytesIO(body), headers=headers) as response:
        assert response.status == 413
    body = json.dumps(REVIEW).encode() + body[: 6 * 1024 * 1024]
    async with caller.session.post(url, data=io.BytesIO(body), headers=headers) as response:
        assert response.status == 200


async def test_metrics_wait_for_their_turn_and_few_of_one_caller_do() -> None:
    limiter, has_begun, may_end = RenderLimiter(), asyncio.Event(), asyncio.Event()

    async def prepare() -> Callable[[], str]:
        has_begun.set()
        await may_end.wait()
        return lambda: "a page"

    app = web.Application()
    app.router.add_get("/metrics", metrics_page(CollectorRegistry(), limiter))
    async with TestClient(TestServer(app)) as client:
        page = asyncio.create_task(limiter.render("another", prepare))
        await has_begun.wait()
        answers = {asyncio.ensure_future(client.get("/metrics")) for _ in range(17)}
        (refused,), answers = await asyncio.wait(answers, return_when=asyncio.FIRST_COMPLETED)
        assert refused.result().status == 503
        may_end.set()
        assert await page == "a page"
        assert [(await answer).status for answer in answers] == [200] * 16
