"""What a binding by a scheduler may carry, whatever webhooks answer: the chart's policy judges."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from tests.e2e.chart import Release
from tests.e2e.cluster import CallError, Cluster, Json, connected, eventually
from tests.e2e.control_plane import ControlPlane
from tests.e2e.workloads import pod

_EVIL = {"annotations": {"evil.example/key": "yes"}}
_OURS = {
    "annotations": {
        "stowplan.dev/binding": "BetterNode",
        "stowplan.dev/estimated-usage": '{"cpu":"100m"}',
        "stowplan.dev/reason": "r" * 256,
        "stowplan.dev/scheduler-node": "node-a",
    },
    "labels": {"topology.kubernetes.io/zone": "zone-a", "topology.kubernetes.io/region": "here"},
}


@pytest.fixture
async def scheduler(control_plane: ControlPlane) -> AsyncIterator[Cluster]:
    """The cluster as the scheduler may change it."""
    certificate = control_plane.authority.issue("system:kube-scheduler")
    async with connected(control_plane, certificate) as seen:
        yield seen


async def _refusal(binder: Cluster, namespace: str, metadata: Json) -> str:
    """Return why a binding is refused; empty if it is not."""
    path = f"/api/v1/namespaces/{namespace}/pods/web/binding"
    body = {
        "metadata": {"name": "web", **metadata},
        "target": {"kind": "Node", "name": "nowhere"},
    }
    try:
        await binder.call("POST", path, body, params={"dryRun": "All"})
    except CallError as refused:
        return refused.message
    return ""


async def test_a_binding_by_a_scheduler_carries_nothing_but_what_is_written_at_bindings(
    cluster: Cluster, release: Release, shop: str, scheduler: Cluster
) -> None:
    for namespace in (shop, release.namespace):
        await cluster.create(pod(namespace, "web"))
    await release.change(binding={"enabled": True})

    async def is_in_force() -> bool:
        return "adds no annotation" in await _refusal(scheduler, shop, _EVIL)

    await eventually(is_in_force, "the policy is in force")
    long = {"annotations": {"stowplan.dev/reason": "r" * 257}}
    assert "more than 256" in await _refusal(scheduler, shop, long)
    for key in ("stowplan.dev/hold-reasons", "stowplan.dev", "mine"):
        refused = await _refusal(scheduler, shop, {"annotations": {key: ""}})
        assert "adds no annotation" in refused, key
    many = {"annotations": {f"evil.example/{number}": "" for number in range(10_000)}}
    assert await _refusal(scheduler, shop, many)
    for key in ("app", "app.kubernetes.io/name", "stowplan.dev/placement"):
        refused = await _refusal(scheduler, shop, {"labels": {key: "x"}})
        assert "adds no label" in refused, key
    assert not await _refusal(scheduler, shop, {})
    assert not await _refusal(scheduler, shop, _OURS)
    # Whom it does not concern: others, and where stowplan is not asked.
    assert not await _refusal(cluster, shop, _EVIL)
    assert not await _refusal(scheduler, release.namespace, _EVIL)


async def test_it_may_carry_what_other_webhooks_are_known_to_add(
    cluster: Cluster, release: Release, shop: str, scheduler: Cluster
) -> None:
    await cluster.create(pod(shop, "web"))
    bindings = {"allowedKeys": ["example.com/rack"]}
    await release.change(binding={"enabled": True}, admissionPolicy={"bindings": bindings})

    known = {"example.com/rack": "r1"}

    async def is_in_force() -> bool:
        return not await _refusal(scheduler, shop, {"annotations": known, "labels": known})

    await eventually(is_in_force, "the key is allowed")
    assert "adds no annotation" in await _refusal(scheduler, shop, _EVIL)
