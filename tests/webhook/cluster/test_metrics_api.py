from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, cast

import pytest

from engine.view import ClusterState
from tests.engine.measured_cluster import node, pod
from tests.fake_api_server import FakeApiServer, fake_api_server
from tests.webhook.cluster.polling import INTERVAL_SECONDS, NOW, Polling
from webhook.cluster.client.connection import Connection, connected
from webhook.cluster.usage import MetricsApi

MIB = 2**20


@pytest.fixture
async def server() -> AsyncIterator[FakeApiServer]:
    async with fake_api_server() as server:
        yield server


@pytest.fixture
async def connection(server: FakeApiServer, tmp_path: Path) -> AsyncIterator[Connection]:
    async with connected(server.kubeconfig(tmp_path), None) as connection:
        yield connection


def measured(name: str, cpu: str, at: str = "09:00:00", **fields: object) -> dict[str, Any]:
    return {
        "apiVersion": "metrics.k8s.io/v1beta1",
        "kind": "NodeMetrics",
        "metadata": {"name": name},
        "timestamp": f"2026-01-01T{at}Z",
        "window": "20s",
        "usage": {"cpu": cpu, "memory": "1Mi"},
        **fields,
    }


def measured_pod(name: str, cpu: str) -> dict[str, Any]:
    return {
        "apiVersion": "metrics.k8s.io/v1beta1",
        "kind": "PodMetrics",
        "metadata": {"namespace": "default", "name": name},
        "timestamp": "2026-01-01T09:00:00Z",
        "window": "20s",
        "containers": [{"name": "c", "usage": {"cpu": cpu}}],
    }


def polling(
    connection: Connection, *nodes: str, with_pods: bool = False, koordinator: tuple[str, ...] = ()
) -> Polling:
    """Return a poller for a cluster of these nodes."""
    state = ClusterState()
    for name in nodes:
        state.set_node(node(name, cpu="8"))
    source = MetricsApi(connection, state, with_pods=with_pods)
    return Polling(source, state, koordinator=koordinator)


async def test_nodes_have_the_usage_that_the_api_tells(
    server: FakeApiServer, connection: Connection
) -> None:
    server.create(measured("a", "1500000001n"))
    polled = polling(connection, "a")
    await polled.look()
    usage = polled.usages()["a"]
    assert usage.usage == {"cpu": 1501, "memory": MIB}
    assert usage.update_time == NOW  # of the sample
    assert usage.report_interval_seconds == 20
    assert not usage.pods_measured
    assert usage.aggregated == ()
    status = polled.status
    assert (status.present, status.synced, status.last_contact) == (True, True, NOW)
    assert (status.objects, status.events, status.last_error) == (1, 1, "")


async def test_samples_become_a_history(server: FakeApiServer, connection: Connection) -> None:
    server.create(measured("a", "4", "09:00:00"))
    polled = polling(connection, "a")
    await polled.look(
        lambda: server.replace(measured("a", "2", "09:01:40")),
        lambda: None,  # the same sample again
        lambda: server.replace(measured("a", "1", "09:03:20")),
    )
    usage = polled.usages()["a"]
    assert usage.usage == {"cpu": 1000, "memory": MIB}
    (window,) = usage.aggregated
    assert window.by_type["avg"]["cpu"] == 2333  # (4000 + 2000 + 1000) / 3
    assert window.by_type["p95"]["cpu"] == 4000
    assert usage.average == {"cpu": 2333, "memory": MIB}
    # Off by 1667, -333 and -1333: the mean of the squares is 1,555,556.
    assert usage.deviation == {"cpu": 1247, "memory": 0}
    assert polled.status.events == 3


async def test_looks_are_about_an_interval_apart(
    server: FakeApiServer, connection: Connection
) -> None:
    server.create(measured("a", "1"))
    polled = polling(connection, "a")
    await polled.look(*([lambda: None] * 9))
    assert all(1 <= pause / INTERVAL_SECONDS <= 1.1 for pause in polled.pauses)
    assert len(set(polled.pauses)) > 1


@pytest.mark.parametrize(
    ("status", "pause"),
    [
        (404, 60.0),
        # The API server answers so for a moment whenever metrics-server starts or is replaced.
        (503, INTERVAL_SECONDS),
    ],
)
async def test_an_api_that_is_not_there_is_tried_again_later(
    server: FakeApiServer, connection: Connection, status: int, pause: float
) -> None:
    server.create(measured("a", "1"))
    server.fail_next(1, status, path_prefix="/apis/metrics.k8s.io")
    polled = polling(connection, "a")
    await polled.look()
    assert not polled.status.present
    assert polled.status.last_error
    assert 1 <= polled.pauses[0] / pause <= 1.1
    await polled.look()
    assert polled.status.present
    assert polled.status.last_error == ""
    assert polled.usages().keys() == {"a"}


async def test_an_api_that_is_not_installed_may_come(
    server: FakeApiServer, connection: Connection
) -> None:
    server.uninstall("nodes.metrics.k8s.io")
    polled = polling(connection, "a")

    def arrive() -> None:
        server.install("nodes.metrics.k8s.io")
        server.create(measured("a", "1"))

    await polled.look(arrive)
    assert polled.status.present
    assert polled.usages().keys() == {"a"}


async def test_a_failure_leaves_the_usage_to_grow_old(
    server: FakeApiServer, connection: Connection
) -> None:
    server.create(measured("a", "1"))
    polled = polling(connection, "a")
    await polled.look(lambda: server.fail_next(1, 500))
    assert polled.status.present
    assert polled.status.last_error.startswith("/apis/metrics.k8s.io/v1beta1/nodes: ")
    assert polled.usages().keys() == {"a"}
    assert polled.pauses[-1] < 20


async def test_a_server_that_wants_peace_gets_it(
    server: FakeApiServer, connection: Connection
) -> None:
    server.fail_next(1, 429, headers={"Retry-After": "100"})
    polled = polling(connection)
    await polled.look()
    assert polled.pauses[0] >= 100


async def test_a_node_that_left_is_forgotten(server: FakeApiServer, connection: Connection) -> None:
    server.create(measured("a", "1"))
    server.create(measured("b", "1"))
    polled = polling(connection, "a", "b")

    def leave() -> None:
        server.delete("nodes.metrics.k8s.io", "", "a")
        server.delete("nodes.metrics.k8s.io", "", "b")
        polled.state.delete_node("a")

    await polled.look(leave)
    # No metrics of `b` may mean that its kubelet is down: its usage stays, and grows old.
    assert polled.usages().keys() == {"b"}
    assert list(polled.history) == ["b"]
    assert "a" not in polled.state.view().names


async def test_what_koordinator_measures_is_left_to_it(
    server: FakeApiServer, connection: Connection
) -> None:
    server.create(measured("a", "1"))
    server.create(measured("b", "1"))
    polled = polling(connection, "a", "b", koordinator=("a",))
    await polled.look(lambda: polled.by_koordinator.add("b"))
    assert polled.usages().keys() == {"b"}  # until NodeMetric's own usage takes its place
    assert list(polled.history) == []


async def test_usage_of_pods_is_read_where_asked_for(
    server: FakeApiServer, connection: Connection
) -> None:
    server.create(measured("a", "1"))
    for name, cpu in (("web", "400m"), ("elsewhere", "1")):
        server.create(measured_pod(name, cpu))
    polled = polling(connection, "a", with_pods=True)
    polled.state.set_pod(pod("web", "a"), seen_at=NOW)
    await polled.look()
    usage = polled.usages()["a"]
    assert {key: one.amounts for key, one in usage.pods.items()} == {"default/web": {"cpu": 400}}
    assert usage.pods_measured


@pytest.mark.parametrize(
    "fields",
    [
        {"usage": {"cpu": "much", "memory": "1Mi"}},
        {"usage": {"cpu": 1}},
        {"usage": None},
        {"timestamp": None},
        {"timestamp": "yesterday"},
        {"window": "soon"},
    ],
)
async def test_a_reading_with_a_mistake_spoils_no_other(
    server: FakeApiServer, connection: Connection, fields: dict[str, Any]
) -> None:
    server.create(measured("a", "1", **fields))
    server.create(measured("b", "1"))
    polled = polling(connection, "a", "b")
    await polled.look()
    assert polled.usages().keys() == {"b"}
    assert polled.status.last_error == ""


async def test_hundreds_of_nodes_are_taken_in_turns(
    server: FakeApiServer, connection: Connection
) -> None:
    names = [f"node-{i}" for i in range(230)]
    for name in names:
        server.create(measured(name, "1"))
    polled = polling(connection, *names)
    await polled.look()
    assert polled.usages().keys() == set(names)
    assert all(usage.update_time == NOW for usage in polled.usages().values())


class _Answering:
    """A connection that says the same to everything."""

    def __init__(self, body: bytes) -> None:
        self._body = body

    async def get(self, path: str, query: object = ()) -> bytes:  # noqa: ARG002 - see above
        return self._body


@pytest.mark.parametrize("body", [b"", b"[]", b'{"items":1}', b"\xff"])
async def test_an_answer_that_is_no_list_ends_nothing(body: bytes) -> None:
    state = ClusterState()
    polled = Polling(
        MetricsApi(cast("Connection", _Answering(body)), state, with_pods=False), state
    )
    await polled.look(lambda: None)
    assert "not a list of metrics" in polled.status.last_error
    assert len(polled.pauses) == 2
