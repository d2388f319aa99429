from __future__ import annotations

from hypothesis import given

from engine.preemption import plan_preemption
from tests.engine.preemption.promises import PROMISES
from tests.engine.preemption.worlds import PreemptionWorld, worlds


@given(world=worlds())
def test_every_plan_keeps_all_promises(world: PreemptionWorld) -> None:
    for promise in PROMISES:
        promise(world, plan_preemption)
