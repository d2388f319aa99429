from __future__ import annotations

from hypothesis import given

from engine.reclaim import plan_reclaim
from tests.engine.reclaim.promises import PROMISES
from tests.engine.reclaim.worlds import ReclaimWorld, worlds


@given(world=worlds())
def test_every_plan_keeps_all_promises(world: ReclaimWorld) -> None:
    for promise in PROMISES:
        promise(world, plan_reclaim)
