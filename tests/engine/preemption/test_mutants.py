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
        "each.pod.priority < self._pod.priority",
        "each.pod.priority <= self._pod.priority",
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
        "if not each.pod.is_protected\n            and",
        "if",
    ),
    "a quota loses its min": ("victims", "            and self._is_spare(each)\n", ""),
    "owners do not cool down": (
        "victims",
        "and not (guards and self._cools_down(each))",
        "and guards in {True, False}",
    ),
    "a gang loses some of its pods": (
        "victims",
        "if len(members) == sizes[key] <= MOST_VICTIMS:",
        "if len(members) <= MOST_VICTIMS:",
    ),
    "members of a gang are single pods": (
        "victims",
        "if key is None or key not in sizes:",
        "if True:",
    ),
    "a label without a PodGroup makes a gang": (
        "victims",
        "is_gang[key] = pod_group_of_gang(key, view) is not None",
        "is_gang[key] = True",
    ),
    "budgets do not matter": ("victims", "budgets if budgets else ()", "budgets[:0]"),
    "several nodes are never looked at": (
        "search",
        "return self._plan_for_several_nodes(groups)",
        "return None",
    ),
    "any number goes": ("search", "if len(of_row) <= MOST_VICTIMS and ", "if "),
    "pods that are leaving still count": ("search", "remove([*gone, *(", "remove([*("),
    "all of a domain go": (
        "cross_node",
        "found = fewest_enough(domain, test)",
        "found = domain if test(domain) else None",
    ),
    "more important pods go first": (
        "cross_node",
        "max(each.pod.priority for each in group),\n        len",
        "-max(each.pod.priority for each in group),\n        len",
    ),
    "quotas and budgets do not hold for pods together": (
        "cross_node",
        "if takings.take_all(group):",
        "if takings.take_all(group) or True:",
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
