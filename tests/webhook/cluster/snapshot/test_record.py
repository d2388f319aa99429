from __future__ import annotations

import json
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from engine.model.kubernetes_version import ASSUMED, KubernetesVersion
from engine.view import ClusterView
from tests.engine.view_facts import facts
from tests.fake_api_server import FakeApiServer, fake_api_server
from tests.webhook.cluster.recording import (
    CLUSTER,
    PLURALS,
    fill,
    node,
    obj,
    pod,
    snapshot_of,
    state_of,
)
from webhook.cluster import load_recorded
from webhook.cluster.client.connection import ApiError
from webhook.cluster.snapshot.anonymous import Anonymizer
from webhook.cluster.snapshot.record import SnapshotError

UNREAD = ["a-copy-of-it-all", "a-manager", "hunter2", "PASSWORD", "a-machine", "a-note", '"done"']


@pytest.fixture
async def server() -> AsyncIterator[FakeApiServer]:
    async with fake_api_server(without=()) as running:
        yield running


def recorded(path: Path) -> ClusterView:
    recording = load_recorded([path])
    assert recording.problems == ()
    assert not recording.skipped
    return recording.state.view()


def objects_in(path: Path) -> list[dict[str, Any]]:
    items: list[dict[str, Any]] = json.loads(path.read_bytes())["items"]
    return items


def without_copies(view: ClusterView) -> dict[str, Any]:
    """Return what a view says, but for the annotations of nodes that no snapshot keeps."""
    told: dict[str, Any] = facts(view)
    for one in told["nodes"].values():
        if one["node"] is not None:
            kept = {k: v for k, v in one["node"].annotations.items() if "last-applied" not in k}
            one["node"] = replace(one["node"], annotations=kept)
    return told


async def test_a_snapshot_loads_as_the_cluster_that_it_is_of(
    server: FakeApiServer, tmp_path: Path
) -> None:
    fill(server)
    path, _ = await snapshot_of(server, tmp_path)
    assert without_copies(recorded(path)) == without_copies(state_of(server).view())
    view = recorded(path)
    assert view.nodes[view.rows["gamma-node"]] is not None
    assert view.assumed[view.rows["beta-node"]] == 1  # pod `waiting` was advised to go there


async def test_the_api_server_is_only_read_from_and_in_pages(
    server: FakeApiServer, tmp_path: Path
) -> None:
    fill(server)
    await snapshot_of(server, tmp_path)
    assert {request.method for request in server.requests} == {"GET"}
    lists = [request for request in server.requests if request.path != "/version"]
    assert {request.query.get("limit") for request in lists} == {"2"}


async def test_what_no_rule_reads_is_not_in_the_file(server: FakeApiServer, tmp_path: Path) -> None:
    fill(server)
    path, taken = await snapshot_of(server, tmp_path)
    text = path.read_text()
    assert [found for found in UNREAD if found in text] == []
    assert (taken["pods"].objects, taken["pods"].finished) == (5, 1)


async def test_an_object_stands_on_a_line_of_its_own(server: FakeApiServer, tmp_path: Path) -> None:
    fill(server)
    path, _ = await snapshot_of(server, tmp_path)
    first, *lines, last = path.read_text().splitlines()
    assert (first, last) == ('{"apiVersion":"v1","kind":"List","items":[', "]}")
    assert [json.loads(line.removesuffix(",")) for line in lines] == objects_in(path)
    assert len(lines) == len(CLUSTER)  # without the pod that has finished, with the version


async def test_a_snapshot_counts_by_the_version_of_its_cluster(
    server: FakeApiServer, tmp_path: Path
) -> None:
    fill(server)
    path, _ = await snapshot_of(server, tmp_path)
    assert recorded(path).kubernetes == KubernetesVersion(1, 35)
    server.play("GET", "/version", lambda _: {"gitVersion": "v1.37.2+acme1"})
    path, _ = await snapshot_of(server, tmp_path)
    assert recorded(path).kubernetes == KubernetesVersion(1, 37)
    assert "v1.37.2+acme1" in path.read_text()
    path, _ = await snapshot_of(server, tmp_path, anonymizer=Anonymizer())
    assert recorded(path).kubernetes == KubernetesVersion(1, 37)
    assert "acme1" not in path.read_text()  # who built it is not told


def test_a_recording_without_a_version_is_of_the_assumed_one(tmp_path: Path) -> None:
    path = tmp_path / "cluster.json"
    path.write_text(json.dumps({"apiVersion": "v1", "kind": "List", "items": [node("alpha")]}))
    assert recorded(path).kubernetes == ASSUMED


async def test_progress_is_told_kind_by_kind_with_what_is_to_come(
    server: FakeApiServer, tmp_path: Path
) -> None:
    fill(server)
    told: list[tuple[str, int, int | None]] = []
    await snapshot_of(server, tmp_path, progress=lambda *one: told.append(one))
    assert [one for one in told if one[0] == "pods"] == [
        ("pods", 2, 6),
        ("pods", 4, 6),
        ("pods", 6, 6),
    ]
    assert [name for name, done, total in told if done == total] == list(PLURALS)


async def test_a_list_that_expired_on_the_way_is_read_again_from_its_beginning(
    server: FakeApiServer, tmp_path: Path
) -> None:
    fill(server)
    expired: list[int] = []

    def expire(kind: str, done: int, _total: int | None) -> None:
        if kind == "pods" and done == 4 and not expired:
            expired.append(done)
            server.delete("pods", "shop", "web-one")  # which is in the file by now
            server.expire_continue()

    path, taken = await snapshot_of(server, tmp_path, progress=expire)
    assert expired
    pods = [one["metadata"]["name"] for one in objects_in(path) if one["kind"] == "Pod"]
    assert pods == ["waiting", "web-four", "web-three", "web-two"]
    assert taken["pods"].objects == 4
    assert without_copies(recorded(path)) == without_copies(state_of(server).view())


async def test_a_list_that_expires_for_ever_is_given_up(
    server: FakeApiServer, tmp_path: Path
) -> None:
    fill(server)
    with pytest.raises(SnapshotError, match="continue token is too old"):
        await snapshot_of(server, tmp_path, progress=lambda *_: server.expire_continue())


@pytest.mark.parametrize("status", [0, 429, 500, 503])
async def test_what_passes_is_tried_again(
    server: FakeApiServer, tmp_path: Path, status: int
) -> None:
    fill(server)
    server.fail_next(3, status, path_prefix="/api/v1/pods")
    path, taken = await snapshot_of(server, tmp_path)
    assert taken["pods"].error is None
    assert without_copies(recorded(path)) == without_copies(state_of(server).view())


async def test_a_server_that_was_never_there_is_not_waited_for(tmp_path: Path) -> None:
    async with fake_api_server() as server:
        pass
    waits: list[float] = []

    async def sleep(seconds: float) -> None:
        waits.append(seconds)

    with pytest.raises(SnapshotError) as caught:
        await snapshot_of(server, tmp_path, sleep=sleep)
    assert waits == []
    assert caught.value.error.status == 0


async def test_what_is_absent_or_forbidden_is_told_and_the_rest_written(
    server: FakeApiServer, tmp_path: Path
) -> None:
    fill(server)
    server.uninstall("nodemetrics.slo.koordinator.sh")
    server.fail_next(1, 403, path_prefix="/api/v1/namespaces")
    server.fail_next(5, 503, path_prefix="/apis/metrics.k8s.io/v1beta1/pods")
    path, taken = await snapshot_of(server, tmp_path)
    errors = {name: one.error.status for name, one in taken.items() if one.error}
    assert {name: status for name, status in errors.items() if name in PLURALS} == {
        "namespaces": 403,
        "nodemetrics.slo.koordinator.sh": 404,
        "pods.metrics.k8s.io": 503,
    }
    assert load_recorded([path]).loaded == {
        "Node": 3,
        "Pod": 5,
        "ElasticQuota": 1,
        "NodeMetrics": 1,
    }


async def test_a_kind_that_fails_halfway_leaves_nothing_of_it(
    server: FakeApiServer, tmp_path: Path
) -> None:
    fill(server)
    fill(server, [obj("Namespace", name) for name in ("third", "fourth", "fifth")])

    def forbid(kind: str, done: int, _total: int | None) -> None:
        if kind == "namespaces" and done == 2:
            server.fail_next(1, 403, path_prefix="/api/v1/namespaces")

    path, taken = await snapshot_of(server, tmp_path, progress=forbid)
    assert taken["namespaces"].error is not None
    assert taken["namespaces"].objects == 0
    assert "Namespace" not in load_recorded([path]).loaded


@pytest.mark.parametrize("kind", ["nodes", "pods"])
async def test_without_nodes_or_pods_there_is_no_snapshot(
    server: FakeApiServer, tmp_path: Path, kind: str
) -> None:
    fill(server)
    server.fail_next(1, 403, path_prefix=f"/api/v1/{kind}")
    with pytest.raises(SnapshotError) as caught:
        await snapshot_of(server, tmp_path)
    assert (caught.value.kind, caught.value.error.status) == (kind, 403)
    assert not any(tmp_path.glob("*cluster.json*"))  # noqa: ASYNC240 - nothing else runs


async def test_an_object_that_cannot_be_read_is_left_out_and_told(
    server: FakeApiServer, tmp_path: Path
) -> None:
    fill(server, [node("good"), pod("web", "good")])
    fill(server, [obj("ElasticQuota", "odd", "shop", spec={"max": "lots"})])
    path, taken = await snapshot_of(server, tmp_path)
    odd = taken["elasticquotas.scheduling.x-k8s.io"]
    assert (odd.objects, odd.unreadable) == (0, 1)
    (problem,) = odd.problems
    assert str(problem) == (
        "elasticquotas.scheduling.x-k8s.io: spec.max: expected an object, got a text\n"
        "hint: ElasticQuota `shop/odd` is left out"
    )
    assert load_recorded([path]).loaded == {"Node": 1, "Pod": 1}


async def test_credentials_that_are_not_accepted_end_it(
    server: FakeApiServer, tmp_path: Path
) -> None:
    fill(server)
    server.fail_next(9, 401, path_prefix="/api/v1/namespaces")
    with pytest.raises(SnapshotError) as caught:
        await snapshot_of(server, tmp_path)
    assert isinstance(caught.value.__cause__, ApiError)
    assert caught.value.error.status == 401
