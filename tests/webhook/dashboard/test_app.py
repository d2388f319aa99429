from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import msgspec
import pytest

from engine.model import api
from engine.model.elastic_quota import quota_of
from engine.model.pod import pod_of
from engine.model.time import Micros
from engine.view import ClusterState
from tests.webhook.dashboard.serving import NOW, Client, Tokens, served, source
from webhook.cluster import RecordedPods
from webhook.cluster.watch.source_status import SourceStatus
from webhook.dashboard import Anybody, TokenOfThisStart
from webhook.placement.held_pods import HeldPods

PAGES = ("nodes", "pod", "quotas", "queue", "policies")
GATE = [{"name": "stowplan.dev/hold"}]
ZONE = {"topology.kubernetes.io/zone": "zone-1"}


def manifest(namespace: str, name: str, **spec: object) -> dict[str, Any]:
    limits = {"cpu": "1", "memory": "1Gi"}
    containers = [{"name": "main", "resources": {"limits": limits, "requests": limits}}]
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"namespace": namespace, "name": name, "uid": f"{namespace}-{name}"},
        "spec": {"containers": containers, **spec},
    }


@pytest.fixture
async def client(state: ClusterState, policies: Path) -> AsyncIterator[Client]:
    """A dashboard of a cluster with pods and quotas of two tenants."""
    held, pods = HeldPods(lambda: NOW), RecordedPods()
    for namespace in ("shop", "bank"):
        state.set_namespace(namespace, {"kubernetes.io/metadata.name": namespace})
        for wire in (
            manifest(namespace, f"{namespace}-web", nodeName="node-a"),
            manifest(namespace, f"{namespace}-waits", schedulingGates=GATE, nodeSelector=ZONE),
        ):
            raw = msgspec.json.encode(wire)
            pod = pod_of(msgspec.json.decode(raw, type=api.Pod))
            state.set_pod(pod, seen_at=NOW)
            for observer in (held, pods):
                observer.pod_changed(pod, 1, raw)
    bank = api.ElasticQuota(
        api_version="scheduling.x-k8s.io/v1alpha1",
        metadata=api.ObjectMeta(namespace="bank", name="vault"),
        spec=api.ElasticQuotaSpec(max={"pods": "9"}),
    )
    state.set_quota(quota_of(bank))
    async with served(source(state, policies, held=held, pods=pods), Tokens()) as client:
        yield client


async def get(client: Client, path: str, token: str = "") -> tuple[int, str]:
    headers = {"Authorization": f"Bearer {token}"} if token else {}
    async with client.get(f"/dashboard/{path}", headers=headers, allow_redirects=False) as response:
        return response.status, await response.text()


@pytest.mark.parametrize("path", [*PAGES, *(f"data/{page}" for page in PAGES), "events", ""])
async def test_without_a_token_nothing_is_shown(client: Client, path: str) -> None:
    for token in ("", "forged"):
        status, text = await get(client, path, token)
        assert status == 401
        assert "node-a" not in text
        assert "shop-web" not in text


@pytest.mark.parametrize("page", PAGES)
async def test_an_operator_reads_every_page_and_its_update(client: Client, page: str) -> None:
    status, text = await get(client, page, "operator")
    assert (status, text.startswith("<!doctype html>")) == (200, True)
    status, text = await get(client, f"data/{page}", "operator")
    assert (status, set(json.loads(text))) == (200, {"name", "title", "body", "figures"})


@pytest.mark.parametrize(
    ("path", "status"),
    [
        ("nodes", 403),
        ("policies", 403),
        ("data/nodes", 403),
        ("quotas", 403),
        ("quotas?namespace=shop", 200),
        ("quotas?namespace=bank", 403),
        ("data/quotas?namespace=bank", 403),
        ("queue", 403),
        ("queue?namespace=shop", 200),
        ("data/queue?namespace=bank", 403),
        ("pod", 200),
        ("pod?namespace=shop&name=shop-web", 200),
        ("pod?namespace=bank&name=bank-web", 403),
        ("pod?namespace=bank&name=none", 403),
        ("data/pod?namespace=bank&name=bank-web", 403),
    ],
)
async def test_a_tenant_reads_what_it_may_list_alone(
    client: Client, path: str, status: int
) -> None:
    found, text = await get(client, path, "tenant")
    assert found == status
    for secret in ("bank-web", "bank-waits", "vault"):
        assert secret not in text.replace("name=bank-web", "")


async def test_a_tenant_reads_of_its_pod_without_what_is_known_of_single_nodes(
    client: Client,
) -> None:
    path = "data/pod?namespace=shop&name=shop-waits"
    _, of_operator = await get(client, path, "operator")
    _, of_tenant = await get(client, path, "tenant")
    # The best ones are noted on the pod too; `node-c` is in another zone.
    assert "node-c" in of_operator
    assert "node-c" not in of_tenant
    assert "NodeAffinity" in of_tenant


async def test_a_node_that_is_asked_about_is_told_of_to_those_who_may_read_nodes(
    client: Client,
) -> None:
    path = "data/pod?namespace=shop&name=shop-waits&node=node-c"
    _, of_operator = await get(client, path, "operator")
    _, of_tenant = await get(client, path, "tenant")
    assert "was rejected" in of_operator
    assert "was rejected" not in of_tenant


async def test_the_navigation_has_the_pages_that_a_reader_may_open(client: Client) -> None:
    _, text = await get(client, "pod", "tenant")
    assert 'href="nodes' not in text
    assert 'href="quotas' in text
    async with client.get(
        "/dashboard/", headers={"Authorization": "Bearer tenant"}, allow_redirects=False
    ) as response:
        assert (response.status, response.headers["Location"]) == (303, "pod")


async def test_a_token_given_in_the_form_is_kept_where_no_script_reads_it(
    client: Client,
) -> None:
    async with client.post("/dashboard/sign-in", data={"token": "forged"}) as response:
        assert response.status == 401
        assert "Set-Cookie" not in response.headers
    async with client.post(
        "/dashboard/sign-in", data={"token": " operator\n"}, allow_redirects=False
    ) as response:
        assert (response.status, response.headers["Location"]) == (303, "./")
        cookie = response.headers["Set-Cookie"]
    assert "HttpOnly" in cookie
    assert "SameSite=Lax" in cookie
    assert (await get(client, "nodes"))[0] == 200
    async with client.post("/dashboard/sign-out", allow_redirects=False) as response:
        assert response.status == 303
    assert (await get(client, "nodes"))[0] == 401


@pytest.mark.parametrize("form", ["sign-in", "sign-out"])
async def test_a_form_of_another_site_is_refused(client: Client, form: str) -> None:
    headers = {"Sec-Fetch-Site": "cross-site"}
    path = f"/dashboard/{form}"
    async with client.post(path, data={"token": "operator"}, headers=headers) as response:
        assert response.status == 403
        assert "Set-Cookie" not in response.headers


@pytest.mark.parametrize(
    "path", ["nodes", "data/nodes", "none", "assets/none", "pod?namespace=shop&name=none"]
)
async def test_every_answer_is_kept_from_other_sites_and_caches(client: Client, path: str) -> None:
    for token in ("operator", "forged"):
        headers = {"Authorization": f"Bearer {token}"}
        async with client.get(f"/dashboard/{path}", headers=headers) as response:
            policy = response.headers["Content-Security-Policy"]
            assert "default-src 'none'" in policy
            assert "unsafe" not in policy
            assert "frame-ancestors 'none'" in policy
            assert response.headers["X-Content-Type-Options"] == "nosniff"
            assert response.headers["Cache-Control"] == "no-store"


@pytest.mark.parametrize(
    ("path", "problem"),
    [
        ("none", "no such page"),
        ("assets/none", "no such file"),
        ("pod?namespace=shop&name=%3Cb%3E", "There is no pod <code>shop/&lt;b&gt;</code>"),
    ],
)
async def test_what_is_not_there_is_named(client: Client, path: str, problem: str) -> None:
    status, text = await get(client, path, "operator")
    assert status == 404
    assert problem in text


@pytest.mark.parametrize(
    ("path", "instead"),
    [
        ("pod?namespace=shop&name=other", '<a href="pod?namespace=shop">Pods of shop</a>'),
        ("node?name=other", '<a href="nodes">All nodes</a>'),
        ("policy?name=other", '<a href="policies">All policies</a>'),
    ],
)
async def test_what_is_not_there_leads_to_what_is(client: Client, path: str, instead: str) -> None:
    _, text = await get(client, path, "operator")
    assert instead in text


async def test_files_are_for_everybody_and_for_ever(client: Client) -> None:
    _, text = await get(client, "nodes", "operator")
    names = [part.partition('"')[0] for part in text.split('"assets/')[1:]]
    assert len(names) == 3  # the plots, our script and our styles
    for name in names:
        async with client.get(f"/dashboard/assets/{name}") as response:
            assert response.status == 200
            assert "immutable" in response.headers["Cache-Control"]
            assert response.headers["Content-Encoding"] == "gzip"
            assert await response.read()


async def test_a_recording_needs_no_token(state: ClusterState, policies: Path) -> None:
    shown = source(state, policies, is_live=False)
    async with served(shown, Anybody()) as client:
        assert (await get(client, "nodes"))[0] == 200
        status, text = await get(client, "queue")
        assert (status, "never held" in text) == (404, True)


async def test_the_token_in_the_url_is_kept_in_a_cookie(state: ClusterState) -> None:
    readers = TokenOfThisStart()
    async with served(source(state), readers) as client:
        status, text = await get(client, "nodes")
        assert status == 401
        assert "that <code>stowplan dashboard</code> printed: it has the token" in text
        assert (await get(client, "?token=forged"))[0] == 401
        assert (await get(client, f"?token={readers.token}"))[0] == 303
        assert (await get(client, "nodes"))[0] == 200


async def test_an_event_says_that_the_cluster_has_changed(
    client: Client, state: ClusterState
) -> None:
    headers = {"Authorization": "Bearer tenant"}
    async with client.get("/dashboard/events", headers=headers) as response:
        assert response.headers["Content-Type"] == "text/event-stream"
        wire = msgspec.convert(manifest("shop", "new"), api.Pod)
        before = state.version
        state.set_pod(pod_of(wire), seen_at=Micros(NOW))
        line = await response.content.readline()
        assert int(line.removeprefix(b"data: ")) > before


async def test_a_reader_who_holds_many_streams_leaves_as_many_to_others(client: Client) -> None:
    async with AsyncExitStack() as stack:

        async def listen(token: str) -> int:
            headers = {"Authorization": f"Bearer {token}"}
            stream = client.get("/dashboard/events", headers=headers)
            return (await stack.enter_async_context(stream)).status

        answers = [await listen("tenant") for _ in range(20)]
        assert answers == [200] * 16 + [503] * 4
        assert await listen("operator") == 200


async def test_pages_wait_until_the_cluster_is_read_and_come_by_an_update(
    state: ClusterState, policies: Path
) -> None:
    pods = SourceStatus(name="pods", domain=None, required=True)
    shown = source(state, policies, sources={"pods": pods})
    async with served(shown, Tokens()) as client:
        status, text = await get(client, "nodes", "operator")
        assert (status, "still being read: pods" in text, "node-a" in text) == (200, True, False)
        assert (await get(client, "nodes"))[0] == 401

        pods.synced = True
        _, text = await get(client, "data/nodes", "operator")
        assert json.loads(text)["name"] == "nodes"
        assert "node-a" in text
