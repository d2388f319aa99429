"""Small mistakes in the search are caught by its examples and promises."""

from __future__ import annotations

from functools import partial
from types import ModuleType

import pytest
from hypothesis import Phase, given, settings

import engine.eviction
from tests.engine.eviction import (
    preemption_examples,
    promises,
    reclaim_examples,
)
from tests.engine.eviction.worlds import (
    PreemptionWorld,
    ReclaimWorld,
    plan_preemption,
    plan_reclaim,
    preemption_worlds,
    worlds,
)
from tests.engine.mutants import mutated

RECLAIM_MUTANTS = {
    "a quota may be pushed below its min": (
        "quota_accounts",
        "amount > spare[name] - taken.get(name, 0)",
        "amount > spare[name] + amount",
    ),
    "what was taken of a quota before is forgotten": (
        "quota_accounts",
        "amount > spare[name] - taken.get(name, 0)",
        "amount > spare[name]",
    ),
    "a budget may lose one pod too many": (
        "quota_accounts",
        "budget is not None and self._disrupted[budget.key] >= budget",
        "budget is not None and self._disrupted[budget.key] > budget",
    ),
    "the lowest share goes first": (
        "quota_accounts",
        "(-self.share(quota, removed), ",
        "(self.share(quota, removed), ",
    ),
    "the oldest pod goes first": (
        "quota_accounts",
        "-candidate.entry.assigned_at",
        "candidate.entry.assigned_at",
    ),
    "nobody is spared on a node": (
        "nodes",
        "        yield from self._spare_unneeded(victims)\n",
        "",
    ),
    "nobody is spared in the cohort": (
        "quota_accounts",
        "return _without_unneeded(taken, needs)",
        "return taken",
    ),
    "the node with the most victims wins": (
        "nodes",
        "len(victims), self._names[row]",
        "-len(victims), self._names[row]",
    ),
    "pods that are leaving still count": (
        "nodes",
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
        "pod.namespace in situation.at_limit or (",
        "(",
    ),
    "workloads do not matter": ("plan", "pod.workload in situation.exhausted", "False"),
    "pods that are not ready stay with those that are": (
        "plan",
        "pod.is_ready and pod.workload in",
        "pod.workload in",
    ),
    "a pause of one namespace is one of all": (
        "guards",
        "now < state.pauses.get(namespace, 0)",
        "any(now < until for until in state.pauses.values())",
    ),
    "what classes tolerate does not matter": (
        "strategies",
        "return is_tolerating(",
        "return False and is_tolerating(",
    ),
    "owners do not rest": ("guards", "now >= hits.until", "now >= hits.since"),
    "filters of policies are not looked at": (
        "nodes",
        "for i, each in enumerate(enforced, 1)",
        "for i, each in enumerate(enforced[:0], 1)",
    ),
    "the cohort does not matter": (
        "strategies",
        "for name, amount in lacking.items() if amount > 0",
        "for name, amount in lacking.items() if amount < 0",
    ),
    "a pod beyond its min takes from others": (
        "strategies",
        "if is_within_min(total, accounts.used(own), accounts.guaranteed(own)):",
        "if True:",
    ),
    "a gang loses some of its pods": (
        "nodes",
        "if len(members) == sizes[key] <= MOST_VICTIMS",
        "if len(members) <= MOST_VICTIMS",
    ),
    "members of a gang are single pods": (
        "nodes",
        "if key is None or key not in sizes:",
        "if True:",
    ),
    "a label without a PodGroup makes a gang": (
        "nodes",
        "if named[key] > 0 and pod_group_of_gang(key, view) is not None",
        "if named[key] > 0",
    ),
    "all of a domain go": (
        "nodes",
        "found = yield from fewest_enough(domain, test)",
        "found = domain if test(domain) else None",
    ),
    "more important gangs go first": (
        "nodes",
        "max(each.pod.priority for each in group),\n        len",
        "-max(each.pod.priority for each in group),\n        len",
    ),
    "quotas and budgets do not hold for a gang together": (
        "nodes",
        "if len(group) <= left and takings.take_all(group):",
        "if takings.take_all(group) or True:",
    ),
    "a gang makes room on a node alone, not in the cohort": (
        "nodes",
        "if self._needs and not covers(",
        "if False and not covers(",
    ),
}
PREEMPTION_MUTANTS = {
    "pods of the same priority are victims": (
        "strategies",
        "candidate.pod.priority < priority",
        "candidate.pod.priority <= priority",
    ),
    "what classes tolerate does not matter": (
        "search",
        "and strategy.is_exempt(each, preemptor)",
        "and False",
    ),
    "a class that never preempts does": (
        "strategies",
        "if not is_preempting(request.pod, situation.classes):",
        "if False:",
    ),
    "protected pods are evicted": (
        "search",
        "or pod.is_protected\n",
        "\n",
    ),
    "a quota loses its min": ("strategies", "return pushed if is_spare else None", "return pushed"),
    "owners do not rest": (
        "search",
        "if (not protections.guards or guards_allow(situation, each))",
        "if True",
    ),
    "budgets do not matter": ("search", "situation.budgets if is_counted", "() if is_counted"),
    "several nodes are never looked at": (
        "search",
        "return (yield from self._plan_for_several_nodes(groups))",
        "return None",
    ),
    "any number goes": ("search", "(most is None or len(chosen) <= most)", "True"),
    "pods that are leaving still count": (
        "search",
        "leaving = yield from situation.on_their_way_out()",
        "leaving = []; yield",
    ),
}
"""By what is wrong: the module, its text, and what stands there instead."""


def _reclaim_keeps_everything(package: ModuleType) -> None:
    for example in reclaim_examples.EXAMPLES:
        example(partial(plan_reclaim, package=package))

    @settings(max_examples=50, phases=[Phase.generate], derandomize=True, database=None)
    @given(world=worlds())
    def check(world: ReclaimWorld) -> None:
        for promise in promises.OF_RECLAIM:
            promise(world, partial(plan_reclaim, package=package))

    check()


def _preemption_keeps_everything(package: ModuleType) -> None:
    for example in preemption_examples.EXAMPLES:
        example(partial(plan_preemption, package=package))

    @settings(max_examples=20, phases=[Phase.generate], derandomize=True, database=None)
    @given(world=preemption_worlds())
    def check(world: PreemptionWorld) -> None:
        for promise in promises.OF_PREEMPTION:
            promise(world, partial(plan_preemption, package=package))

    check()


def test_a_copy_without_a_mistake_keeps_everything() -> None:
    text = "class Search:"
    with mutated(engine.eviction, "search", text, text) as copy:
        _reclaim_keeps_everything(copy)
        _preemption_keeps_everything(copy)


@pytest.mark.parametrize(("module", "old", "new"), RECLAIM_MUTANTS.values(), ids=RECLAIM_MUTANTS)
def test_a_mistake_in_reclaim_is_caught(module: str, old: str, new: str) -> None:
    with mutated(engine.eviction, module, old, new) as copy, pytest.raises(AssertionError):
        _reclaim_keeps_everything(copy)


@pytest.mark.parametrize(
    ("module", "old", "new"), PREEMPTION_MUTANTS.values(), ids=PREEMPTION_MUTANTS
)
def test_a_mistake_in_preemption_is_caught(module: str, old: str, new: str) -> None:
    with mutated(engine.eviction, module, old, new) as copy, pytest.raises(AssertionError):
        _preemption_keeps_everything(copy)
