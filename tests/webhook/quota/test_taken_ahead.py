"""Replicas take room of large quotas ahead: few writes, and still exact to the last pod."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

from tests.webhook.cluster.reflecting import eventually
from tests.webhook.quota.replicas import World, replicas
from webhook.admission.review_result import Outcome

ADMITTED, DENIED = Outcome.ADMITTED, Outcome.QUOTA_DENIED
LENDING_SECONDS = 15.0


async def taken(world: World) -> None:
    """Have the first replica admit some pods, and take room for more."""
    for _ in range(4):
        assert await world.create(by=world.replicas[0]) is ADMITTED
    assert world.reserved().allowances
    await world.all_seen()


async def test_most_pods_of_a_large_quota_need_no_write(tmp_path: Path) -> None:
    async with replicas(tmp_path, 1, cpu="1000") as world:
        for _ in range(100):
            assert await world.create() is ADMITTED
        # Twice as much is taken ahead as was asked for in 4 s, and renewed when half of it is gone:
        # so as many pods again are drawn each time, 1, 2, 4, ... 64.
        assert world.writes() < 12


async def test_of_a_large_quota_exactly_what_fits_is_admitted(tmp_path: Path) -> None:
    async with replicas(tmp_path, cpu="20", real_time=True) as world:
        outcomes: Counter[Outcome] = Counter()
        for _ in range(8):
            outcomes.update(await world.creations(30))
        assert outcomes == {ADMITTED: 200, DENIED: 40}
        assert world.stored() == 200
        assert world.writes() < 150


async def test_what_was_taken_ahead_is_given_back_where_nobody_asks(tmp_path: Path) -> None:
    async with replicas(tmp_path, cpu="100") as world:
        await taken(world)
        world.replicas[0].ledger.refresh_allowances()
        world.now += LENDING_SECONDS
        world.replicas[0].ledger.refresh_allowances()
        await eventually(lambda: not world.reserved().allowances)
        assert not world.reserved().by_key  # all were seen more than 10 s ago


async def test_who_ends_gives_back_what_was_taken_ahead(tmp_path: Path) -> None:
    async with replicas(tmp_path, cpu="100") as world:
        await taken(world)
        await world.replicas.pop(0).stop()
        assert not world.reserved().allowances


async def test_what_a_crashed_replica_took_ahead_comes_back_in_time(tmp_path: Path) -> None:
    async with replicas(tmp_path, cpu="100") as world:
        await taken(world)
        await world.crash(0)
        await world.tidied(after=89)
        assert world.reserved().allowances
        await world.tidied(after=2)  # 15 s to draw from it, and 75 s for requests to end
        assert not world.reserved().allowances


async def test_a_smaller_max_holds_for_what_was_taken_ahead_as_soon_as_it_is_known(
    tmp_path: Path,
) -> None:
    async with replicas(tmp_path, 1, cpu="100") as world:
        await taken(world)
        world.limit(cpu="400m")
        await eventually(lambda: world.replicas[0].knows(world.server.version))
        assert await world.create() is DENIED
