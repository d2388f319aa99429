from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer

from engine.model.time import SECOND
from engine.view import ClusterState
from tests.engine.measured_cluster import node
from tests.webhook.cluster.polling import NOW, Polling
from webhook.cluster.usage import DEFAULT_CPU_QUERY, PrometheusSettings, prometheus

MIB = 2**20


def vector(values: dict[str, str], second: float, label: str) -> dict[str, Any]:
    """Return an answer: values by node."""
    result = [{"metric": {label: name}, "value": [second, text]} for name, text in values.items()]
    return {"status": "success", "data": {"resultType": "vector", "result": result}}


class FakePrometheus:
    """Answers two queries about nodes, and remembers what it was asked.

    Attributes:
        cores: of cpu by node, at a second.
        label: holds the name of the node.
        instead: a status and a text that take the place of all answers.
    """

    def __init__(self) -> None:
        self.now = NOW / SECOND
        self.cores: Callable[[float], dict[str, str]] = lambda _: {"a": "1.5", "b": "0.25"}
        self.memory = {"a": str(MIB), "b": "1.5e+06"}
        self.label = "node"
        self.instead: tuple[int, str] | None = None
        self.asked: list[dict[str, str]] = []
        self.tokens: list[str | None] = []

    async def query(self, request: web.Request) -> web.Response:
        form = {key: str(value) for key, value in (await request.post()).items()}
        self.asked.append(form)
        self.tokens.append(request.headers.get("Authorization"))
        if self.instead is not None:
            status, text = self.instead
            return web.Response(status=status, text=text)
        at = float(form.get("time", self.now))
        is_cpu = form["query"] == DEFAULT_CPU_QUERY
        values = self.cores(at) if is_cpu else self.memory
        return web.json_response(vector(values, at, self.label))


@pytest.fixture
async def server() -> AsyncIterator[tuple[FakePrometheus, str]]:
    fake = FakePrometheus()
    app = web.Application()
    app.router.add_post("/prefix/api/v1/query", fake.query)
    async with TestServer(app) as running:
        yield fake, str(running.make_url("/prefix/"))


@asynccontextmanager
async def polling(url: str, **settings: Any) -> AsyncIterator[Polling]:  # noqa: ANN401 - any setting
    state = ClusterState()
    for name in ("a", "b"):
        state.set_node(node(name, cpu="8"))
    async with prometheus(PrometheusSettings(url=url, **settings), now=lambda: NOW) as source:
        yield Polling(source, state)


async def test_nodes_have_the_usage_that_queries_give(
    server: tuple[FakePrometheus, str],
) -> None:
    async with polling(server[1]) as polled:
        await polled.look()
    found = polled.usages()
    assert found["a"].usage == {"cpu": 1500, "memory": MIB}
    assert found["b"].usage == {"cpu": 250, "memory": 1_500_000}
    assert found["a"].update_time == NOW
    assert found["a"].report_interval_seconds == 120
    assert not found["a"].pods_measured
    assert polled.status.synced


async def test_a_history_begins_with_what_the_server_remembers(
    server: tuple[FakePrometheus, str],
) -> None:
    fake, url = server
    # 8 cores until five minutes ago, 1 since then.
    fake.cores = lambda at: {"a": "8" if at <= fake.now - 300 else "1"}
    async with polling(url) as polled:
        await polled.look()
        asked = len(fake.asked)
        await polled.look()
    usage = polled.usages()["a"]
    assert usage.usage == {"cpu": 1000, "memory": MIB}
    p95 = {window.duration_ns // 10**9: window.by_type["p95"]["cpu"] for window in usage.aggregated}
    assert p95 == {300: 1000, 600: 8000, 1800: 8000}
    # Two queries for each of 30 minutes and for now; the second look is of now alone.
    assert asked == 62
    assert len(fake.asked) == 64


async def test_the_past_is_asked_for_until_it_is_told(server: tuple[FakePrometheus, str]) -> None:
    fake, url = server
    fake.instead = (503, "")
    async with polling(url) as polled:
        await polled.look(lambda: setattr(fake, "instead", None))
    assert "503" not in polled.status.last_error
    assert polled.usages()["a"].aggregated


async def test_only_nodes_with_both_values_count(server: tuple[FakePrometheus, str]) -> None:
    fake, url = server
    fake.cores = lambda _: {"a": "1", "b": "NaN", "c": "+Inf", "d": "-1", "e": "1", "f": "x"}
    fake.memory = dict.fromkeys("abcdf", "1")
    async with polling(url) as polled:
        await polled.look()
    assert polled.usages().keys() == {"a"}
    assert polled.status.skipped == 4 * 31  # b, c, d and f, in each look


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        ((400, '{"status":"error","error":"parse error"}'), "parse error"),
        ((422, '{"status":"error"}'), "422"),
        ((502, "<html>bad gateway</html>"), "502"),
        ((200, "<html>log in</html>"), "not a vector"),
        (
            (200, '{"status":"success","data":{"resultType":"scalar","result":[1,"2"]}}'),
            "not a vector",
        ),
        ((200, json.dumps(vector({}, 0, "node"))), "by the label `node`"),
        ((200, json.dumps(vector({"a": "1"}, 0, "instance"))), "by the label `node`"),
    ],
)
async def test_an_answer_that_cannot_be_used_is_told(
    server: tuple[FakePrometheus, str], answer: tuple[int, str], said: str
) -> None:
    fake, url = server
    fake.instead = answer
    async with polling(url) as polled:
        await polled.look(lambda: None)
    assert said in polled.status.last_error
    assert polled.usages() == {}
    assert len(polled.pauses) == 2


async def test_another_label_may_hold_the_name(server: tuple[FakePrometheus, str]) -> None:
    fake, url = server
    fake.label = "nodename"
    async with polling(url, node_label="nodename") as polled:
        await polled.look()
    assert polled.usages().keys() == {"a", "b"}


async def test_nobody_there_is_told() -> None:
    async with polling("http://127.0.0.1:9") as polled:  # the port of discard, where nobody listens
        await polled.look(lambda: None)
    assert "127.0.0.1:9" in polled.status.last_error
    assert len(polled.pauses) == 2


@pytest.mark.parametrize("cores", ["-1", "NaN", "+Inf", "1e300", "much", ""])
async def test_garbage_about_one_node_spoils_no_other(
    server: tuple[FakePrometheus, str], cores: str
) -> None:
    fake, url = server
    fake.cores = lambda _: {"a": cores, "b": "1"}
    async with polling(url) as polled:
        await polled.look()
        assert polled.status.last_error == ""
        assert polled.usages().keys() == {"b"}


@pytest.mark.parametrize("second", [1e300, -1e300, 2.0**60])
async def test_a_value_of_no_time_is_left_out(
    server: tuple[FakePrometheus, str], second: float
) -> None:
    fake, url = server
    fake.instead = 200, json.dumps(vector({"a": "1"}, second, "node"))
    async with polling(url) as polled:
        await polled.look()
        assert "no node is in both results" in polled.status.last_error


async def test_a_server_that_never_answers_is_given_up() -> None:
    released = asyncio.Event()

    async def hang(_: web.Request) -> web.Response:
        await released.wait()
        return web.Response()

    app = web.Application()
    app.router.add_post("/api/v1/query", hang)
    async with TestServer(app) as running:
        async with polling(str(running.make_url("/")), timeout_seconds=0.05) as polled:
            await polled.look(lambda: None)
            assert "no answer in time" in polled.status.last_error
            assert len(polled.pauses) == 2
        released.set()


async def test_a_token_is_read_again_for_each_query(
    server: tuple[FakePrometheus, str], tmp_path: Path
) -> None:
    fake, url = server
    token = tmp_path / "token"
    token.write_text("first\n")
    async with polling(url, token_file=token) as polled:
        await polled.look(lambda: token.write_text("second\n"), token.unlink)
    assert set(fake.tokens[:-2]) == {"Bearer first"}
    assert set(fake.tokens[-2:]) == {"Bearer second"}
    assert "token" in polled.status.last_error
