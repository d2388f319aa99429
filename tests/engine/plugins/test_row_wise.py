"""Properties of every plugin, row by row: found in the registry, whatever it computes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import pytest
from hypothesis import Phase, find, given, settings
from hypothesis import strategies as st

from engine.model.kinds import Domain
from engine.model.pod import Pod
from engine.model.time import SECOND, Micros
from engine.plugins import FAULT, MAX_SCORE, PASS, PLUGINS, Cycle, ReadsAllNodes
from engine.view import ClusterState, ClusterView, WhatIf
from engine.view.cluster_view import Memo
from tests.engine.measured_cluster import NOW
from tests.engine.plugins.plugin_args import ARGS
from tests.engine.plugins.row_clusters import (
    LABELLED,
    MEASURED,
    TOPOLOGY,
    Event,
    RandomCluster,
)

READS_LIMITS = ("LimitAware", "ResourceLimitAware")


class Rules:
    """The filter and the score of one plugin, over a random cluster that has what they read."""

    def __init__(self, name: str, args: Mapping[str, Any]) -> None:
        self.plugin = plugin = PLUGINS[name]
        parsed = plugin.args.model_validate(args)
        self.filter = plugin.filter(parsed) if plugin.filter else None
        self.score = plugin.score(parsed) if plugin.score else None
        self._profiles = tuple(plugin.sum_profiles(parsed))
        self.cluster: RandomCluster = LABELLED
        if Domain.TOPOLOGY in plugin.reads:
            self.cluster = TOPOLOGY
        elif Domain.METRICS in plugin.reads or name in READS_LIMITS:
            self.cluster = MEASURED

    def state(self, events: list[Event] = []) -> ClusterState:  # noqa: B006 (read only)
        """Return the cluster after events."""
        state = self.cluster.state()
        state.track_sums(self._profiles)
        for event in events:
            event(state)
        return state

    def answers(self, pod: Pod, view: ClusterView, now: Micros = NOW) -> dict[str, object]:
        """Return reasons, faults and the score of each node, by its name."""
        answers: list[list[object]] = [[] for _ in view.names]
        cycle = Cycle(pod, view, now)
        if self.filter is not None:
            result = self.filter.filter(cycle)
            codes = result.codes.tolist()
            assert result.rejects.tolist() == [code != PASS for code in codes]
            assert result.has_faults is (FAULT in codes)
            for row, code in enumerate(codes):
                if code == FAULT:
                    answers[row].append(self.filter.fault(cycle, row))
                elif code != PASS:
                    answers[row].append(self.filter.reasons(code, cycle))
        if self.score is not None:
            scores = self.score.score(cycle)
            faults = np.zeros(len(view)) if scores.faults is None else scores.faults
            for row, (score, fault) in enumerate(zip(scores.values, faults, strict=True)):
                answers[row].append(self.score.fault(cycle, row) if fault else int(score))
        return {
            name: answer
            for name, answer, valid in zip(view.names, answers, view.valid, strict=True)
            if valid
        }


every_rule = pytest.mark.parametrize(
    "rules",
    [
        pytest.param(Rules(name, args), id=f"{name}-{i}")
        for name in PLUGINS
        for i, args in enumerate(ARGS.get(name, [{}]))
    ],
)


_UNTIL_FOUND = settings(max_examples=500, phases=[Phase.generate], database=None, derandomize=True)


@every_rule
def test_the_clusters_of_these_tests_make_a_difference_to_each_side_of_a_plugin(
    rules: Rules,
) -> None:
    def tells_nodes_apart(drawn: tuple[Pod, list[Event]], *, by_score: bool) -> bool:
        pod, view = drawn[0], rules.state(drawn[1]).view()
        if by_score:
            assert rules.score is not None
            raw = rules.score.score(Cycle(pod, view, NOW)).values[view.valid]
            return len(set(rules.score.normalize(raw).tolist())) > 1
        assert rules.filter is not None
        return len(set(rules.filter.filter(Cycle(pod, view, NOW)).rejects[view.valid].tolist())) > 1

    drawn = st.tuples(rules.cluster.incoming, rules.cluster.events)
    for side, by_score in ((rules.filter, False), (rules.score, True)):
        if side is not None:  # else `find` fails
            find(drawn, partial(tells_nodes_apart, by_score=by_score), settings=_UNTIL_FOUND)


@every_rule
@settings(max_examples=40)
@given(
    st.data(), st.permutations(range(3)), st.integers(0, 3), st.sets(st.integers(0, 2), min_size=1)
)
def test_answers_for_a_node_depend_on_neither_memory_nor_order_nor_nodes_that_cannot_win(
    rules: Rules, data: st.DataObject, order: list[int], count: int, winners: set[int]
) -> None:
    pods = data.draw(st.lists(rules.cluster.incoming, min_size=2, max_size=2))
    events = data.draw(rules.cluster.events)
    view = rules.state(events).view()
    _check_memory(rules, pods, events)
    _check_order(rules, pods[0], view, order[:count])
    _check_points(rules, pods[1], view, winners)


def _check_memory(rules: Rules, pods: list[Pod], events: list[Event]) -> None:
    """Check that what is remembered is what would be computed without a memory."""
    state = rules.state()
    for event in events:
        for pod in pods:
            rules.answers(pod, state.view())
        event(state)
    forgetful = replace(rules.state(events).view(), memo=Memo(), scratch={})
    later = Micros(NOW + 60 * SECOND)  # reports grow old without any event
    for pod in pods:
        for now in (NOW, later):
            expected = rules.answers(pod, forgetful, now)
            assert rules.answers(pod, state.view(), now) == expected


def _check_order(rules: Rules, pod: Pod, view: ClusterView, rows: list[int]) -> None:
    """Check that some rows in some order get the same answers as all of them."""
    whole = rules.answers(pod, view)
    part = rules.answers(pod, view.take(np.array(rows, np.intp)))
    assert part == {name: whole[name] for name in part}


def _check_points(rules: Rules, pod: Pod, view: ClusterView, winners: set[int]) -> None:
    """Check that points are on the scale, and that nodes that cannot win do not change them."""
    if rules.score is None:
        return
    rows = np.array([row for row in sorted(winners) if view.valid[row]], np.intp)
    points = rules.score.normalize(rules.score.score(Cycle(pod, view, NOW)).values[rows])
    alone = rules.score.normalize(rules.score.score(Cycle(pod, view.take(rows), NOW)).values)
    assert points.tolist() == alone.tolist()
    assert all(0 <= each <= MAX_SCORE for each in points)


@every_rule
@settings(max_examples=15)
@given(st.data())
def test_where_pods_change_scores_points_follow_from_a_score_and_the_ends(
    rules: Rules, data: st.DataObject
) -> None:
    if rules.score is None or Domain.PODS not in rules.plugin.reads:
        return
    pod, events = data.draw(rules.cluster.incoming), data.draw(rules.cluster.events)
    view = rules.state(events).view()
    scores = rules.score.score(Cycle(pod, view, NOW)).values[view.valid]
    if not scores.size:
        return
    ends = [scores.min(), scores.max()]
    alone = [rules.score.normalize(np.array([each, *ends], np.int64))[0] for each in scores]
    assert rules.score.normalize(scores).tolist() == alone


@every_rule
@settings(max_examples=15)
@given(st.data(), st.integers(0, 2))
def test_a_pod_that_comes_to_a_node_changes_no_other_unless_the_plugin_says_so(
    rules: Rules, data: st.DataObject, row: int
) -> None:
    pod, other = data.draw(rules.cluster.incoming), data.draw(rules.cluster.incoming)
    view = rules.state(data.draw(rules.cluster.events)).view()
    what_if = WhatIf(view)
    what_if.place(other, row)
    if isinstance(rules.score, ReadsAllNodes):
        return
    reads_others = rules.plugin.reads_other_nodes, rules.plugin.score_reads_other_nodes
    for seen in (view, what_if.view):
        cycle = Cycle(pod, seen, NOW)
        if any(each is not None and each(cycle) for each in reads_others):
            return
    before, after = rules.answers(pod, view), rules.answers(pod, what_if.view)
    changed = {name for name in before if before[name] != after[name]}
    assert changed <= ({view.names[row]} if Domain.PODS in rules.plugin.reads else set())
