from __future__ import annotations

from tests.webhook.controllers.gang.members import members
from tests.webhook.controllers.release.controller_world import World


async def test_nothing_smaller_overtakes_a_gang_that_has_waited_for_long(world: World) -> None:
    members(world, "one", "two", "three", "four", minimum=4)
    replica = world.replica()
    await replica.cycle()
    world.seconds += 601
    await replica.cycle()
    assert sum(replica.counted().values()) == 3
    world.create("single", "shop", "3", gated=True, created="2026-01-02T03:14:00Z")
    await replica.cycle()
    assert not world.releases()
    world.node("d")
    world.seconds += 3
    await replica.cycle()
    nodes = {world.released(name) for name in ("one", "two", "three", "four")}
    assert nodes == {"a", "b", "c", "d"}


async def test_room_kept_for_a_gang_that_waited_is_let_go_with_it(world: World) -> None:
    members(world, "one", "two", "three", "four", minimum=4)
    replica = world.replica()
    world.seconds += 601
    await replica.cycle()
    world.delete("four")
    await replica.cycle()
    assert not replica.counted()
