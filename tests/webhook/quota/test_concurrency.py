"""Many clients and replicas at once: `max` holds, and what is free can be used."""

from __future__ import annotations

import asyncio
from collections import Counter
from pathlib import Path
from typing import Any

from tests.webhook.cluster.reflecting import eventually
from tests.webhook.quota.replicas import World, replicas
from webhook.admission.handler import Outcome

ADMITTED, DENIED, UNDECIDED = Outcome.ADMITTED, Outcome.QUOTA_DENIED, Outcome.UNDECIDED
LONG = 80.0  # beyond the time an unseen reservation is kept for


async def test_of_100_clients_at_once_exactly_40_are_admitted(tmp_path: Path) -> None:
    async with replicas(tmp_path, cpu="4") as world:
        outcomes = await world.creations(100, cpu="100m")
        assert Counter(outcomes) == {ADMITTED: 40, DENIED: 60}
        assert world.stored() == 40
        assert world.writes() < 40  # those that wait together are written together


async def test_namespaces_do_not_get_in_each_others_way(tmp_path: Path) -> None:
    names = [f"team-{i}" for i in range(10)]
    async with replicas(tmp_path, namespaces=names, pods="7") as world:
        outcomes = await world.creations(10, names)
        assert Counter(outcomes) == {ADMITTED: 70, DENIED: 30}
        assert [world.stored(name) for name in names] == [7] * 10


async def test_replicas_that_come_and_go_do_not_overrun(tmp_path: Path) -> None:
    async with replicas(tmp_path, pods="40") as world:
        for _ in range(4):
            clients = asyncio.gather(*(world.create() for _ in range(25)))
            await _written_or_done(world, clients)
            await world.crash(0)
            await clients
            await world.start()
            assert world.stored() <= 40
        await world.pruned(after=LONG)
        await world.creations(40 - world.stored())
        assert world.stored() == 40
        assert set(await world.creations(5)) == {DENIED}


async def _written_or_done(world: World, clients: asyncio.Future[list[Outcome]]) -> None:
    """Wait until a quota is written, or all clients are answered without that."""
    writes = world.writes()
    written = asyncio.ensure_future(world.server.until(lambda: world.writes() > writes))
    either: set[asyncio.Future[Any]] = {written, clients}
    await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
    written.cancel()
    await asyncio.gather(written, return_exceptions=True)


async def test_a_slow_watch_does_not_overrun(tmp_path: Path) -> None:
    async with replicas(tmp_path, pods="40") as world:
        slow = world.replicas[2]
        slow.gate.clear()
        outcomes = await world.creations(30)
        outcomes += await world.creations(30)
        assert Counter(outcomes) == {ADMITTED: 40, DENIED: 20}
        assert world.stored() == 40


async def test_a_slow_replica_waits_for_pods_that_are_no_longer_reserved(tmp_path: Path) -> None:
    async with replicas(tmp_path, 2, pods="2", cpu="1") as world:
        quick, slow = world.replicas
        slow.gate.clear()
        assert await world.create() is ADMITTED
        version = world.server.version
        await eventually(lambda: quick.observed_version >= version)
        await quick.ledger.prune_reservations()  # the pod is seen
        world.now += 11
        await quick.ledger.prune_reservations()  # for long enough
        assert not world.reserved().by_key
        await eventually(lambda: slow.knows(world.server.version))
        waiting = asyncio.gather(*(world.create(by=slow) for _ in range(2)))
        for _ in range(3):  # time enough for a write of the slow one, if it made any
            assert await world.create(by=quick, cpu="9") is DENIED
        assert not waiting.done()
        slow.gate.set()
        assert Counter(await waiting) == {ADMITTED: 1, DENIED: 1}
        assert world.stored() == 2


async def test_pods_that_a_later_step_refuses_give_their_share_back(tmp_path: Path) -> None:
    async with replicas(tmp_path, pods="9") as world:
        clients = (world.create(stored=bool(number % 3)) for number in range(9))
        assert Counter(await asyncio.gather(*clients)) == {ADMITTED: 9}
        assert world.stored() == 6
        assert await world.create() is DENIED  # they may still come
        await world.pruned(after=LONG)
        assert Counter(await world.creations(6)) == {ADMITTED: 3, DENIED: 3}
        assert world.stored() == 9


async def test_without_a_leader_that_prunes_shares_come_back_as_well(tmp_path: Path) -> None:
    async with replicas(tmp_path, 1, pods="2") as world:
        await asyncio.gather(*(world.create(stored=False) for _ in range(2)))
        assert await world.create() is DENIED
        world.now += LONG
        assert Counter(await world.creations(3)) == {ADMITTED: 2, DENIED: 1}


async def test_a_pod_that_is_deleted_gives_its_share_back_at_once(tmp_path: Path) -> None:
    async with replicas(tmp_path, pods="1") as world:
        assert await world.create() is ADMITTED
        ((namespace, name),) = world.server.objects("pods")
        await world.all_seen()
        world.server.delete("pods", namespace, name)
        await world.observed(world.server.version)
        assert await world.create() is ADMITTED
