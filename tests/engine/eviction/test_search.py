from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import given

from tests.engine.eviction import preemption_examples, promises, reclaim_examples
from tests.engine.eviction.promises import Planner
from tests.engine.eviction.worlds import (
    PreemptionWorld,
    ReclaimWorld,
    plan_preemption,
    plan_reclaim,
    preemption_worlds,
    worlds,
)

Example = Callable[[Planner], None]


@pytest.mark.parametrize("example", reclaim_examples.EXAMPLES, ids=lambda example: example.__name__)
def test_victims_and_node_of_reclaim_are_those_of_the_example(example: Example) -> None:
    example(plan_reclaim)


@pytest.mark.parametrize(
    "example", preemption_examples.EXAMPLES, ids=lambda example: example.__name__
)
def test_victims_and_node_of_preemption_are_those_of_the_example(example: Example) -> None:
    example(plan_preemption)


@given(world=worlds())
def test_every_plan_of_reclaim_keeps_all_promises(world: ReclaimWorld) -> None:
    for promise in promises.OF_RECLAIM:
        promise(world, plan_reclaim)


@given(world=preemption_worlds())
def test_every_plan_of_preemption_keeps_all_promises(world: PreemptionWorld) -> None:
    for promise in promises.OF_PREEMPTION:
        promise(world, plan_preemption)
