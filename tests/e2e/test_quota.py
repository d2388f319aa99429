"""`max` of an ElasticQuota holds on a real API server, whatever replicas go through."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from engine.quota import AllowanceConfig
from tests.e2e.cluster import Cluster, eventually
from tests.e2e.control_plane import ControlPlane
from tests.e2e.installed import FailurePolicy, Installed
from tests.e2e.namespaces import new_names, passing_namespaces
from tests.e2e.quotas import LARGE_ROOM, ROOM, Shop, enforced, one_on_a_link
from tests.e2e.workloads import deployment

WATCH_DELAY_SECONDS = 5

pytestmark = pytest.mark.usefixtures("crds")


@pytest.fixture
async def stowplan(
    crds: None,  # noqa: ARG001 (they must be there when replicas start)
    cluster: Cluster,
    control_plane: ControlPlane,
    tmp_path: Path,
) -> AsyncIterator[Installed]:
    """Three replicas that enforce quotas, asked with the failure policy `Fail`."""
    async with enforced(cluster, control_plane, tmp_path) as installed:
        yield installed


@pytest.fixture
async def shop(cluster: Cluster, stowplan: Installed, namespace: str) -> Shop:
    """One namespace with room for 40 pods."""
    shop = Shop(cluster, [namespace])
    await shop.limit(stowplan)
    return shop


async def test_of_100_clients_at_once_exactly_40_find_room(shop: Shop) -> None:
    await shop.assert_filled_by(await shop.burst(retry=True), clients=100)


async def test_ten_namespaces_are_filled_at_once_to_the_last_pod(
    cluster: Cluster, stowplan: Installed
) -> None:
    async with passing_namespaces(cluster, *new_names(10)) as namespaces:
        shop = Shop(cluster, namespaces)
        await shop.limit(stowplan)
        await shop.assert_filled_by(await shop.burst(retry=True), clients=1_000)


async def test_a_large_quota_is_filled_to_the_last_pod(
    cluster: Cluster, stowplan: Installed, namespace: str
) -> None:
    shop = Shop(cluster, [namespace], room=LARGE_ROOM)
    await shop.limit(stowplan)
    outcomes = await shop.burst(each=LARGE_ROOM + 100, retry=True)
    written = sum([(await one.quota_writes())["written"] for one in stowplan.replicas])
    assert written < LARGE_ROOM / 2, "room is taken ahead"
    ahead = LARGE_ROOM // AllowanceConfig().share  # of a replica whose write was given up
    await shop.assert_filled_by(outcomes, clients=LARGE_ROOM + 100, ahead=ahead)


async def test_replicas_that_are_killed_and_started_do_not_overrun(
    shop: Shop, stowplan: Installed
) -> None:
    for replica in stowplan.replicas:
        await shop.burst_in_which(replica.kill, each=20)
        assert await shop.overshoot() == 0
        await asyncio.to_thread(replica.start)
    await shop.fills_up()
    assert await shop.stored() == [40]


async def test_a_replica_that_hears_5_seconds_late_does_not_overrun(
    shop: Shop, stowplan: Installed, control_plane: ControlPlane, tmp_path: Path
) -> None:
    async with one_on_a_link(stowplan, control_plane, tmp_path) as link:
        link.watch_delay_seconds = WATCH_DELAY_SECONDS
        outcomes = await shop.burst(each=30, retry=True)
        outcomes += await shop.burst(each=70, retry=True)
        await shop.assert_filled_by(outcomes, clients=100)


async def test_shares_of_pods_that_a_later_step_refuses_come_back(shop: Shop) -> None:
    await shop.refuse_deadlines()
    outcomes = await shop.burst(unwanted=True, retry=True)
    # A share that a failed attempt has reserved comes back later.
    assert 40 - outcomes["failed"] <= outcomes["admitted"] + outcomes["refused"] <= 40
    assert outcomes["refused"] > 0
    assert await shop.stored() == [outcomes["admitted"]]
    await shop.fills_up()
    assert await shop.stored() == [40]


async def test_a_deployment_gets_as_many_pods_as_there_is_room_for(
    shop: Shop, cluster: Cluster
) -> None:
    (namespace,) = shop.namespaces
    await cluster.create(deployment(namespace, "web", replicas=ROOM + 20, requests={"cpu": "100m"}))

    async def full() -> bool:
        return await shop.stored() == [40]

    await eventually(full, "the Deployment fills the quota")
    assert await shop.create(namespace) == "denied"
    for obj in (await cluster.list_all("pods", namespace))[:5]:
        await cluster.delete("pods", obj["metadata"]["name"], namespace, grace_seconds=0)
    await eventually(full, "deleted pods are replaced")
    assert await shop.create(namespace) == "denied"


@pytest.mark.parametrize(("policy", "outcome"), [("Fail", "failed"), ("Ignore", "admitted")])
async def test_while_no_replica_reaches_the_api_server_the_failure_policy_decides_in_time(
    policy: FailurePolicy,
    outcome: str,
    cluster: Cluster,
    control_plane: ControlPlane,
    namespace: str,
    tmp_path: Path,
) -> None:
    async with (
        enforced(cluster, control_plane, tmp_path, replicas=1, failure_policy=policy) as stowplan,
        one_on_a_link(stowplan, control_plane, tmp_path) as link,
    ):
        shop = Shop(cluster, [namespace])
        await shop.limit(stowplan)
        assert await shop.create(namespace) == "admitted"
        link.open.clear()
        assert await shop.burst(each=20) == {outcome: 20}
        (replica,) = stowplan.replicas
        said = Counter(await replica.reviews("validate"))
        assert said["deadline"] + said["undecided"] == 20, "the API server had to wait for us"
        link.open.set()
        await eventually(lambda: is_judged(shop, namespace), "quotas are judged again")


async def is_judged(shop: Shop, namespace: str) -> bool:
    return await shop.create(namespace) in ("admitted", "denied")
