from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from engine.model.hold import HOLD_GATE
from engine.model.time import Micros
from engine.release import HeldPod
from tests.fake_api_server import FakeApiServer, fake_api_server
from tests.webhook.controllers.release.holding import gates, hold
from webhook.cli.release import list_holds, release_holds
from webhook.cluster.client.connection import Connection, connected
from webhook.controllers.release.pod_writer import PodWriter

FOREIGN = "example.com/gate"


@pytest.fixture
async def server() -> AsyncIterator[FakeApiServer]:
    async with fake_api_server() as running:
        yield running


@pytest.fixture
async def connection(server: FakeApiServer, tmp_path: Path) -> AsyncIterator[Connection]:
    async with connected(server.kubeconfig(tmp_path), None) as opened:
        yield opened


async def _holds(connection: Connection) -> list[HeldPod]:
    found = await list_holds(connection, namespace="", hold_seconds=60, now=Micros(0))
    return list(found.values())


def _writer(connection: Connection) -> PodWriter:
    return PodWriter(connection, may_write=lambda: True)


async def _at_once(_: float) -> None:
    """Do not wait."""


async def test_of_many_pods_our_gate_is_removed_and_nothing_else(
    server: FakeApiServer, connection: Connection
) -> None:
    for number in range(120):
        hold(server, f"held-{number}", FOREIGN, HOLD_GATE)
    before = server.objects("pods")
    done: list[None] = []
    failures = await release_holds(
        _writer(connection), await _holds(connection), progress=lambda: done.append(None)
    )
    assert (failures, len(done)) == ({}, 120)
    for (namespace, name), pod in server.objects("pods").items():
        old = before[namespace, name]
        assert pod["spec"] == {**old["spec"], "schedulingGates": [{"name": FOREIGN}]}
        assert pod["metadata"]["annotations"] == old["metadata"]["annotations"]
    assert {one.method for one in server.requests} == {"GET", "PATCH"}


async def test_a_pod_whose_gates_moved_was_released_or_was_replaced_meanwhile_is_looked_at_again(
    server: FakeApiServer, connection: Connection
) -> None:
    for name in ("moved", "released", "deleted", "replaced"):
        hold(server, name, FOREIGN, HOLD_GATE)
    holds = await _holds(connection)
    for name, left in (("moved", [HOLD_GATE]), ("released", [FOREIGN])):
        pod = server.objects("pods")["shop", name]
        pod["spec"]["schedulingGates"] = [{"name": gate} for gate in left]
        server.replace({"apiVersion": "v1", "kind": "Pod", **pod})
    for name in ("deleted", "replaced"):
        server.delete("pods", "shop", name)
    hold(server, "replaced")
    assert await release_holds(_writer(connection), holds) == {}
    assert gates(server, "moved") == []
    assert gates(server, "released") == [FOREIGN]
    assert gates(server, "replaced") == [HOLD_GATE]  # another pod, which was not asked about


async def test_one_that_is_refused_keeps_no_other_waiting_and_is_told(
    server: FakeApiServer, connection: Connection
) -> None:
    for name in ("a", "b", "c"):
        hold(server, name)
    server.fail_next(100, 403, path_prefix="/api/v1/namespaces/shop/pods/b")
    holds = await _holds(connection)
    failures = await release_holds(_writer(connection), holds)
    (refused,) = (one for one in holds if one.pod.name == "b")
    assert failures == {refused.pod.uid: "failed by the test"}
    assert [gates(server, name) for name in "abc"] == [[], [HOLD_GATE], []]


async def test_a_busy_server_is_asked_again_a_few_times(
    server: FakeApiServer, connection: Connection
) -> None:
    hold(server, "a")
    hold(server, "b", namespace="lab")
    holds = await _holds(connection)
    server.fail_next(3, 500, path_prefix="/api/v1/namespaces/shop/pods/a")
    server.fail_next(100, 503, path_prefix="/api/v1/namespaces/lab/pods/b")
    failures = await release_holds(_writer(connection), holds, sleep=_at_once)
    assert list(failures.values()) == ["failed by the test"]
    assert gates(server, "a") == []
    assert gates(server, "b", "lab") == [HOLD_GATE]
