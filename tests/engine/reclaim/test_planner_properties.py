from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import given

from engine.reclaim import plan_reclaim
from tests.engine.reclaim.promises import PROMISES, Planner
from tests.engine.reclaim.worlds import ReclaimWorld, worlds


@pytest.mark.parametrize("promise", PROMISES, ids=lambda promise: promise.__name__)
@given(world=worlds())
def test_every_plan_keeps_the_promise(
    promise: Callable[[ReclaimWorld, Planner], None], world: ReclaimWorld
) -> None:
    promise(world, plan_reclaim)
