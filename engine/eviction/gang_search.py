"""The search for the victims of a gang: all of its members get room, or nobody is evicted."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Final, TypeAlias

import numpy as np

from engine.batch import StartingGang, Trial, domains_of_gang, place_all, place_gang
from engine.errors import counted
from engine.eviction.candidates import Candidate
from engine.eviction.nodes import MOST_VICTIMS, Preemptor, importance_of_group
from engine.eviction.plan import NoPlan, NoPlanReason, Plan, Situation, victims_of
from engine.eviction.quota_accounts import less
from engine.eviction.search import Search, of_obstacle
from engine.eviction.steps import (
    BoundedTest,
    Steps,
    TooManySetsError,
    emptied,
    fewest_enough,
    parts_of,
)
from engine.eviction.strategies import ALL_HOLD, Protections, Strategy
from engine.gang import Gang, min_resources_gap, pod_group_of_gang
from engine.model.decision import PlacementRequest
from engine.model.disruption_budget import DisruptionBudget
from engine.model.pod import Pod
from engine.model.pod_shape import PodShape
from engine.model.resources import Amounts
from engine.view import NO_ROW, BoolColumn, ClusterView, WhatIf, quota_requests

_MOST_SETS: Final = 64
"""Sets of victims that the whole gang is placed without, to spare those that are not needed."""

_MOST_DOMAINS: Final = 4
"""In which room is made for a gang that runs in one; those with the least room come first."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NeedyGang:
    """A gang that others may be evicted for.

    Attributes:
        gang: the gang.
        members: those that are to start; at least one.
        running: nodes and shapes of the members that run.
    """

    gang: Gang
    members: StartingGang
    running: Sequence[tuple[str, PodShape]] = ()


def plan_for_gang(
    gangs: Sequence[NeedyGang], strategy: Strategy, situation: Situation
) -> Steps[Plan | NoPlan]:
    """Return which pods are to be evicted so that gangs start together.

    The same arguments always give the same plan. After it all members have room, placed as they are
    when they are released, and so has the cohort; victims of preemption have a lower priority than
    any member. Else it holds what is said of `plan_for_pod`.

    Args:
        gangs: those that start together.
        strategy: who may be evicted, with the quotas that members count for.
        situation: all else; no member counts on its view.
    """
    # 1. For some gangs nobody is evicted, now or ever.
    requests = [request for each in gangs for request in each.members.requests]
    refused = strategy.refusal(requests, situation)
    if refused is not None:
        return refused
    leaving = yield from situation.on_their_way_out()
    first = Preemptor(requests[0], situation, leaving)
    refused = strategy.quota_refusal(requests, first.accounts, is_gang=True)
    if refused is not None:
        return refused
    if first.fit.stale:
        return NoPlan(reason=NoPlanReason.STALE, message=", ".join(first.fit.stale.values()))

    # 2. With the pods that are leaving gone there may be room already.
    possible = yield from _possible_victims(gangs, strategy, situation, leaving)
    needs = strategy.needs(requests, leaving, situation)

    def search(protections: Protections = ALL_HOLD) -> GangSearch:
        return GangSearch(gangs, situation, strategy, leaving, possible, needs, protections)

    if search().nodes_without(()):
        text = "there is room, or pods that leave make some"
        return NoPlan(reason=NoPlanReason.NOT_NEEDED, message=text)
    yield

    # 3. Find victims for all members, or say what is in the way.
    plan = yield from search().plan()
    if plan is not None:
        return plan
    for reason, text, without in strategy.obstacles if possible else ():
        plan = yield from search(without).plan()
        if plan is not None:
            return of_obstacle(plan, strategy, reason, text)
    text = f"no {MOST_VICTIMS} {strategy.victims_text} make room for all of it"
    return NoPlan(reason=NoPlanReason.NO_VICTIMS, message=text)


def _possible_victims(
    gangs: Sequence[NeedyGang],
    strategy: Strategy,
    situation: Situation,
    leaving: Sequence[Candidate],
) -> Steps[list[Candidate]]:
    """Return the pods that may be victims for all members, even if something protects them."""
    gone, own = {each.pod.uid for each in leaving}, {each.gang.key for each in gangs}
    least = min(request.pod.priority for each in gangs for request in each.members.requests)
    found = list[Candidate]()
    for part in parts_of(situation.candidates):
        found += [
            each
            for each in part
            if strategy.is_possible(each, least)
            and each.pod.gang not in own
            and not (each.pod.is_protected or each.pod.uid in gone or each.entry.row == NO_ROW)
        ]
        yield
    return found


_Taken: TypeAlias = Sequence[Candidate]


class GangSearch:
    """The search for victims for all members of gangs that start together.

    Members are placed one after the other, exactly as when they are released. The first that finds
    no node gets room as a pod by itself would; then all are placed again. In the end those
    that are not needed for all of them are spared.

    INVARIANT: no member counts on a node of the view. `needs` must be freed for all of them in the
    cohort of their quota, each above 0.
    """

    def __init__(
        self,
        gangs: Sequence[NeedyGang],
        situation: Situation,
        strategy: Strategy,
        leaving: Sequence[Candidate],
        possible: Sequence[Candidate],
        needs: Amounts,
        protections: Protections = ALL_HOLD,
    ) -> None:
        self._gangs = gangs
        self._situation = situation
        self._strategy = strategy
        self._leaving = leaving
        self._possible = possible
        self._needs = needs
        self._protections = protections
        self._by_uid = {each.pod.uid: each for each in possible}

    def nodes_without(self, taken: _Taken) -> list[str]:
        """Return the node of each member with some pods gone; empty where not all have room."""
        if self._lacking(taken):
            return []
        what_if = self._without(taken)
        for each in self._gangs:
            if min_resources_gap(each.gang, what_if.view, each.running):
                return []
        nodes: list[str] = []
        for each in self._gangs:
            trial = self._placed(each, what_if)
            if trial.failed is not None:
                return []
            nodes += trial.nodes
        return nodes

    def plan(self) -> Steps[Plan | None]:
        """Return the victims and the nodes of all members; None where none are found."""
        taken: list[Candidate] = []
        for number in range(len(self._gangs)):
            more = yield from self._room_for(number, taken)
            if more is None:
                return None
            taken = more
        taken = yield from self._with_cohort(taken)
        if not self.nodes_without(taken):
            return None
        needed = yield from self._needed(taken)
        nodes = self.nodes_without(needed)
        yield
        return self._plan(needed, nodes)

    def _with_cohort(self, taken: list[Candidate]) -> Steps[list[Candidate]]:
        """Return pods with those elsewhere that the cohort needs in addition."""
        lacking = self._lacking(taken)
        if not lacking:
            return taken
        search = self._search(self._gangs[0].members.requests[0], (), taken)
        possible = yield from search.victims(self._protections)
        found = yield from search.covering(possible, lacking)
        more = [self._by_uid[each.pod.uid] for each in found]
        yield from emptied(possible)
        yield from search.end()
        return [*taken, *more] if len(taken) + len(more) <= MOST_VICTIMS else taken

    def _lacking(self, taken: _Taken) -> Amounts:
        """Return what the cohort lacks still with some pods gone, each above 0."""
        left = dict(self._needs)
        for each in taken if left else ():
            left = less(left, quota_requests(each.entry.shape))
        return {name: left[name] for name in self._needs if left[name] > 0}

    def _room_for(self, number: int, taken: list[Candidate]) -> Steps[list[Candidate] | None]:
        """Return the pods to be evicted so that a gang has room next to those before it."""
        gang = self._gangs[number].members
        if gang.topology is None or not gang.topology.required:
            return (yield from self._room_among(number, taken, None))
        found: list[list[Candidate]] = []
        for nodes in self._domains(number):
            within = yield from self._room_among(number, taken, nodes)
            if within is not None:
                found.append(within)
            yield
        return min(found, key=_cost, default=None)

    def _domains(self, number: int) -> Iterator[BoolColumn]:
        """Yield the nodes of domains that hold a gang if nobody is on them who may go."""
        situation, gang = self._situation, self._gangs[number].members
        what_if, _ = self._beside(number, self._possible)
        for rows in domains_of_gang(
            gang,
            situation.policies,
            what_if.view,
            situation.now,
            most=_MOST_DOMAINS,
            scope=situation.scope,
            freshness=situation.freshness,
        ):
            nodes = np.zeros(len(situation.view), np.bool_)
            nodes[rows] = True
            yield nodes

    def _room_among(
        self, number: int, taken: list[Candidate], nodes: BoolColumn | None
    ) -> Steps[list[Candidate] | None]:
        """Return the pods to be evicted so that some nodes hold a gang, those given included."""
        gang, taken = self._gangs[number].members, list(taken)
        while True:
            what_if, before = self._beside(number, taken)
            trial = self._trial(gang, what_if.view, nodes)
            yield
            if trial.failed is None:
                return taken
            beside = [*before, *_placements(gang.requests, trial)]
            search = self._search(gang.requests[trial.failed], beside, taken, nodes)
            possible = yield from search.victims(self._protections)
            plan = yield from search.plan(possible)
            yield from emptied(possible)
            yield from search.end()
            if plan is None or len(taken) + len(plan.victims) > MOST_VICTIMS:
                return None
            taken += [self._by_uid[victim.uid] for victim in plan.victims]

    def _search(
        self,
        request: PlacementRequest,
        beside: Sequence[tuple[Pod, str]],
        taken: _Taken,
        nodes: BoolColumn | None = None,
    ) -> Search:
        """Return the search for victims for one member: those before it count, as do all others.

        What the cohort needs is found for all members together.
        """
        situation, what_if = self._situation, WhatIf(self._situation.view)
        if beside:
            rows = [situation.view.rows[name] for _, name in beside]
            what_if.place_each([pod for pod, _ in beside], rows)
        budgets = [_left_of(budget, taken) for budget in situation.budgets]
        return Search(
            request,
            self._strategy,
            replace(situation, view=what_if.view, budgets=budgets),
            [*self._leaving, *taken],
            nodes=nodes,
            among=self._by_uid,
        )

    def _beside(self, number: int, taken: _Taken) -> tuple[WhatIf, list[tuple[Pod, str]]]:
        """Return the cluster as it is for a gang, with the members of those before it, and these.

        INVARIANT: those have room without the pods that are taken.
        """
        what_if, placed = self._without(taken), list[tuple[Pod, str]]()
        for each in self._gangs[:number]:
            placed += _placements(each.members.requests, self._placed(each, what_if))
        return what_if, placed

    def _without(self, taken: _Taken) -> WhatIf:
        """Return the cluster without the pods that are leaving, and without some more."""
        what_if = WhatIf(self._situation.view)
        gone = {each.pod.uid: each for each in (*self._leaving, *taken)}
        what_if.remove(
            [(each.pod.key, each.entry) for each in gone.values() if each.entry.row != NO_ROW]
        )
        return what_if

    def _placed(self, gang: NeedyGang, what_if: WhatIf) -> Trial:
        """Place a gang on a cluster as when it is released, as far as there is room."""
        situation, view = self._situation, what_if.view
        trial = place_gang(
            gang.members,
            situation.policies,
            view,
            situation.now,
            scope=situation.scope,
            freshness=situation.freshness,
        ).trial
        if placements := _placements(gang.members.requests, trial):
            what_if.place_each(
                [pod for pod, _ in placements], [view.rows[name] for _, name in placements]
            )
        return trial

    def _trial(self, gang: StartingGang, view: ClusterView, nodes: BoolColumn | None) -> Trial:
        situation = self._situation
        return place_all(
            gang.requests,
            situation.policies,
            view,
            situation.now,
            rows=None if nodes is None else nodes.nonzero()[0],
            scope=situation.scope,
            freshness=situation.freshness,
        )

    def _needed(self, taken: _Taken) -> Steps[list[Candidate]]:
        """Return the pods without those that are not needed, the most important spared first."""

        def is_enough(groups: Sequence[_Taken]) -> bool:
            return bool(self.nodes_without([each for group in groups for each in group]))

        ordered = sorted(self._together(taken), key=importance_of_group)
        try:
            needed = yield from fewest_enough(ordered, BoundedTest(is_enough, _MOST_SETS))
        except TooManySetsError:
            needed = ordered
        return [each for group in needed or ordered for each in group]

    def _together(self, taken: _Taken) -> list[list[Candidate]]:
        """Return pods by whom they go with: a gang as a whole, others alone."""
        groups: dict[object, list[Candidate]] = {}
        for each in taken:
            gang, view = each.pod.gang, self._situation.view
            is_gang = gang is not None and pod_group_of_gang(gang, view) is not None
            groups.setdefault(gang if is_gang else each.pod.uid, []).append(each)
        return list(groups.values())

    def _plan(self, taken: _Taken, nodes: Sequence[str]) -> Plan:
        gangs = ", ".join(f"`{each.gang.key}`" for each in self._gangs)
        most = max(each.pod.priority for each in taken)
        return Plan(
            node_names=tuple(nodes),
            victims=victims_of(taken, self._situation.view.names),
            message=(
                f"gang {gangs} needs room for {counted(len(nodes), 'pod')} on"
                f" {counted(len(set(nodes)), 'node')}; priority of the victims: {most}"
                + (" at most" if len(taken) > 1 else "")
            ),
        )


def _placements(requests: Sequence[PlacementRequest], trial: Trial) -> list[tuple[Pod, str]]:
    """Return the pods that have a node in a trial, with its name."""
    outcomes = zip(requests, trial.outcomes, strict=False)
    return [(request.pod, outcome.node) for request, outcome in outcomes if outcome.node]


def _left_of(budget: DisruptionBudget, taken: _Taken) -> DisruptionBudget:
    """Return what a budget allows in addition to the eviction of some pods."""
    hit = sum(budget.selects(each.pod.namespace, each.pod.labels) for each in taken)
    return replace(budget, disruptions_allowed=budget.disruptions_allowed - hit) if hit else budget


def _cost(taken: _Taken) -> tuple[int, int]:
    return max((each.pod.priority for each in taken), default=0), len(taken)
