from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from engine.model.hold import RELEASING_ANNOTATION
from tests.fake_api_server import FakeApiServer, fake_api_server
from webhook.cli.release import releasing_holder
from webhook.cluster.client.connection import ApiError, connected

NOON = datetime(2026, 1, 5, 12, 0, tzinfo=UTC)


class World:
    """A Lease, and somebody who watches it; time passes as they wait."""

    def __init__(self, server: FakeApiServer) -> None:
        self.server = server
        self.seconds = 0.0
        self.happens: Callable[[float], None] = lambda _: None
        self._renewals = 0

    def lease(
        self, *, age: float, holder: str = "replica-a", releasing: str | None = "true"
    ) -> None:
        """Write the Lease, renewed some seconds ago by the clock of its holder."""
        renewed = NOON + timedelta(seconds=self.seconds - age)
        self._renewals += 1
        noted = {} if releasing is None else {RELEASING_ANNOTATION: releasing}
        lease = {
            "apiVersion": "coordination.k8s.io/v1",
            "kind": "Lease",
            "metadata": {"name": "stowplan", "namespace": "system", "annotations": noted},
            "spec": {
                "holderIdentity": holder,
                "renewTime": f"{renewed:%Y-%m-%dT%H:%M:%S.%fZ}",
                "leaseTransitions": self._renewals,
            },
        }
        if ("system", "stowplan") in self.server.objects("leases"):
            self.server.replace(lease)
        else:
            self.server.create(lease)

    async def holder(self, folder: Path) -> str:
        async def sleep(seconds: float) -> None:
            self.seconds += seconds
            self.happens(self.seconds)

        async with connected(self.server.kubeconfig(folder), None) as connection:
            return await releasing_holder(
                connection,
                "system",
                "stowplan",
                clock=lambda: self.seconds,
                now=lambda: NOON + timedelta(seconds=self.seconds),
                sleep=sleep,
            )


@pytest.fixture
async def world() -> AsyncIterator[World]:
    async with fake_api_server() as server:
        yield World(server)


async def test_without_a_lease_nobody_releases(world: World, tmp_path: Path) -> None:
    assert await world.holder(tmp_path) == ""
    assert world.seconds == 0


@pytest.mark.parametrize("age", [0.0, 3_600.0, -3_600.0])  # two clocks need not agree
async def test_whoever_is_seen_to_renew_releases(world: World, tmp_path: Path, age: float) -> None:
    world.lease(age=age)
    world.happens = lambda now: world.lease(age=age) if now == 4 else None
    assert await world.holder(tmp_path) == "replica-a"
    assert world.seconds == 4


async def test_a_lease_that_is_old_already_is_watched_for_one_term(
    world: World, tmp_path: Path
) -> None:
    world.lease(age=60)
    assert await world.holder(tmp_path) == ""
    assert world.seconds == 16  # 15, in steps of 2


@pytest.mark.parametrize(("age", "seconds"), [(0.0, 60), (-3_600.0, 60), (30.0, 30)])
async def test_a_lease_that_is_young_is_watched_until_it_is_not(
    world: World, tmp_path: Path, age: float, seconds: int
) -> None:
    world.lease(age=age)
    assert await world.holder(tmp_path) == ""
    assert world.seconds == seconds


@pytest.mark.parametrize("releasing", [None, "false"])
async def test_a_leader_that_renews_and_does_not_release_counts_for_nothing(
    world: World, tmp_path: Path, releasing: str | None
) -> None:
    world.lease(age=0)
    world.happens = lambda _: world.lease(age=0, releasing=releasing)
    assert await world.holder(tmp_path) == ""
    assert world.seconds == 60


async def test_a_lease_that_is_given_up_is_no_renewal_and_its_next_holder_is(
    world: World, tmp_path: Path
) -> None:
    def happens(now: float) -> None:
        if now == 2:
            world.lease(age=0, holder="")
        if now == 6:
            world.lease(age=0, holder="replica-b")

    world.lease(age=0)
    world.happens = happens
    assert await world.holder(tmp_path) == "replica-b"
    assert world.seconds == 6


async def test_a_lease_that_cannot_be_read_is_an_error(world: World, tmp_path: Path) -> None:
    world.lease(age=0)
    world.server.fail_next(1, 403)
    with pytest.raises(ApiError):
        await world.holder(tmp_path)
