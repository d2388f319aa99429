"""Rankings in a stack go on as each would by itself."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from engine.batch.judge import Judge
from engine.batch.node_states import Judged, StackedRules, StackedStates, judge_states
from engine.batch.placements import Placements
from engine.batch.ranking import Ranking
from engine.batch.ranking_stack import RankingStack
from engine.batch.template_rules import TemplateRules, UnevenError
from engine.model.request import PlacementRequest
from engine.view import BoolColumn, IntColumn
from tests.engine.batch.worlds import EXAMPLES, BatchWorld, worlds
from tests.engine.measured_cluster import NOW
from tests.engine.policy.worlds import policies

_rounds = st.lists(
    st.lists(st.tuples(st.integers(0, 24), st.integers(0, 29)), min_size=1, max_size=4),
    min_size=1,
    max_size=5,
)
"""Pods, by number, that come to nodes, by row; nodes are looked at after each round."""

_SCORES = (
    "{plugin: NodeResourcesFit}",
    "{plugin: NodeResourcesBalancedAllocation, weight: 2}",
    "{plugin: PodState}",
    "{name: few, expression: -double(node.podCount)}",
    "{name: full, expression: 'node.requested.cpu / node.allocatable.cpu'}",
    "{name: second, expression: 'node.podCount == 1 ? 1 : 0'}",
)
_ranked = st.builds(
    lambda world, scores: replace(world, policies=policies(p=f"scores: [{', '.join(scores)}]")),
    worlds(),
    st.lists(st.sampled_from(_SCORES), min_size=2, unique=True),
)
"""Worlds in which pods change several scores for all templates."""


@dataclass(frozen=True)
class _Twins:
    """A ranking in a stack, and the same one by itself."""

    request: PlacementRequest
    rules: TemplateRules
    stacked: Ranking
    alone: Ranking

    def settle(self) -> bool:
        """Give both points anew where it is due; return whether they can be told."""
        told = [_can_settle(ranking) for ranking in (self.stacked, self.alone)]
        assert told[0] == told[1]
        return told[0]

    def check(self) -> None:
        """Compare all that others see of them."""
        assert self.stacked.count == self.alone.count
        assert self.stacked.is_in.tolist() == self.alone.is_in.tolist()
        assert _totals(self.stacked) == _totals(self.alone)
        if self.alone.count:
            pods = [self.request.pod]
            assert self.stacked.best(pods, 0) == self.alone.best(pods, 0)


class _Stage:
    """Twins of the templates of a world that can be stacked, and pods that come to its nodes."""

    def __init__(self, world: BatchWorld) -> None:
        view = world.state().view()
        self.requests = world.requests
        self.placements = Placements(view)
        judge = Judge(policies=world.policies, now=NOW)
        found = [_twins(judge, request, self.placements) for request in world.requests]
        self.twins = [twins for twins in found if twins is not None]
        assume(self.twins)
        self._rules = StackedRules([each.rules for each in self.twins], view)
        self.stack = RankingStack([each.stacked for each in self.twins], self._rules.scores)

    def place(self, pods: Sequence[tuple[int, int]]) -> list[int]:
        """Place pods; return the rows of their nodes."""
        rows = []
        for pod, node in pods:
            row = node % len(self.placements.what_if.view)
            self.placements.add(self.requests[pod % len(self.requests)].pod, row)
            rows.append(row)
        return [*dict.fromkeys(rows)]

    def judge(self, rows: Sequence[int]) -> StackedStates:
        """Judge nodes by the rules of all templates."""
        return self._rules.judge(self.placements.what_if.part(np.array(rows, np.intp)))

    def judge_alone(self, twins: _Twins, rows: Sequence[int]) -> Judged:
        """Judge nodes by the rules of one template."""
        view = self.placements.what_if.part(np.array(rows, np.intp))
        return judge_states(twins.rules, view).first(len(rows))


def _twins(judge: Judge, request: PlacementRequest, placements: Placements) -> _Twins | None:
    policies = judge.policies_for(request)
    if not policies:
        return None
    view = placements.what_if.view
    try:
        rules = TemplateRules(policies, request, view, judge)
        if rules.is_coupled:
            return None
        return _Twins(request, rules, Ranking(rules, view), Ranking(rules, view))
    except UnevenError:
        return None


def _can_settle(ranking: Ranking) -> bool:
    try:
        ranking.settle()
    except UnevenError:
        return False
    return True


def _update(ranking: Ranking, rows: Sequence[int], judged: Judged) -> bool:
    try:
        return ranking.update(np.array(rows, np.intp), *judged)
    except UnevenError:
        return False


def _totals(ranking: Ranking) -> list[int]:
    totals: list[int] = ranking.totals[ranking.is_in].tolist()
    return totals


def _copies(twins: Sequence[_Twins]) -> list[tuple[BoolColumn, IntColumn]]:
    return [(each.stacked.is_in.copy(), each.stacked.totals.copy()) for each in twins]


@given(worlds() | _ranked, _rounds, st.data())
@settings(max_examples=EXAMPLES, deadline=None)
def test_what_is_taken_up_together_is_what_each_takes_up_alone(
    world: BatchWorld, rounds: Sequence[Sequence[tuple[int, int]]], data: st.DataObject
) -> None:
    stage = _Stage(world)
    knows = np.ones(len(stage.twins), np.bool_)
    for pods in rounds:
        rows = stage.place(pods)
        states = stage.judge(rows)
        rated = stage.stack.rate(rows, states)
        count = data.draw(st.integers(1, len(rows)))
        knows &= states.is_usable
        by_themselves = stage.stack.write(rated, count, knows)
        for number, twins in enumerate(stage.twins):
            if not knows[number]:
                assert number not in by_themselves
                continue
            can = _update(twins.alone, rows[:count], stage.judge_alone(twins, rows[:count]))
            if number in by_themselves:
                own = states.of(number).first(count)
                assert _update(twins.stacked, rows[:count], own) == can
            knows[number] = can and twins.settle()
            if knows[number]:
                twins.check()
        rest = rows[count:]
        for number in knows.nonzero()[0].tolist() if rest else ():  # the next round needs all
            twins, known = stage.twins[number], states.of(number)
            passes = known.passes[count:]
            judged = passes, [raw[count:][passes] for raw in known.raw]
            told = [_update(each, rest, judged) for each in (twins.stacked, twins.alone)]
            knows[number] = all(told) and twins.settle()


@given(worlds() | _ranked, _rounds)
@settings(max_examples=EXAMPLES, deadline=None)
def test_states_are_rated_as_they_rank_once_they_are_taken_up(
    world: BatchWorld, rounds: Sequence[Sequence[tuple[int, int]]]
) -> None:
    stage = _Stage(world)
    rows = stage.place([pod for pods in rounds for pod in pods])
    states = stage.judge(rows)
    rated = stage.stack.rate(rows, states)
    before = _copies(stage.twins)
    stage.stack.write(rated, len(rows), states.is_usable)
    for number, twins in enumerate(stage.twins):
        if not states.is_usable[number] or rated.disturbs[number, -1]:
            continue
        assert twins.settle()
        was_in, totals = before[number]
        places, stays = twins.stacked.place_of.take(rows), rated.stays[number]
        assert twins.stacked.is_in.tolist() == was_in.tolist()
        assert was_in[places[stays]].all()
        expected = totals.copy()
        expected[places[stays]] = rated.totals[number][stays]
        assert twins.stacked.totals[was_in].tolist() == expected[was_in].tolist()


@given(worlds() | _ranked, _rounds)
@settings(max_examples=EXAMPLES, deadline=None)
def test_rating_changes_no_ranking_nor_does_writing_one_that_missed_something(
    world: BatchWorld, rounds: Sequence[Sequence[tuple[int, int]]]
) -> None:
    stage = _Stage(world)
    before = _copies(stage.twins)
    rows = stage.place([pod for pods in rounds for pod in pods])
    rated = stage.stack.rate(rows, stage.judge(rows))
    nobody = np.zeros(len(stage.twins), np.bool_)
    assert stage.stack.write(rated, len(rows), nobody) == []
    for twins, (is_in, totals) in zip(stage.twins, before, strict=True):
        assert twins.stacked.is_in.tolist() == is_in.tolist()
        assert twins.stacked.totals.tolist() == totals.tolist()


@given(_ranked, _rounds)
@settings(max_examples=EXAMPLES, deadline=None)
def test_states_that_were_rated_by_other_ends_are_not_written(
    world: BatchWorld, rounds: Sequence[Sequence[tuple[int, int]]]
) -> None:
    stage = _Stage(world)
    rows = stage.place([pod for pods in rounds for pod in pods])
    states = stage.judge(rows)
    rated = stage.stack.rate(rows, states)
    versions = [each.stacked.ends_version for each in stage.twins]
    for twins in stage.twins:
        _update(twins.stacked, rows, stage.judge_alone(twins, rows))
    moved = [
        number
        for number, (twins, version) in enumerate(zip(stage.twins, versions, strict=True))
        if twins.stacked.ends_version != version and states.is_usable[number]
    ]
    assert {*moved} <= {*stage.stack.write(rated, len(rows), states.is_usable)}
