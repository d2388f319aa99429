from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import msgspec
import pytest

from engine.model import api
from engine.model.pod import pod_of
from engine.model.time import Micros
from engine.release import HeldPod
from tests.fake_api_server import fake_api_server
from tests.webhook.controllers.eviction.worlds import Leader, World
from webhook.cluster.client.connection import connected
from webhook.controllers.eviction.plans import MOST_CLAIMS, unbound_claim


@pytest.fixture
async def world(tmp_path: Path) -> AsyncIterator[World]:
    """A node of 4 cores, full of pods of `batch`, whose min is 2; the min of `shop` is 4."""
    async with (
        fake_api_server() as server,
        connected(server.kubeconfig(tmp_path), None) as connection,
    ):
        made = World(server, connection)
        made.node("a")
        made.run("a1", "2", node="a")
        made.run("a2", "2", node="a")
        made.queue("web", "2", claim="disk")
        yield made


def _claim(world: World, phase: str, storage_class: str = "", *, name: str = "disk") -> None:
    world.server.create(
        {
            "apiVersion": "v1",
            "kind": "PersistentVolumeClaim",
            "metadata": {"namespace": "shop", "name": name},
            "spec": {"storageClassName": storage_class},
            "status": {"phase": phase},
        }
    )


def _storage_class(world: World, mode: str) -> None:
    world.server.create(
        {
            "apiVersion": "storage.k8s.io/v1",
            "kind": "StorageClass",
            "metadata": {"name": "fast"},
            "volumeBindingMode": mode,
        }
    )


def _reads(world: World) -> int:
    return sum("persistentvolumeclaims" in each.path for each in world.server.requests)


def _waits_in_vain(leader: Leader) -> bool:
    """Return whether a pod is released as it is: nobody makes room for it."""
    return any(leader.pods.of(held).is_reclaim_in_vain for held in leader.blocked())


NOTE = "volume claim `disk` of pod `shop/web` is not bound"


async def test_nobody_is_evicted_for_a_pod_whose_claim_does_not_exist(world: World) -> None:
    leader = world.leader()
    await leader.lead_until(lambda: leader.note("web") == NOTE)
    assert world.pods("batch") == {"a1", "a2"}


async def test_nobody_is_evicted_for_a_pod_whose_claim_waits_for_a_volume(world: World) -> None:
    _claim(world, "Pending", "fast")
    _storage_class(world, "Immediate")
    leader = world.leader()
    await leader.lead_until(lambda: leader.note("web") == NOTE and _waits_in_vain(leader))
    assert world.pods("batch") == {"a1", "a2"}


async def test_a_claim_that_waits_for_its_pod_is_no_hindrance(world: World) -> None:
    _claim(world, "Pending", "fast")
    _storage_class(world, "WaitForFirstConsumer")
    leader = world.leader()
    await leader.lead_until(lambda: len(world.pods("batch")) == 1)


async def test_a_claim_that_is_bound_is_no_hindrance(world: World) -> None:
    _claim(world, "Bound")
    leader = world.leader()
    await leader.lead_until(lambda: len(world.pods("batch")) == 1)


async def test_a_claim_that_may_not_be_read_is_no_hindrance(world: World) -> None:
    world.server.fail_next(
        100, 403, method="GET", path_prefix="/api/v1/namespaces/shop/persistentvolumeclaims"
    )
    leader = world.leader()
    await leader.lead_until(lambda: len(world.pods("batch")) == 1)


async def test_a_pod_with_many_claims_costs_few_requests(world: World) -> None:
    _claim(world, "Bound")
    names = ["disk"] * 40 + [f"disk-{number}" for number in range(40)]
    volumes = [{"persistentVolumeClaim": {"claimName": name}} for name in names]
    raw = msgspec.json.encode({"spec": {"volumes": volumes}})
    for number in range(40):
        _claim(world, "Bound", name=f"disk-{number}")
    pod = pod_of(msgspec.json.decode(raw, type=api.Pod), namespace="shop")
    held = HeldPod(pod=pod, version=1, raw=raw, release_by=Micros(0), seen_at=Micros(0))
    before = _reads(world)
    assert not await unbound_claim(world.connection, held)
    assert _reads(world) - before == MOST_CLAIMS
