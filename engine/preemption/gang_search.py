"""The search for the victims of a gang: all of its members get room, or nobody is evicted."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Final, TypeAlias

import numpy as np

from engine.batch import StartingGang, Trial, domains_of_gang, place_all, place_gang
from engine.gang import Gang, min_resources_gap, pod_group_of_gang
from engine.model.count_text import counted
from engine.model.disruption_budget import DisruptionBudget
from engine.model.pod import Pod
from engine.model.pod_shape import PodShape
from engine.model.request import PlacementRequest
from engine.model.resources import Amounts
from engine.reclaim import (
    MOST_VICTIMS,
    BoundedTest,
    Candidate,
    Plan,
    Situation,
    Steps,
    TooManySetsError,
    Victim,
    fewest_enough,
    less,
    victims_of,
)
from engine.view import NO_ROW, BoolColumn, ClusterView, WhatIf, quota_requests

_MOST_SETS: Final = 64
"""Sets of victims that the whole gang is placed without, while whoever is not needed is spared."""

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


VictimsOfMember: TypeAlias = Callable[
    [PlacementRequest, Situation, Sequence[Candidate], BoolColumn | None],
    Steps[Sequence[Victim]],
]
"""Finds who is evicted for one member that has no room, nobody if that makes none.

It gets a situation in which the members before it count on their nodes, whoever is gone by then,
and the nodes that it may take, None for all.
"""

VictimsOfCohort: TypeAlias = Callable[
    [Amounts, Situation, Sequence[Candidate]], Steps[Sequence[Victim]]
]
"""Finds who is evicted so that a cohort has more room; gets whoever is gone by then, too."""

_Taken: TypeAlias = Sequence[Candidate]
_NO_NEEDS: Final[Amounts] = {}


class GangSearch:
    """The search for victims for all members of gangs that start together.

    Members are placed one after the other, exactly as when they are released. The first that finds
    no node gets room as a pod by itself would; then all are placed anew. In the end whoever is not
    needed for all of them is spared.

    Args:
        gangs: those that start together; at least one.
        situation: all else; no member counts on a node of its view.
        leaving: the candidates that are on their way out.
        possible: those that may be victims, whatever guards and budgets say.
        victims_of_member: finds victims among these.
        needs: what must be freed for all members in the cohort of their quota, each above 0.
        victims_of_cohort: finds victims that free so much of it, whoever is gone by then.
    """

    def __init__(
        self,
        gangs: Sequence[NeedyGang],
        situation: Situation,
        leaving: Sequence[Candidate],
        possible: Sequence[Candidate],
        victims_of_member: VictimsOfMember,
        needs: Amounts = _NO_NEEDS,
        victims_of_cohort: VictimsOfCohort | None = None,
    ) -> None:
        self._gangs = gangs
        self._situation = situation
        self._leaving = leaving
        self._victims_of_member = victims_of_member
        self._needs = needs
        self._victims_of_cohort = victims_of_cohort
        self._possible = possible
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
        """Return pods with those elsewhere that the cohort needs beside them."""
        lacking = self._lacking(taken)
        if not lacking or self._victims_of_cohort is None:
            return taken
        situation = self._situation_of((), taken)
        gone = [*self._leaving, *taken]
        victims = yield from self._victims_of_cohort(lacking, situation, gone)
        if len(taken) + len(victims) > MOST_VICTIMS:
            return taken
        return [*taken, *(self._by_uid[victim.uid] for victim in victims)]

    def _lacking(self, taken: _Taken) -> Amounts:
        """Return what the cohort lacks still with some pods gone, each above 0."""
        left = dict(self._needs)
        for each in taken if left else ():
            left = less(left, quota_requests(each.entry.shape))
        return {name: left[name] for name in self._needs if left[name] > 0}

    def _room_for(self, number: int, taken: list[Candidate]) -> Steps[list[Candidate] | None]:
        """Return the pods to be evicted so that a gang has room beside those before it.

        Args:
            number: of the gang.
            taken: pods that go anyway.
        """
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
            situation = self._situation_of(beside, taken)
            victims = yield from self._victims_of_member(
                gang.requests[trial.failed], situation, [*self._leaving, *taken], nodes
            )
            if not victims or len(taken) + len(victims) > MOST_VICTIMS:
                return None
            taken += [self._by_uid[victim.uid] for victim in victims]

    def _situation_of(self, beside: Sequence[tuple[Pod, str]], taken: _Taken) -> Situation:
        """Return the situation of the next member: those before it count, as do all others."""
        situation, what_if = self._situation, WhatIf(self._situation.view)
        if beside:
            rows = [situation.view.rows[name] for _, name in beside]
            what_if.place_each([pod for pod, _ in beside], rows)
        budgets = [_left_of(budget, taken) for budget in situation.budgets]
        return replace(situation, view=what_if.view, budgets=budgets)

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

        ordered = sorted(self._together(taken), key=_importance)
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
            victims=victims_of(taken, self._situation.view),
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
    """Return what a budget allows beside the eviction of some pods."""
    hit = sum(budget.selects(each.pod.namespace, each.pod.labels) for each in taken)
    return replace(budget, disruptions_allowed=budget.disruptions_allowed - hit) if hit else budget


def _cost(taken: _Taken) -> tuple[int, int]:
    return max((each.pod.priority for each in taken), default=0), len(taken)


def _importance(group: _Taken) -> tuple[int, int, int, str]:
    """Return the key of an order in which the first go first, see `CrossNodeSearch`."""
    return (
        max(each.pod.priority for each in group),
        len(group),
        -max(each.entry.assigned_at for each in group),
        min(each.pod.key for each in group),
    )
