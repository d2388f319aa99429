"""Replicas take allowances of large quotas: few writes, and still exact to the last pod."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

from tests.webhook.cluster.reflecting import eventually
from tests.webhook.quota.replicas import World, replicas
from webhook.admission.handler import Outcome

ADMITTED, DENIED = Outcome.ADMITTED, Outcome.QUOTA_DENIED
ALLOWANCE_SECONDS = 15.0


async def with_allowance(world: World) -> None:
    """Have the first replica admit some pods, and take an allowance for more."""
    for _ in range(4):
        assert await world.create(by=world.replicas[0]) is ADMITTED
    assert world.reserved().allowances
    await world.all_seen()


async def test_most_pods_of_a_large_quota_need_no_write(tmp_path: Path) -> None:
    async with replicas(tmp_path, 1, cpu="1000") as world:
        for _ in range(100):
            assert await world.create() is ADMITTED
        # An allowance is twice the demand of 4 s, and renewed when half of it is gone: so as many
        # pods again are drawn each time, 1, 2, 4, ... 64.
        assert world.writes() < 12


async def test_of_a_large_quota_exactly_what_fits_is_admitted(tmp_path: Path) -> None:
    async with replicas(tmp_path, cpu="20", real_time=True) as world:
        outcomes: Counter[Outcome] = Counter()
        for _ in range(8):
            outcomes.update(await world.creations(30))
        assert outcomes == {ADMITTED: 200, DENIED: 40}
        assert world.stored() == 200
        assert world.writes() < 150


async def test_an_allowance_is_given_back_when_requests_stop(tmp_path: Path) -> None:
    async with replicas(tmp_path, cpu="100") as world:
        await with_allowance(world)
        world.replicas[0].ledger.refresh_allowances()
        world.now += ALLOWANCE_SECONDS
        world.replicas[0].ledger.refresh_allowances()
        await eventually(lambda: not world.reserved().allowances)
        assert not world.reserved().by_key  # all were observed more than 10 s ago


async def test_a_replica_that_ends_gives_its_allowance_back(tmp_path: Path) -> None:
    async with replicas(tmp_path, cpu="100") as world:
        await with_allowance(world)
        await world.replicas.pop(0).stop()
        assert not world.reserved().allowances


async def test_the_allowance_of_a_crashed_replica_comes_back_in_time(tmp_path: Path) -> None:
    async with replicas(tmp_path, cpu="100") as world:
        await with_allowance(world)
        await world.crash(0)
        await world.pruned(after=89)
        assert world.reserved().allowances
        await world.pruned(after=2)  # 15 s to draw from it, and 75 s for requests to end
        assert not world.reserved().allowances


async def test_a_smaller_max_holds_for_an_allowance_as_soon_as_it_is_known(
    tmp_path: Path,
) -> None:
    async with replicas(tmp_path, 1, cpu="100") as world:
        await with_allowance(world)
        world.limit(cpu="400m")
        await eventually(lambda: world.replicas[0].knows(world.server.version))
        assert await world.create() is DENIED
