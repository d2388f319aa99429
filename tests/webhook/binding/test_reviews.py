"""Whole replicas over HTTPS, on a fake API server that asks them about bindings."""

from __future__ import annotations

import asyncio
import base64
import json
import ssl
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from engine.model.time import SECOND, Micros
from engine.view import Sum
from tests.fake_api_server import FakeApiServer, fake_api_server
from tests.patience import PATIENCE_SECONDS
from tests.webhook.cluster.reflecting import eventually
from tests.webhook.conftest import Caller, local_settings
from webhook.binding import decider
from webhook.serving.composition import run_server, wall_clock
from webhook.settings import Settings

Json = dict[str, Any]

POLICY = """
apiVersion: stowplan.dev/v1alpha1
kind: PlacementPolicy
metadata: {name: spread-limits}
spec:
  placement: {at: Binding, whenNoneFits: Wait}
  filters:
    - name: not-reserved
      expression: "!('reserved' in node.labels)"
      message: the node is reserved
  scores:
    - name: limits
      plugin: LimitAware
      args:
        defaultLimitToAllocatableRatio: {cpu: "100%", memory: "100%"}
"""


OF_ANOTHER = {"holderIdentity": "another", "leaseDurationSeconds": 3600}


def node(name: str, **labels: str) -> Json:
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, "labels": {"kubernetes.io/hostname": name, **labels}},
        "status": {"allocatable": {"cpu": "8", "memory": "32Gi", "pods": "110"}},
    }


def pod(name: str, *, node_name: str = "", cpu: str = "1", requests: str = "100m") -> Json:
    """Return a pod; its limit of cores counts in scores, its requests in the scheduler's filter."""
    resources = {"limits": {"cpu": cpu, "memory": "1Gi"}, "requests": {"cpu": requests}}
    containers = [{"name": "main", "image": "main:1", "resources": resources}]
    spec: Json = {"containers": containers, "schedulerName": "default-scheduler"}
    if node_name:
        spec["nodeName"] = node_name
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"namespace": "shop", "name": name},
        "spec": spec,
    }


def review(stored: Json, target: str, *, dry_run: bool = False, kind: str = "Node") -> Json:
    """Return what the API server asks when the scheduler binds a pod."""
    metadata = {name: stored["metadata"][name] for name in ("namespace", "name", "uid")}
    pods = {"group": "", "version": "v1", "resource": "pods"}
    return {
        "apiVersion": "admission.k8s.io/v1",
        "kind": "AdmissionReview",
        "request": {
            "uid": f"review-of-{metadata['name']}",
            "operation": "CREATE",
            "kind": {"group": "", "version": "v1", "kind": "Binding"},
            "resource": pods,
            "subResource": "binding",
            "name": metadata["name"],
            "namespace": "shop",
            "userInfo": {"username": "system:kube-scheduler"},
            "dryRun": dry_run,
            "object": {
                "apiVersion": "v1",
                "kind": "Binding",
                "metadata": metadata,
                "target": {"kind": kind, "name": target},
            },
        },
    }


def patched(answer: Json) -> tuple[str, dict[str, str]]:
    """Return the node that a binding is changed to, "" for none, and the annotations it gets."""
    response = answer["response"]
    assert response["allowed"], response
    operations = json.loads(base64.b64decode(response.get("patch", "W10=")))
    target, annotations = "", {}
    for operation in operations:
        if operation["path"] == "/target/name":
            target = operation["value"]
        else:
            assert operation["path"] == "/metadata/annotations"
            annotations = operation["value"]
    return target, annotations


class Asking:
    """An API server, and the replica that it asks."""

    def __init__(self, server: FakeApiServer, caller: Caller) -> None:
        self.server = server
        self.caller = caller

    async def seen(self, stored: Json) -> None:
        """Wait until the replica has seen a pod."""
        key = f"shop/{stored['metadata']['name']}"
        state = self.caller.server.cluster.state
        await eventually(lambda: state.entry(key) is not None)

    async def create(self, manifest: Json) -> Json:
        stored = self.server.create(manifest)
        await self.seen(stored)
        return stored

    async def bound(self, stored: Json, node_name: str) -> None:
        """Bind a pod, and wait until the replica has seen it."""
        self.server.replace({**stored, "spec": {**stored["spec"], "nodeName": node_name}})
        key, state = f"shop/{stored['metadata']['name']}", self.caller.server.cluster.state
        await eventually(lambda: state.placement(key) is not None)

    async def bind(
        self, stored: Json, target: str, *, dry_run: bool = False, kind: str = "Node"
    ) -> Json:
        """Return the answer to a binding."""
        asked = review(stored, target, dry_run=dry_run, kind=kind)
        status, answer = await self.caller.post("/bind", asked)
        assert status == 200, answer
        return answer

    def counted_pods(self) -> dict[str, int]:
        """Return how many pods count on each node."""
        view = self.caller.server.cluster.state.view()
        pods = view.amount(view.sums[Sum.REQUESTS], "pods")
        return {name: int(pods[row]) for name, row in view.rows.items()}

    async def value(self, name: str, **labels: str) -> float:
        """Return a metric, 0 where there is none."""
        _, text = await self.caller.get(f"{self.caller.server.metrics_url}/metrics")
        shown = ",".join(f'{key}="{value}"' for key, value in sorted(labels.items()))
        wanted = f"{name}{{{shown}}} " if labels else f"{name} "
        found = [line for line in text.splitlines() if line.startswith(wanted)]
        return float(found[0].removeprefix(wanted)) if found else 0.0

    async def explained(self, name: str) -> Json:
        url = f"{self.caller.server.metrics_url}/debug/decisions?pod={name}"
        headers = {"Authorization": "Bearer of-a-reader"}
        async with self.caller.session.get(url, headers=headers) as told:
            decisions = await told.json()
        return dict(decisions[0])


@asynccontextmanager
async def asking(
    tmp_path: Path,
    *,
    policy: str = POLICY,
    lease: Json | None = None,
    now: Callable[[], Micros] = wall_clock,
) -> AsyncIterator[Asking]:
    """Yield a replica that knows all of a cluster.

    Args:
        tmp_path: an empty folder.
        policy: the one in force.
        lease: what the Lease says before; None for no Lease. The replica leads if nobody holds it.
        now: the time of day.
    """
    file = tmp_path / "policy.yaml"
    file.write_text(policy)
    async with AsyncExitStack() as stack:
        server = await stack.enter_async_context(fake_api_server(tls=True))
        server.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "shop"}})
        authenticated = {"status": {"authenticated": True}}
        server.play("POST", "/apis/authentication.k8s.io/v1/tokenreviews", lambda _: authenticated)
        reviews = "/apis/authorization.k8s.io/v1/subjectaccessreviews"
        server.play("POST", reviews, lambda _: {"status": {"allowed": True}})
        for name in ("node-a", "node-b"):
            server.create(node(name))
        server.create(pod("old", node_name="node-a", cpu="4"))
        settings = local_settings(
            kubeconfig=server.kubeconfig(tmp_path),
            policies=[file],
            binding=True,
        )
        if lease is not None:
            server.create(lease_of(settings, lease))
        webhook = await stack.enter_async_context(run_server(settings, now=now))
        await webhook.cluster.synced()
        trust = ssl.create_default_context(cadata=webhook.ca_pem.decode())
        connector = aiohttp.TCPConnector(ssl=trust)
        session = await stack.enter_async_context(aiohttp.ClientSession(connector=connector))
        found = Asking(server, Caller(webhook, session))
        await eventually(webhook.health.ready)
        status = webhook.health.report
        if lease is None or not lease["holderIdentity"]:
            await eventually(lambda: (bindings := status().bindings) is not None and bindings.leads)
        yield found


def lease_of(settings: Settings, spec: Json) -> Json:
    return {
        "apiVersion": "coordination.k8s.io/v1",
        "kind": "Lease",
        "metadata": {"namespace": settings.namespace, "name": settings.lease},
        "spec": spec,
    }


async def test_a_pod_goes_to_a_better_node_and_says_so(tmp_path: Path) -> None:
    async with asking(tmp_path) as replica:
        web = await replica.create(pod("web"))
        target, annotations = patched(await replica.bind(web, "node-a"))
        assert target == "node-b"
        assert annotations["stowplan.dev/scheduler-node"] == "node-a"
        assert annotations["stowplan.dev/binding"] == "BetterNode"
        explained = await replica.explained("shop/web")
        assert explained["binding"]["schedulerNode"] == "node-a"
        assert explained["binding"]["node"] == "node-b"
        assert explained["binding"]["action"] == "Move"
        labels = {"action": "Move", "reason": "BetterNode"}
        assert await replica.value("stowplan_bindings_total", **labels) == 1
        labels = {"policy": "spread-limits", "mode": "Enforce"}
        assert await replica.value("stowplan_bindings_moved_total", **labels) == 1
        assert await replica.caller.count("bind", "moved") == 1


async def test_in_audit_mode_nothing_is_patched_and_all_is_known(tmp_path: Path) -> None:
    audited = POLICY.replace("spec:\n", "spec:\n  mode: Audit\n", 1)
    async with asking(tmp_path, policy=audited) as replica:
        web = await replica.create(pod("web"))
        assert patched(await replica.bind(web, "node-a")) == ("", {})
        explained = await replica.explained("shop/web")
        assert (explained["binding"]["action"], explained["binding"]["node"]) == ("Keep", "node-a")
        would_be = explained["audit"]["binding"]
        assert (would_be["action"], would_be["node"]) == ("Move", "node-b")
        labels = {"policy": "spread-limits", "mode": "Audit"}
        assert await replica.value("stowplan_bindings_moved_total", **labels) == 1


async def test_the_best_node_is_kept(tmp_path: Path) -> None:
    async with asking(tmp_path) as replica:
        web = await replica.create(pod("web"))
        target, annotations = patched(await replica.bind(web, "node-b"))
        assert not target
        assert annotations["stowplan.dev/scheduler-node"] == "node-b"
        assert await replica.caller.count("bind", "kept") == 1


async def test_bindings_on_their_way_count_wherever_they_may_end(tmp_path: Path) -> None:
    # node-a has limits of 4 cores, node-b none. A pod of 6 cores goes to node-b; until it is seen
    # there its answer may be lost, and it is on node-a: 4 + 6 there, 6 here. So the next one, of
    # one core, goes to node-b, and node-a is the better one only once the first is seen.
    async with asking(tmp_path) as replica:
        large = await replica.create(pod("large", cpu="6"))
        assert patched(await replica.bind(large, "node-a"))[0] == "node-b"
        small, next_one = await replica.create(pod("small")), await replica.create(pod("next"))
        assert patched(await replica.bind(small, "node-b"))[0] == ""
        await replica.bound(large, "node-b")
        assert patched(await replica.bind(next_one, "node-b"))[0] == "node-a"


async def test_an_event_says_where_a_pod_went_once_it_is_there(tmp_path: Path) -> None:
    async with asking(tmp_path) as replica:
        web = await replica.create(pod("web"))
        await replica.bind(web, "node-a")
        assert not replica.server.objects("events")
        await replica.bound(web, "node-b")
        await eventually(lambda: bool(replica.server.objects("events")))
        (event,) = replica.server.objects("events").values()
        assert event["reason"] == "Rebound"
        assert event["message"].startswith("Bound to node-b instead of node-a")
        assert await replica.value("stowplan_bindings_escaped_total") == 0


async def test_no_event_says_that_a_pod_was_moved_by_a_binding_that_failed(tmp_path: Path) -> None:
    async with asking(tmp_path) as replica:
        web, api = await replica.create(pod("web")), await replica.create(pod("api"))
        assert patched(await replica.bind(web, "node-a"))[0] == "node-b"
        assert not patched(await replica.bind(web, "node-b"))[0]  # tried again, and kept
        await replica.bound(web, "node-b")
        assert patched(await replica.bind(api, "node-a"))[0] == "node-b"
        await replica.bound(api, "node-b")
        await eventually(lambda: bool(replica.server.objects("events")))
        (event,) = replica.server.objects("events").values()
        assert event["involvedObject"]["name"] == "api"


async def test_a_pod_that_is_bound_past_us_has_escaped_and_nothing_moves_for_a_while(
    tmp_path: Path,
) -> None:
    async with asking(tmp_path) as replica:
        fast, web = await replica.create(pod("fast")), await replica.create(pod("web"))
        await replica.bound(fast, "node-a")
        assert await replica.value("stowplan_bindings_escaped_total") == 1
        assert await replica.value("stowplan_binding_moves_paused") == 1
        target, annotations = patched(await replica.bind(web, "node-a"))
        assert (target, annotations["stowplan.dev/binding"]) == ("", "MovesPaused")


async def test_what_is_bound_in_a_namespace_that_opts_out_has_not_escaped(tmp_path: Path) -> None:
    async with asking(tmp_path) as replica:
        state = replica.caller.server.cluster.state
        labels = {"stowplan.dev/placement": "disabled"}
        metadata = {"name": "other", "labels": labels}
        replica.server.create({"apiVersion": "v1", "kind": "Namespace", "metadata": metadata})
        await eventually(lambda: state.namespace_labels("other") == labels)
        made = pod("web")
        made["metadata"]["namespace"] = "other"
        stored = replica.server.create(made)
        await eventually(lambda: state.entry("other/web") is not None)
        replica.server.replace({**stored, "spec": {**stored["spec"], "nodeName": "node-a"}})
        await eventually(lambda: state.placement("other/web") is not None)
        assert await replica.value("stowplan_bindings_escaped_total") == 0
        assert await replica.value("stowplan_binding_moves_paused") == 0


async def test_a_clock_that_is_set_ends_no_pause(tmp_path: Path) -> None:
    added = 0
    async with asking(tmp_path, now=lambda: Micros(wall_clock() + added)) as replica:
        fast = await replica.create(pod("fast"))
        await replica.bound(fast, "node-a")
        assert await replica.value("stowplan_binding_moves_paused") == 1
        added = 3_600 * SECOND
        assert await replica.value("stowplan_binding_moves_paused") == 1


async def test_a_node_that_others_were_moved_to_may_be_full_by_now(tmp_path: Path) -> None:
    # The first pod, of 6 of 8 cores, may be on either node until it is seen. The scheduler knows
    # of none on node-b, and the second pod of 6 cores fits nowhere beside it.
    async with asking(tmp_path) as replica:
        first = await replica.create(pod("first", requests="6"))
        assert patched(await replica.bind(first, "node-a"))[0] == "node-b"
        second = await replica.create(pod("second", requests="6"))
        response = (await replica.bind(second, "node-b"))["response"]
        assert not response["allowed"]
        assert (response["status"]["code"], response["status"]["reason"]) == (409, "Conflict")
        # Once the first is seen there is room on node-a, as the scheduler knows, too.
        await replica.bound(first, "node-b")
        target, annotations = patched(await replica.bind(second, "node-a"))
        assert not target
        assert annotations["stowplan.dev/scheduler-node"] == "node-a"


async def test_a_pod_that_is_denied_takes_no_room_from_others(tmp_path: Path) -> None:
    # The first pod, of 6 of 8 cores, may be on either node until it is seen, so the second, of 3,
    # is denied.
    async with asking(tmp_path) as replica:
        first = await replica.create(pod("first", requests="6"))
        assert patched(await replica.bind(first, "node-a"))[0] == "node-b"
        second = await replica.create(pod("second", requests="3"))
        assert not (await replica.bind(second, "node-b"))["response"]["allowed"]
        assert replica.counted_pods() == {"node-a": 2, "node-b": 1}  # `old` is on node-a


async def test_a_pod_that_is_not_seen_yet_is_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(decider, "_APPEARS_SECONDS", PATIENCE_SECONDS)
    async with asking(tmp_path) as replica:
        stored = pod("web")
        stored["metadata"]["uid"] = "of-web"
        asked = asyncio.create_task(replica.bind(stored, "node-a"))
        async with asyncio.timeout(PATIENCE_SECONDS):
            while not await replica.value("stowplan_reviews_in_flight", path="bind"):
                pass
        replica.server.create(stored)
        assert patched(await asked)[0] == "node-b"


async def test_a_binding_counts_from_its_arrival_on_and_not_from_its_turn(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # The first waits until its pod is seen. Nobody knows what that one takes on node-b, so the
    # second does not go there, though node-b is better.
    monkeypatch.setattr(decider, "_APPEARS_SECONDS", PATIENCE_SECONDS)
    async with asking(tmp_path) as replica:
        second, first = await replica.create(pod("second")), pod("first")
        first["metadata"]["uid"] = "of-first"
        asked = asyncio.create_task(replica.bind(first, "node-b"))
        async with asyncio.timeout(PATIENCE_SECONDS):
            while not await replica.value("stowplan_reviews_in_flight", path="bind"):
                pass
        target, annotations = patched(await replica.bind(second, "node-a"))
        assert (target, annotations["stowplan.dev/binding"]) == ("", "NoMargin")
        replica.server.create(first)
        await asked


async def test_a_late_binding_is_decided_by_room_alone_and_its_answer_is_lost(
    tmp_path: Path,
) -> None:
    async with asking(tmp_path) as replica:
        web = await replica.create(pod("web"))
        status, answer = await replica.caller.post("/bind?timeout=1us", review(web, "node-a"))
        assert status == 200
        assert patched(answer) == ("", {})
        assert await replica.caller.count("bind", "deadline") == 1
        assert await replica.value("stowplan_binding_answers_lost_total") == 1
        assert await replica.value("stowplan_binding_moves_paused") == 1


async def test_a_policy_may_let_a_pod_wait(tmp_path: Path) -> None:
    async with asking(tmp_path) as replica:
        for name in ("node-a", "node-b"):
            replica.server.replace(node(name, reserved="true"))
        state = replica.caller.server.cluster.state
        await eventually(
            lambda: all("reserved" in each.labels for each in state.view().nodes if each)
        )
        web = await replica.create(pod("web"))
        response = (await replica.bind(web, "node-a"))["response"]
        assert not response["allowed"]
        assert response["status"]["code"] == 403
        assert "it waits; node-a: not-reserved (the node is" in response["status"]["message"]
        assert await replica.caller.count("bind", "denied") == 1


async def test_a_pod_that_is_not_known_stays_where_the_scheduler_put_it(tmp_path: Path) -> None:
    async with asking(tmp_path) as replica:
        unknown = pod("unknown")
        unknown["metadata"]["uid"] = "of-nobody"
        assert patched(await replica.bind(unknown, "node-a")) == ("", {})
        labels = {"action": "Keep", "reason": "PodUnknown"}
        assert await replica.value("stowplan_bindings_total", **labels) == 1


async def test_a_pod_of_the_same_name_is_another_one(tmp_path: Path) -> None:
    async with asking(tmp_path) as replica:
        web = await replica.create(pod("web"))
        other = {**web, "metadata": {**web["metadata"], "uid": "of-an-earlier-one"}}
        assert patched(await replica.bind(other, "node-a")) == ("", {})


@pytest.mark.parametrize("how", [{"dry_run": True}, {"kind": "Something"}])
async def test_what_binds_no_pod_to_a_node_leaves_no_trace(tmp_path: Path, how: Json) -> None:
    async with asking(tmp_path) as replica:
        web = await replica.create(pod("web"))
        assert patched(await replica.bind(web, "node-a", **how)) == ("", {})
        assert await replica.caller.count("bind", "ignored") == 1
        bindings = replica.caller.server.health.report().bindings
        assert bindings is not None
        assert (bindings.kept, bindings.moved, bindings.denied) == (0, 0, 0)


async def test_a_replica_that_does_not_lead_decides_nothing(tmp_path: Path) -> None:
    async with asking(tmp_path, lease=OF_ANOTHER) as replica:
        web = await replica.create(pod("web"))
        status, answer = await replica.caller.post("/bind", review(web, "node-a"))
        assert status == 503
        assert "does not lead" in answer["text"]


async def test_a_new_leader_moves_nothing_until_the_bindings_of_the_last_one_have_ended(
    tmp_path: Path,
) -> None:
    async with asking(tmp_path, lease={"holderIdentity": ""}) as replica:
        web = await replica.create(pod("web"))
        target, annotations = patched(await replica.bind(web, "node-a"))
        assert (target, annotations["stowplan.dev/binding"]) == ("", "MovesPaused")
        bindings = replica.caller.server.health.report().bindings
        assert bindings is not None
        assert bindings.paused


async def test_a_leader_that_ends_with_nothing_on_its_way_hands_over_at_once(
    tmp_path: Path,
) -> None:
    async with asking(tmp_path) as replica:
        web = await replica.create(pod("web"))
        await replica.bind(web, "node-a")
        await replica.bound(web, "node-b")
        server = replica.server
    (lease,) = server.objects("leases").values()
    assert lease["spec"]["holderIdentity"] == ""
    assert lease["metadata"]["annotations"] == {"stowplan.dev/bindings-settled": "true"}


@pytest.mark.parametrize("field", ["name", "namespace"])
async def test_names_that_are_too_long_to_be_kept_are_a_400(tmp_path: Path, field: str) -> None:
    async with asking(tmp_path) as replica:
        asked = review(await replica.create(pod("web")), "node-a")
        asked["request"][field] = "x" * 254
        status, answer = await replica.caller.post("/bind", asked)
        assert status == 400
        assert f"`$.request.{field}`" in answer["text"]


@pytest.mark.parametrize("obj", [None, {"metadata": {}}, {"target": {"name": "node-a"}}])
async def test_a_malformed_binding_is_a_400(tmp_path: Path, obj: object) -> None:
    async with asking(tmp_path) as replica:
        web = await replica.create(pod("web"))
        asked = review(web, "node-a")
        asked["request"]["object"] = obj
        status, answer = await replica.caller.post("/bind", asked)
        assert status == 400
        assert "not a binding" in answer["text"]


async def test_a_pod_that_is_decided_at_its_binding_gets_only_promises_before(
    tmp_path: Path,
) -> None:
    async with asking(tmp_path) as replica:
        request: Json = {
            "uid": "new",
            "operation": "CREATE",
            "resource": {"group": "", "version": "v1", "resource": "pods"},
            "namespace": "shop",
            "object": pod("new"),
        }
        whole = {"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview"}
        status, answer = await replica.caller.post("/mutate", {**whole, "request": request})
        assert status == 200
        (operation,) = json.loads(base64.b64decode(answer["response"]["patch"]))
        assert operation["path"] == "/spec/affinity"
        ((kind, required),) = operation["value"]["nodeAffinity"].items()
        assert kind == "requiredDuringSchedulingIgnoredDuringExecution"
        assert "DoesNotExist" in str(required)
        # Patching twice equals once.
        request["object"]["spec"]["affinity"] = operation["value"]
        _, answer = await replica.caller.post("/mutate", {**whole, "request": request})
        assert "patch" not in answer["response"]
