from __future__ import annotations

import asyncio
import json
import ssl
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from tests.counted_calls import counted_calls
from tests.fake_api_server import FakeApiServer, fake_api_server
from tests.patience import PATIENCE_SECONDS
from tests.webhook.cluster.reflecting import eventually
from tests.webhook.conftest import Caller, local_settings
from webhook.cluster.client.credentials import NoKubeconfigError
from webhook.placement.live_policies import WarmUp
from webhook.serving.composition import run_server

LEAST_LIMITS = """
apiVersion: stowplan.dev/v1alpha1
kind: PlacementPolicy
metadata: {name: least-limits}
spec:
  scores:
    - name: limits
      plugin: LimitAware
      args:
        defaultLimitToAllocatableRatio: {cpu: "100%", memory: "100%"}
"""


def node(name: str, *, cpu: str = "8") -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, "labels": {"kubernetes.io/hostname": name}},
        "status": {"allocatable": {"cpu": cpu, "memory": "32Gi", "pods": "110"}},
    }


def pod(name: str, *, node_name: str = "") -> dict[str, Any]:
    limits = {"cpu": "1", "memory": "1Gi"}
    containers = [{"name": "main", "image": "main:1", "resources": {"limits": limits}}]
    spec: dict[str, Any] = {"containers": containers, "schedulerName": "default-scheduler"}
    if node_name:
        spec["nodeName"] = node_name
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"namespace": "shop", "name": name},
        "spec": spec,
    }


def review(uid: str) -> dict[str, Any]:
    return {
        "apiVersion": "admission.k8s.io/v1",
        "kind": "AdmissionReview",
        "request": {
            "uid": uid,
            "operation": "CREATE",
            "kind": {"group": "", "version": "v1", "kind": "Pod"},
            "resource": {"group": "", "version": "v1", "resource": "pods"},
            "namespace": "shop",
            "object": pod(f"new-{uid}"),
        },
    }


@pytest.fixture
async def api_server() -> AsyncIterator[FakeApiServer]:
    async with fake_api_server(tls=True) as server:
        server.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "shop"}})
        authenticated = {"status": {"authenticated": True}}
        server.play("POST", "/apis/authentication.k8s.io/v1/tokenreviews", lambda _: authenticated)
        allowed = {"status": {"allowed": True}}
        reviews = "/apis/authorization.k8s.io/v1/subjectaccessreviews"
        server.play("POST", reviews, lambda _: allowed)
        yield server


@asynccontextmanager
async def replica(server: FakeApiServer, tmp_path: Path, **given: object) -> AsyncIterator[Caller]:
    """A webhook on the cluster of a server, once it knows all of it, and a client for it."""
    policy = tmp_path / "policy.yaml"
    policy.write_text(LEAST_LIMITS)
    usual = {"policies": [policy], "policy_resources": True}
    settings = local_settings(kubeconfig=server.kubeconfig(tmp_path), **{**usual, **given})
    async with AsyncExitStack() as stack:
        webhook = await stack.enter_async_context(run_server(settings))
        await webhook.cluster.synced()
        trust = ssl.create_default_context(cadata=webhook.ca_pem.decode())
        connector = aiohttp.TCPConnector(ssl=trust)
        session = await stack.enter_async_context(aiohttp.ClientSession(connector=connector))
        yield Caller(webhook, session)


async def advised(caller: Caller, uid: str) -> str:
    """Return the node that is best for a new pod, as the webhook told last."""
    status, answer = await caller.post("/mutate", review(uid))
    assert status == 200
    assert answer["response"]["allowed"]
    url = f"{caller.server.metrics_url}/debug/decisions?limit=1"
    async with caller.session.get(url, headers={"Authorization": "Bearer of-a-reader"}) as told:
        (decision,) = await told.json()
    return str(decision["ranking"][0]["node"])


async def test_a_pod_is_advised_by_what_the_cluster_holds_now(
    api_server: FakeApiServer, tmp_path: Path
) -> None:
    for name in ("node-a", "node-b"):
        api_server.create(node(name))
    api_server.create(pod("old", node_name="node-a"))
    async with replica(api_server, tmp_path) as caller:
        await eventually(caller.server.health.ready)
        ready, _ = await caller.get(f"{caller.server.url}/readyz")
        assert ready == 200
        assert await advised(caller, "1") == "node-b"


async def test_the_next_pod_sees_the_one_before_it_although_nobody_has_created_it_yet(
    api_server: FakeApiServer, tmp_path: Path
) -> None:
    api_server.create(node("node-a", cpu="8"))
    api_server.create(node("node-b", cpu="5"))
    async with replica(api_server, tmp_path) as caller:
        # Cores that one more limit of 1 leaves, in percent: 87 and 80, then 75 and 80, then 75 and
        # 60. Memory, 1 of 32 GiB, moves both by as little as 3.
        best = [await advised(caller, uid) for uid in "123"]
        assert best == ["node-a", "node-b", "node-a"]


def policy(name: str, node_name: str, *, namespace: str = "", **spec: Any) -> dict[str, Any]:  # noqa: ANN401 - JSON
    """Return a policy of the API that prefers a node by far."""
    expression = f"node.name == '{node_name}' ? 100 : 0"
    metadata = {"name": name, **({"namespace": namespace} if namespace else {})}
    return {
        "apiVersion": "stowplan.dev/v1alpha1",
        "kind": "NamespacedPlacementPolicy" if namespace else "PlacementPolicy",
        "metadata": metadata,
        "spec": {"scores": [{"name": "s", "expression": expression, "weight": 100}], **spec},
    }


async def test_policies_of_the_api_decide_as_they_come_change_and_go(
    api_server: FakeApiServer, tmp_path: Path
) -> None:
    api_server.create(node("node-a", cpu="8"))
    api_server.create(node("node-b", cpu="5"))
    api_server.create(policy("first", "node-b"))

    def in_force() -> int:
        return caller.server.health.report().policies.loaded

    async with replica(api_server, tmp_path) as caller:
        await eventually(caller.server.health.ready)
        assert in_force() == 2
        assert await advised(caller, "1") == "node-b"
        api_server.replace(policy("first", "node-a"))
        api_server.create(policy("broken", "'"))
        api_server.create(policy("web", "node-a", namespace="elsewhere"))
        await eventually(lambda: in_force() == 3)
        assert await advised(caller, "2") == "node-a"
        api_server.replace(policy("first", "'"))  # stays in force as it was
        api_server.delete("namespacedplacementpolicies", "elsewhere", "web")
        await eventually(lambda: in_force() == 2)
        assert await advised(caller, "3") == "node-a"
        api_server.delete("placementpolicies", "", "first")
        await eventually(lambda: in_force() == 1)


async def test_a_policy_of_the_api_for_another_namespace_decides_nothing(
    api_server: FakeApiServer, tmp_path: Path
) -> None:
    for name in ("node-a", "node-b"):
        api_server.create(node(name))
    api_server.create(policy("p", "node-b", namespace="shop"))
    api_server.create(policy("p", "node-a", namespace="other", priority=9))
    async with replica(api_server, tmp_path, policies=[]) as caller:
        await eventually(caller.server.health.ready)
        assert caller.server.health.report().policies.loaded == 2
        assert await advised(caller, "1") == "node-b"


async def test_columns_are_filled_when_a_node_comes_before_any_review(
    api_server: FakeApiServer, tmp_path: Path
) -> None:
    api_server.create(node("node-a"))
    with counted_calls(WarmUp.steps) as calls:
        async with replica(api_server, tmp_path, policy_resources=False):
            # Two trial decisions, and the end of them.
            await eventually(lambda: calls.count == 3)
            api_server.create(node("node-b"))
            await eventually(lambda: calls.count == 6)


async def test_before_the_cluster_is_known_it_is_not_ready_and_advises_nobody(
    api_server: FakeApiServer, tmp_path: Path
) -> None:
    api_server.create(node("node-a"))
    api_server.pause()
    settings = local_settings(kubeconfig=api_server.kubeconfig(tmp_path), policies=[])
    async with run_server(settings) as webhook:
        assert not webhook.health.ready()
        assert not webhook.cluster.view().rows
        api_server.resume()
        await eventually(webhook.health.ready)
        assert list(webhook.cluster.view().rows) == ["node-a"]


async def test_replicas_serve_one_certificate_that_the_webhook_configuration_trusts(
    api_server: FakeApiServer, tmp_path: Path
) -> None:
    api_server.create(
        {
            "apiVersion": "admissionregistration.k8s.io/v1",
            "kind": "MutatingWebhookConfiguration",
            "metadata": {"name": "stowplan"},
            "webhooks": [{"name": "placement.stowplan.dev", "clientConfig": {"url": "https://x/"}}],
        }
    )
    given = {"certificate_secret": "stowplan-tls", "certificate_names": ["127.0.0.1"]}
    async with (
        replica(api_server, tmp_path, **given) as one,
        replica(api_server, tmp_path, **given) as other,
    ):
        assert one.server.ca_pem == other.server.ca_pem  # each client verified the other's server
        (configuration,) = api_server.objects("mutatingwebhookconfigurations").values()
        assert configuration["webhooks"][0]["clientConfig"]["caBundle"]
        assert one.server.health.report().certificate.is_trusted is not False
        (lease,) = api_server.objects("leases").values()
        assert lease["spec"]["holderIdentity"]
    (lease,) = api_server.objects("leases").values()
    assert not lease["spec"]["holderIdentity"]  # given up at the end


async def test_a_kubeconfig_that_is_not_there_is_told_with_what_to_do(tmp_path: Path) -> None:
    settings = local_settings(kubeconfig=tmp_path / "missing", policies=[])
    with pytest.raises(NoKubeconfigError, match="missing"):
        async with run_server(settings):
            pass


@pytest.mark.usefixtures("files_are_checked_often")
async def test_a_replica_that_starts_with_bad_policies_is_ready_as_soon_as_they_are_repaired(
    api_server: FakeApiServer, tmp_path: Path
) -> None:
    api_server.create(node("node-a"))
    api_server.create(node("node-b"))
    policy = tmp_path / "bad.yaml"
    policy.write_text("kind: Nothing\n")
    async with replica(api_server, tmp_path, policies=[policy]) as caller:
        status, text = await caller.get(f"{caller.server.url}/readyz")
        policies = json.loads(text)["policies"]
        assert (status, policies["loaded"]) == (503, 0)
        assert "bad.yaml:1:7" in policies["lastReloadError"]
        assert (await caller.post("/mutate", review("1")))[0] == 200  # it fails open
        content = LEAST_LIMITS
        async with asyncio.timeout(PATIENCE_SECONDS):
            while status != 200:
                content += "\n"  # another change, whenever the first look at the file is
                policy.write_text(content)
                status, text = await caller.get(f"{caller.server.url}/readyz")
        assert json.loads(text)["policies"]["loaded"] == 1
        assert await advised(caller, "2") in {"node-a", "node-b"}


async def test_where_placement_is_off_policies_keep_no_quota_from_being_enforced(
    api_server: FakeApiServer, tmp_path: Path
) -> None:
    policy = tmp_path / "bad.yaml"
    policy.write_text("kind: Nothing\n")
    given = {"policies": [policy], "placement_mode": "Off"}
    async with replica(api_server, tmp_path, **given) as caller:
        assert (await caller.get(f"{caller.server.url}/readyz"))[0] == 200
