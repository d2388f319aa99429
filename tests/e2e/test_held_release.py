"""Held pods on the stock scheduler: released in order, without a nomination, and bound."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path

from engine.model.hold import HOLD_GATE, HOLD_REASONS_ANNOTATION, RELEASED_ANNOTATION
from tests.e2e.cluster import CallError, Cluster, Json, eventually
from tests.e2e.control_plane import ControlPlane
from tests.e2e.installed import Installed, installed
from tests.e2e.namespaces import passing_namespaces
from tests.e2e.nodes import Nodes
from tests.e2e.refusing_policy import refusing_releases
from tests.e2e.workloads import pod

POLICY = """
apiVersion: stowplan.dev/v1alpha1
kind: PlacementPolicy
metadata: {name: packed}
spec:
  scores: [{plugin: NodeResourcesFit, args: {scoringStrategy: {type: MostAllocated}}}]
  placement: {at: Binding, releaseInOrder: true}
"""


async def test_pods_of_an_order_are_bound_in_it(
    cluster: Cluster, control_plane: ControlPlane, nodes: Nodes, namespace: str, tmp_path: Path
) -> None:
    await nodes.add("node-a", {"cpu": "16"})
    async with holding(cluster, control_plane, tmp_path):
        await is_held(cluster, namespace)
        burst = [pod(namespace, f"p{number}", requests={"cpu": "1"}) for number in range(10)]
        await asyncio.gather(*map(cluster.create, burst))
        is_done = False
        while not is_done:
            found = await cluster.list_all("pods", namespace)
            released = [each for each in found if "schedulingGates" not in each["spec"]]
            waiting = [each for each in released if "nodeName" not in each["spec"]]
            assert len(waiting) <= 1, waiting
            is_done = len(released) == len(burst)
        pods = await all_bound(cluster, namespace, len(burst))
    for one in pods:
        annotations = one["metadata"]["annotations"]
        assert annotations[RELEASED_ANNOTATION] == "the scheduler finds a node"
        assert annotations[HOLD_REASONS_ANNOTATION] == "order"


async def test_a_pod_without_a_node_keeps_nobody_waiting_and_autoscalers_see_it(
    cluster: Cluster, control_plane: ControlPlane, nodes: Nodes, namespace: str, tmp_path: Path
) -> None:
    await nodes.add("node-small", {"cpu": "2"})
    async with holding(cluster, control_plane, tmp_path):
        await is_held(cluster, namespace)
        await cluster.create(pod(namespace, "large", requests={"cpu": "3"}))

        async def unschedulable() -> Json:
            found = await cluster.get("pods", "large", namespace)
            (condition,) = (
                each for each in found["status"]["conditions"] if each["type"] == "PodScheduled"
            )
            assert condition["reason"] == "Unschedulable", condition
            return found

        await eventually(unschedulable, "an autoscaler sees the pod")
        await cluster.create(pod(namespace, "small", requests={"cpu": "1"}))
        await eventually(lambda: is_bound(cluster, namespace, "small"), "the next one is bound")
        await nodes.add("node-large", {"cpu": "4"})
        await eventually(lambda: is_bound(cluster, namespace, "large"), "and this one, in time")


async def test_a_pod_waits_for_the_gates_of_others(
    cluster: Cluster, control_plane: ControlPlane, nodes: Nodes, namespace: str, tmp_path: Path
) -> None:
    await nodes.add("node-a", {"cpu": "4"})
    both = pod(namespace, "both")
    both["spec"]["schedulingGates"] = [{"name": HOLD_GATE}, {"name": "example.com/other"}]
    async with holding(cluster, control_plane, tmp_path):
        await cluster.create(both)
        await is_held(cluster, namespace)
        await cluster.create(pod(namespace, "after"))  # created later, and bound before
        await eventually(lambda: is_bound(cluster, namespace, "after"), "the other pod is bound")
        found = await cluster.get("pods", "both", namespace)
        gates = [gate["name"] for gate in found["spec"]["schedulingGates"]]
        assert gates == [HOLD_GATE, "example.com/other"]
        without = [
            {"op": "test", "path": "/spec/schedulingGates/1/name", "value": "example.com/other"},
            {"op": "remove", "path": "/spec/schedulingGates/1"},
        ]
        await cluster.patch("pods", "both", without, namespace, how="json")
        await eventually(lambda: is_bound(cluster, namespace, "both"), "the pod is bound")


async def test_writes_are_counted(
    cluster: Cluster, control_plane: ControlPlane, nodes: Nodes, namespace: str, tmp_path: Path
) -> None:
    await nodes.add("node-a", {"cpu": "4"})
    async with holding(cluster, control_plane, tmp_path) as stowplan:
        await is_held(cluster, namespace)
        await cluster.create(pod(namespace, "one"))
        await all_bound(cluster, namespace, 1)
        (replica,) = stowplan.replicas

        async def counted() -> bool:
            lines = (await replica.metrics()).splitlines()
            accepted = 'stowplan_held_pod_writes_total{result="accepted",write='
            assert f'{accepted}"release"}} 1.0' in lines
            assert "stowplan_hold_seconds_count 1.0" in lines
            for gauge in ("held_pods", "held_pods_overdue_seconds", "released_pods_unbound"):
                assert f"stowplan_{gauge} 0.0" in lines, gauge
            return True

        await eventually(counted, "the pod is counted")


async def test_a_refused_release_is_told_and_keeps_nobody_waiting(
    cluster: Cluster, control_plane: ControlPlane, nodes: Nodes, namespace: str, tmp_path: Path
) -> None:
    await nodes.add("node-a", {"cpu": "4"})
    async with (
        passing_namespaces(cluster, f"{namespace}-shop") as (shop,),
        holding(cluster, control_plane, tmp_path) as stowplan,
    ):
        await is_held(cluster, namespace)
        async with refusing_releases(cluster, namespace):
            await cluster.create(pod(namespace, "refused"))

            async def told() -> Json:
                events = await cluster.list_all("events", namespace)
                refused = [each for each in events if each["reason"] == "ReleaseRefused"]
                return refused[0] if refused else {}

            event = await eventually(told, "an Event says so")
            assert event["involvedObject"]["name"] == "refused"
            assert "nobody releases here" in event["message"]

            held = await cluster.get("pods", "refused", namespace)
            assert held["spec"]["schedulingGates"] == [{"name": HOLD_GATE}]
            await cluster.create(pod(shop, "free"))
            await eventually(lambda: is_bound(cluster, shop, "free"), "another pod is bound")
            (replica,) = stowplan.replicas

            # With each attempt it is refused anew.
            async def is_counted() -> bool:
                return "stowplan_held_pods_refused 1.0" in (await replica.metrics()).splitlines()

            await eventually(is_counted, "the refused pod is counted")
        await eventually(lambda: is_bound(cluster, namespace, "refused"), "the pod is bound")


async def test_pods_that_cannot_be_released_keep_no_others_from_being_held(
    cluster: Cluster, control_plane: ControlPlane, nodes: Nodes, namespace: str, tmp_path: Path
) -> None:
    await nodes.add("node-a", {"cpu": "16"})
    seconds = 10
    async with (
        at_the_limit_of_etcd(cluster, namespace, "without-room-at-all"),
        passing_namespaces(cluster, f"{namespace}-shop") as (shop,),
        holding(cluster, control_plane, tmp_path, hold_seconds=seconds),
    ):
        await is_held(cluster, shop)
        fat = gated(namespace, "without-room-for-annotations")
        fat["metadata"]["annotations"] = {"a": "x" * (256 * 1024 - 1)}
        await cluster.create(fat)
        await eventually(
            lambda: is_bound(cluster, namespace, "without-room-for-annotations"),
            "the gate alone is removed",
        )
        # A pod is overdue after 10 s, and half a minute later the guard would close.
        loop = asyncio.get_running_loop()
        number, until = 0, loop.time() + seconds + 60
        while number < 50 or loop.time() < until:
            created = await cluster.create(pod(shop, f"honest-{number}"))
            assert created["spec"].get("schedulingGates") == [{"name": HOLD_GATE}], number
            await eventually(partial(is_bound, cluster, shop, f"honest-{number}"), "it is bound")
            await cluster.delete("pods", f"honest-{number}", shop, grace_seconds=0)
            number += 1
        gone = await cluster.get("pods", "without-room-at-all", namespace)
        assert "schedulingGates" not in gone["spec"]  # which makes the pod smaller


def gated(namespace: str, name: str) -> Json:
    """Return a pod with our gate in its manifest."""
    made = pod(namespace, name)
    made["spec"]["schedulingGates"] = [{"name": HOLD_GATE}]
    return made


@asynccontextmanager
async def at_the_limit_of_etcd(cluster: Cluster, namespace: str, name: str) -> AsyncIterator[None]:
    """Create a pod with our gate that nobody can add a few bytes to, until the end."""
    made = gated(namespace, name)
    made["spec"]["containers"][0]["env"] = [{"name": "A", "value": "x" * 1_400_000}]
    await cluster.create(made)
    fits, exceeds = 0, 256 * 1024
    while exceeds - fits > 16:
        size = (fits + exceeds) // 2
        try:
            await cluster.patch("pods", name, _notes("x" * size), namespace)
        except CallError:
            exceeds = size
        else:
            fits = size
    try:
        yield
    finally:
        await cluster.patch("pods", name, _notes(None), namespace)


def _notes(text: str | None) -> Json:
    return {"metadata": {"annotations": {"a": text}}}


@asynccontextmanager
async def holding(
    cluster: Cluster,
    control_plane: ControlPlane,
    folder: Path,
    policy: str = POLICY,
    *,
    hold_seconds: int = 600,
) -> AsyncIterator[Installed]:
    """Install stowplan with a policy whose pods are released in order.

    With the default none is overdue on a busy machine: it would be released before its turn.
    """
    file = folder / "policy.yaml"
    file.write_text(policy, encoding="utf-8")
    options = (("hold", "true"), ("hold-seconds", str(hold_seconds)))
    async with installed(cluster, control_plane, folder, [file], options=options) as stowplan:
        yield stowplan


async def is_held(cluster: Cluster, namespace: str) -> None:
    """Wait until stowplan holds pods: its leader says on the Lease that it releases them."""

    async def gated() -> bool:
        tried = await cluster.create(pod(namespace, "tried"), dry_run=True)
        return bool(tried["spec"].get("schedulingGates") == [{"name": HOLD_GATE}])

    await eventually(gated, "pods are held")


async def is_bound(cluster: Cluster, namespace: str, name: str) -> bool:
    """Return whether a pod is bound."""
    return bool((await cluster.get("pods", name, namespace))["spec"].get("nodeName"))


async def all_bound(cluster: Cluster, namespace: str, count: int) -> list[Json]:
    """Wait until so many pods are bound; return them."""

    async def bound() -> list[Json]:
        pods = await cluster.list_all("pods", namespace)
        waiting = [each["metadata"]["name"] for each in pods if "nodeName" not in each["spec"]]
        assert len(pods) == count, len(pods)
        assert not waiting, waiting
        return pods

    return await eventually(bound, f"{count} pods are bound")
