from __future__ import annotations

from collections.abc import Callable

import pytest

from engine.preemption import plan_preemption
from tests.engine.preemption.examples import EXAMPLES
from tests.engine.reclaim.promises import Planner


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda example: example.__name__)
def test_victims_and_node_are_those_of_the_example(example: Callable[[Planner], None]) -> None:
    example(plan_preemption)
