"""Small mistakes in the planner are caught by its examples and promises."""

from __future__ import annotations

import pytest
from hypothesis import Phase, given, settings

import engine.reclaim
from tests.engine.mutants import mutated
from tests.engine.reclaim.examples import EXAMPLES
from tests.engine.reclaim.promises import PROMISES, Planner
from tests.engine.reclaim.worlds import ReclaimWorld, worlds

MUTANTS = {
    "a quota may be pushed below its min": (
        "borrowers",
        "amount > spare[name] - taken.get(name, 0)",
        "amount > spare[name] + amount",
    ),
    "what was taken of a quota before is forgotten": (
        "borrowers",
        "amount > spare[name] - taken.get(name, 0)",
        "amount > spare[name]",
    ),
    "a budget may lose one pod too many": (
        "borrowers",
        ">= budget.disruptions_allowed",
        "> budget.disruptions_allowed",
    ),
    "the lowest share goes first": (
        "borrowers",
        "(-self.share(quota, removed), ",
        "(self.share(quota, removed), ",
    ),
    "the oldest pod goes first": (
        "borrowers",
        "-borrower.entry.assigned_at",
        "borrower.entry.assigned_at",
    ),
    "nobody is spared on a node": (
        "node_search",
        "        yield from self._spare_unneeded(victims)\n",
        "",
    ),
    "nobody is spared in the cohort": (
        "borrowers",
        "return _without_unneeded(taken, needs)",
        "return taken",
    ),
    "the node with the most victims wins": (
        "node_search",
        "len(victims), self._names[row]",
        "-len(victims), self._names[row]",
    ),
    "pods that are leaving still count": (
        "preemptor",
        "what_if.remove([*gone, *(",
        "what_if.remove([*(",
    ),
    "pods that have not come back are spared with those that have": (
        "guards",
        "or assigned_at <= hits.since",
        "",
    ),
    "limits of namespaces do not matter": (
        "plan",
        "pod.namespace not in situation.at_limit and",
        "",
    ),
    "a pause of one namespace is one of all": (
        "guards",
        "now < state.pauses.get(namespace, 0)",
        "any(now < until for until in state.pauses.values())",
    ),
    "what classes tolerate does not matter": (
        "search",
        "and not is_tolerating(",
        "and True or not is_tolerating(",
    ),
    "owners do not rest": ("guards", "now >= hits.until", "now >= hits.since"),
    "filters of policies are not looked at": (
        "node_fit",
        "for i, each in enumerate(enforced, 1)",
        "for i, each in enumerate(enforced[:0], 1)",
    ),
    "the cohort does not matter": (
        "search",
        "if amount > 0}\n\n    def _all_borrowing",
        "if amount < 0}\n\n    def _all_borrowing",
    ),
    "a pod beyond its min takes from others": (
        "planner",
        "if not search.is_within_min:",
        "if False:",
    ),
    "a gang loses some of its pods": (
        "groups",
        "if len(members) == sizes[key] <= MOST_VICTIMS",
        "if len(members) <= MOST_VICTIMS",
    ),
    "members of a gang are single pods": (
        "groups",
        "if key is None or key not in sizes:",
        "if True:",
    ),
    "a label without a PodGroup makes a gang": (
        "groups",
        "if named[key] > 0 and pod_group_of_gang(key, view) is not None",
        "if named[key] > 0",
    ),
    "all of a domain go": (
        "cross_node",
        "found = yield from fewest_enough(domain, test)",
        "found = domain if test(domain) else None",
    ),
    "more important gangs go first": (
        "cross_node",
        "max(each.pod.priority for each in group),\n        len",
        "-max(each.pod.priority for each in group),\n        len",
    ),
    "quotas and budgets do not hold for a gang together": (
        "cross_node",
        "if len(group) <= left and takings.take_all(group):",
        "if takings.take_all(group) or True:",
    ),
    "a gang makes room on a node alone, not in the cohort": (
        "cross_node",
        "if self._needs and not covers(",
        "if False and not covers(",
    ),
}
"""By what is wrong: the module, its text, and what stands there instead."""


def _keeps_everything(planner: Planner) -> None:
    for example in EXAMPLES:
        example(planner)

    @settings(max_examples=50, phases=[Phase.generate], derandomize=True, database=None)
    @given(world=worlds())
    def check(world: ReclaimWorld) -> None:
        for promise in PROMISES:
            promise(world, planner)

    check()


def test_a_copy_without_a_mistake_keeps_everything() -> None:
    text = "def plan_reclaim("
    with mutated(engine.reclaim, "planner", text, text) as copy:
        _keeps_everything(copy.plan_reclaim)


@pytest.mark.parametrize(("module", "old", "new"), MUTANTS.values(), ids=MUTANTS)
def test_a_mistake_in_the_planner_is_caught(module: str, old: str, new: str) -> None:
    with mutated(engine.reclaim, module, old, new) as copy, pytest.raises(AssertionError):
        _keeps_everything(copy.plan_reclaim)
