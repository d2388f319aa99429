"""The fake API server does what clients of a real one rely on."""

from __future__ import annotations

import asyncio
import json
import ssl
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import aiohttp
import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from tests.fake_api_server import FakeApiServer, fake_api_server
from tests.fake_api_server.resources import Key, resource_named
from tests.fake_api_server.store import Store

PODS_RESOURCE = resource_named("pods")
PODS = "/api/v1/namespaces/a/pods"


@pytest.fixture
async def server() -> AsyncIterator[FakeApiServer]:
    async with fake_api_server() as running:
        yield running


@pytest.fixture
async def client(server: FakeApiServer) -> AsyncIterator[aiohttp.ClientSession]:
    async with aiohttp.ClientSession(server.url) as session:
        yield session


def pod(
    name: str, *, node: str = "", phase: str = "Pending", namespace: str = "a"
) -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": namespace, "labels": {"app": name}},
        "spec": {"nodeName": node, "containers": []},
        "status": {"phase": phase},
    }


async def get(client: aiohttp.ClientSession, path: str, **query: str) -> tuple[int, dict[str, Any]]:
    async with client.get(path, params=query) as response:
        return response.status, await response.json()


async def event(stream: aiohttp.ClientResponse) -> tuple[str, dict[str, Any]]:
    line = json.loads(await stream.content.readline())
    return line["type"], line["object"]


def names(listed: dict[str, Any]) -> list[str]:
    return [item["metadata"]["name"] for item in listed["items"]]


async def test_pages_show_one_moment(server: FakeApiServer, client: aiohttp.ClientSession) -> None:
    for name in ("p1", "p2", "p3"):
        server.create(pod(name))
    _, first = await get(client, "/api/v1/pods", limit="2")
    server.delete("pods", "a", "p3")
    server.create(pod("p4"))
    token = first["metadata"]["continue"]
    _, second = await get(client, "/api/v1/pods", limit="2", **{"continue": token})
    assert (names(first), names(second)) == (["p1", "p2"], ["p3"])
    assert first["metadata"]["resourceVersion"] == second["metadata"]["resourceVersion"]
    assert first["metadata"]["remainingItemCount"] == 1
    assert "continue" not in second["metadata"]


@given(
    st.lists(
        st.tuples(st.sampled_from("abc"), st.sampled_from(["Running", "Failed", "gone"])),
        max_size=12,
    )
)
def test_every_version_can_be_listed_as_it_was(writes: list[tuple[str, str]]) -> None:
    store = Store([PODS_RESOURCE], history_limit=100)
    seen = {store.version: dict[Key, bytes]()}
    for name, phase in writes:
        key = Key("a", name)
        if phase != "gone":
            store.write(PODS_RESOURCE, key, pod(name, phase=phase))
        elif store.read(PODS_RESOURCE, key):
            store.remove(PODS_RESOURCE, key)
        seen[store.version] = dict(store.of(PODS_RESOURCE).objects)
    for version, objects in seen.items():
        assert store.of(PODS_RESOURCE).at(version) == sorted(objects.items())


async def test_version_zero_ignores_the_limit(
    server: FakeApiServer, client: aiohttp.ClientSession
) -> None:
    for name in ("p1", "p2", "p3"):
        server.create(pod(name))
    _, listed = await get(client, "/api/v1/pods", limit="2", resourceVersion="0")
    assert len(listed["items"]) == 3


async def test_an_expired_page_is_gone(
    server: FakeApiServer, client: aiohttp.ClientSession
) -> None:
    for name in ("p1", "p2", "p3"):
        server.create(pod(name))
    _, first = await get(client, PODS, limit="2")
    server.expire_continue()
    token = first["metadata"]["continue"]
    status, refusal = await get(client, PODS, limit="2", **{"continue": token})
    assert (status, refusal["kind"], refusal["reason"]) == (410, "Status", "Expired")
    remainder = refusal["metadata"]["continue"]
    _, rest = await get(client, PODS, **{"continue": remainder})
    assert names(rest) == ["p3"]


@pytest.mark.parametrize("in_stream", [True, False])
async def test_a_forgotten_version_is_gone(
    server: FakeApiServer, client: aiohttp.ClientSession, *, in_stream: bool
) -> None:
    old = server.create(pod("p1"))["metadata"]["resourceVersion"]
    server.create(pod("p2"))
    server.compact()
    server.faults.gone_in_stream = in_stream
    async with client.get(PODS, params={"watch": "true", "resourceVersion": old}) as stream:
        assert stream.status == (200 if in_stream else 410)
        body = await stream.json()
    status = body["object"] if in_stream else body
    assert (status["code"], status["reason"]) == (410, "Expired")


async def test_a_watch_follows_and_is_bookmarked(
    server: FakeApiServer, client: aiohttp.ClientSession
) -> None:
    server.create(pod("p1"))
    _, listed = await get(client, PODS)
    server.create(pod("p2"))
    query = {
        "watch": "true",
        "resourceVersion": listed["metadata"]["resourceVersion"],
        "allowWatchBookmarks": "true",
    }
    async with client.get(PODS, params=query) as stream:
        assert (await event(stream))[1]["metadata"]["name"] == "p2"
        server.create(pod("elsewhere", namespace="b"))
        server.delete("pods", "a", "p1")
        kind, obj = await event(stream)
        assert (kind, obj["metadata"]["name"]) == ("DELETED", "p1")
        assert obj["metadata"]["resourceVersion"] == str(server.version)
        server.send_bookmarks()
        kind, obj = await event(stream)
        assert (kind, obj["metadata"]["resourceVersion"]) == ("BOOKMARK", str(server.version))


async def test_a_watch_list_ends_in_a_bookmark(
    server: FakeApiServer, client: aiohttp.ClientSession
) -> None:
    server.create(pod("p1"))
    query = {
        "watch": "true",
        "sendInitialEvents": "true",
        "resourceVersionMatch": "NotOlderThan",
        "allowWatchBookmarks": "true",
    }
    async with client.get(PODS, params=query) as stream:
        assert (await event(stream))[0] == "ADDED"
        kind, obj = await event(stream)
        assert kind == "BOOKMARK"
        assert obj["metadata"]["annotations"] == {"k8s.io/initial-events-end": "true"}
        server.create(pod("p2"))
        assert (await event(stream))[1]["metadata"]["name"] == "p2"
    server.refuse_watch_list = 422
    status, refusal = await get(client, PODS, **query)
    assert (status, refusal["kind"]) == (422, "Status")


async def test_a_pod_that_leaves_the_selection_is_deleted(
    server: FakeApiServer, client: aiohttp.ClientSession
) -> None:
    stored = server.create(pod("p1", node="n1", phase="Running"))
    query = {
        "watch": "true",
        "fieldSelector": "status.phase!=Succeeded,status.phase!=Failed,spec.nodeName=n1",
        "resourceVersion": str(server.version),
    }
    async with client.get(PODS, params=query) as stream:
        server.replace({**stored, "status": {"phase": "Succeeded"}})
        assert (await event(stream))[0] == "DELETED"
    _, listed = await get(client, PODS, fieldSelector=query["fieldSelector"])
    assert listed["items"] == []


async def test_a_stale_write_is_a_conflict(
    server: FakeApiServer, client: aiohttp.ClientSession
) -> None:
    stored = server.create(pod("p1"))
    server.replace({**stored, "spec": {"nodeName": "n1", "containers": []}})
    async with client.put(f"{PODS}/p1", json=stored) as response:
        assert response.status == 409
        assert (await response.json())["reason"] == "Conflict"
    async with client.post(PODS, json=pod("p1")) as response:
        assert (response.status, (await response.json())["reason"]) == (409, "AlreadyExists")


async def test_status_is_written_apart(
    server: FakeApiServer, client: aiohttp.ClientSession
) -> None:
    server.create(pod("p1"))
    patch = {"metadata": {"labels": {"app": None}}, "status": {"phase": "Running"}}
    merge = {"Content-Type": "application/merge-patch+json"}
    async with client.patch(f"{PODS}/p1", json=patch, headers=merge) as response:
        patched = await response.json()
    assert "labels" not in patched["metadata"]  # an empty map is left out
    assert patched["status"] == {"phase": "Pending"}
    replace = [{"op": "replace", "path": "/status/phase", "value": "Running"}]
    json_patch = {"Content-Type": "application/json-patch+json"}
    async with client.patch(f"{PODS}/p1/status", json=replace, headers=json_patch) as response:
        assert (await response.json())["status"] == {"phase": "Running"}
    absent = [{"op": "test", "path": "/status/phase", "value": "Pending"}]
    async with client.patch(f"{PODS}/p1", json=absent, headers=json_patch) as response:
        assert response.status == 422


async def test_an_equal_write_and_a_dry_run_change_nothing(
    server: FakeApiServer, client: aiohttp.ClientSession
) -> None:
    stored = server.create(pod("p1"))
    async with client.put(f"{PODS}/p1", json=stored) as response:
        assert await response.json() == stored
    async with client.post(PODS, json=pod("p2"), params={"dryRun": "All"}) as response:
        assert response.status == 201
    async with client.delete(f"{PODS}/p1", params={"dryRun": "All"}) as response:
        assert response.status == 200
    assert set(server.objects("pods")) == {("a", "p1")}
    assert str(server.version) == stored["metadata"]["resourceVersion"]


async def test_an_api_comes_and_goes(server: FakeApiServer, client: aiohttp.ClientSession) -> None:
    path = "/apis/slo.koordinator.sh/v1alpha1/nodemetrics"
    async with client.get(path, params={"watch": "true"}) as stream:
        await server.until(lambda: server.watches("NodeMetric") == 1)
        server.uninstall("NodeMetric")
        assert await stream.content.read() == b""
    async with client.get(path) as response:
        assert response.status == 404
    server.install("NodeMetric")
    status, listed = await get(client, path)
    assert (status, listed["kind"], listed["items"]) == (200, "NodeMetricList", [])


async def test_faults_are_refusals_cuts_and_silence(
    server: FakeApiServer, client: aiohttp.ClientSession
) -> None:
    server.fail_next(1, 429, headers={"Retry-After": "7"}, path_prefix="/api/v1/pods")
    async with client.get("/api/v1/pods") as response:
        assert (response.status, response.headers["Retry-After"]) == (429, "7")
        assert (await response.json())["details"]["retryAfterSeconds"] == 7
    server.fail_next(1, 0)
    with pytest.raises(aiohttp.ClientConnectionError):
        await client.post("/api/v1/pods")
    server.cut_next_bodies()
    with pytest.raises(aiohttp.ClientPayloadError):
        await get(client, "/api/v1/pods")
    server.pause()
    waiting = asyncio.create_task(get(client, "/api/v1/pods"))
    await server.until(lambda: len(server.requests) == 4)
    server.create(pod("p1"))
    server.recover()
    _, listed = await waiting
    assert names(listed) == ["p1"]


@pytest.mark.parametrize("mid_event", [True, False])
async def test_a_watch_is_cut(
    server: FakeApiServer, client: aiohttp.ClientSession, *, mid_event: bool
) -> None:
    async with client.get(PODS, params={"watch": "true"}) as stream:
        await server.until(lambda: server.watches("pods") == 1)
        server.cut_watches("pods", mid_event=mid_event)
        with pytest.raises(aiohttp.ClientPayloadError):
            await stream.content.read()
    await server.until(lambda: not server.watches())


async def test_a_stream_ends_after_an_error_event(
    server: FakeApiServer, client: aiohttp.ClientSession
) -> None:
    async with client.get(PODS, params={"watch": "true"}) as stream:
        await server.until(lambda: server.watches("pods") == 1)
        server.send_in_stream_error(500)
        kind, status = await event(stream)
        assert (kind, status["kind"], status["code"]) == ("ERROR", "Status", 500)
        assert stream.content.at_eof() or await stream.content.read() == b""


async def test_large_answers_are_compressed_when_asked(
    server: FakeApiServer, client: aiohttp.ClientSession
) -> None:
    for number in range(500):
        server.create(pod(f"p{number:04}" + "x" * 200))
    async with client.get(PODS, headers={"Accept-Encoding": "gzip"}) as response:
        assert response.headers["Content-Encoding"] == "gzip"
        assert len((await response.json())["items"]) == 500
    async with client.get(PODS, headers={"Accept-Encoding": "identity"}) as response:
        assert "Content-Encoding" not in response.headers


async def test_a_pod_that_was_put_as_it_is_can_be_written_over(
    server: FakeApiServer, client: aiohttp.ClientSession
) -> None:
    put = pod("one")
    put["metadata"] |= {"uid": "u1", "creationTimestamp": "2026-01-01T00:00:00Z"}
    server.put_pod(json.dumps(put).encode())
    server.replace(pod("one", node="n1"))
    _, found = await get(client, f"{PODS}/one")
    assert found["spec"]["nodeName"] == "n1"
    assert found["metadata"]["generation"] == 2  # its spec has changed once


async def test_the_kubeconfig_and_the_token_open_the_door(tmp_path: Path) -> None:
    async with fake_api_server(tls=True) as server:
        server.token = "the-first"  # noqa: S105  # made up
        config = yaml.safe_load(server.kubeconfig(tmp_path).read_text())
        cluster = config["clusters"][0]["cluster"]
        token = config["users"][0]["user"]["token"]
        tls = ssl.create_default_context(cafile=cluster["certificate-authority"])
        headers = {"Authorization": f"Bearer {token}"}
        connector = aiohttp.TCPConnector(ssl=tls)
        async with aiohttp.ClientSession(
            cluster["server"], headers=headers, connector=connector
        ) as client:
            assert (await get(client, "/version"))[0] == 200
            server.token = "the-second"  # noqa: S105  # made up
            status, refusal = await get(client, "/version")
            assert (status, refusal["reason"]) == (401, "Unauthorized")
