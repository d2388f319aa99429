"""Small mistakes in the planner are caught by its examples and promises."""

from __future__ import annotations

import pytest
from hypothesis import Phase, given, settings

import engine.preemption
from tests.engine.mutants import mutated
from tests.engine.preemption.examples import EXAMPLES
from tests.engine.preemption.promises import PROMISES
from tests.engine.preemption.worlds import PreemptionWorld, worlds
from tests.engine.reclaim.promises import Planner

MUTANTS = {
    "pods of the same priority are victims": (
        "victims",
        "each.pod.priority < priority",
        "each.pod.priority <= priority",
    ),
    "what classes tolerate does not matter": (
        "victims",
        "and not (tolerations and self._is_exempt(each))",
        "and tolerations in {True, False}",
    ),
    "a class that never preempts does": (
        "planner",
        "if not is_preempting(request.pod, situation.classes):",
        "if False:",
    ),
    "protected pods are evicted": (
        "victims",
        "if not each.pod.is_protected\n                and",
        "if",
    ),
    "a quota loses its min": ("victims", "                and self._is_spare(each)\n", ""),
    "owners do not rest": (
        "victims",
        "and (not guards or guards_allow(self._situation, each))",
        "and guards in {True, False}",
    ),
    "budgets do not matter": ("victims", "budgets if budgets else ()", "budgets[:0]"),
    "several nodes are never looked at": (
        "search",
        "return (yield from self._plan_for_several_nodes(groups))",
        "return None",
    ),
    "any number goes": ("search", "if len(of_row) <= MOST_VICTIMS and ", "if "),
    "pods that are leaving still count": (
        "planner",
        "leaving = yield from situation.on_their_way_out()",
        "leaving = []; yield",
    ),
}
"""By what is wrong: the module, its text, and what stands there instead."""


def _keeps_everything(planner: Planner) -> None:
    for example in EXAMPLES:
        example(planner)

    @settings(max_examples=20, phases=[Phase.generate], derandomize=True, database=None)
    @given(world=worlds())
    def check(world: PreemptionWorld) -> None:
        for promise in PROMISES:
            promise(world, planner)

    check()


def test_a_copy_without_a_mistake_keeps_everything() -> None:
    text = "def plan_preemption("
    with mutated(engine.preemption, "planner", text, text) as copy:
        _keeps_everything(copy.plan_preemption)


@pytest.mark.parametrize(("module", "old", "new"), MUTANTS.values(), ids=MUTANTS)
def test_a_mistake_in_the_planner_is_caught(module: str, old: str, new: str) -> None:
    with mutated(engine.preemption, module, old, new) as copy, pytest.raises(AssertionError):
        _keeps_everything(copy.plan_preemption)
