"""Turns that are judged together, and which of them are right in the end."""

from __future__ import annotations

from functools import partial

import msgspec

from engine.batch.judge import Judge
from engine.batch.placements import Placements
from engine.batch.template import Template
from engine.batch.template_rules import TemplateRules
from engine.batch.turns import Turns
from engine.model.pod import Pod
from tests.engine.batch.worlds import BatchWorld, request
from tests.engine.measured_cluster import NOW, node
from tests.engine.policy.worlds import policies

_NODES = 6
_FIRST = 7
"""The position in the batch of the first of the pods."""


def _coming(templates: int) -> tuple[list[tuple[Template, Pod]], Placements]:
    """Return templates with their next pods: all nodes but n5, which has a pod, are the best."""
    wire = {
        "metadata": {"namespace": "default"},
        "spec": {"containers": [{"resources": {"requests": {"cpu": "1"}}}]},
    }
    world = BatchWorld(
        policies(few="scores: [{name: few, expression: -node.podCount}]"),
        [node(f"n{i}", cpu="4", memory="8Gi", pods="3") for i in range(_NODES)],
        [msgspec.structs.replace(request(wire, "r0").pod, node_name="n5", scheduling_gates=())],
        [request(wire, f"p{i}") for i in range(templates)],
    )
    view = world.state().view()
    judge, placements = Judge(policies=world.policies, now=NOW), Placements(view)
    return [
        (
            Template(
                TemplateRules(judge.policies_for(each), each, view, judge), placements, templates
            ),
            each.pod,
        )
        for each in world.requests
    ], placements


def test_turns_are_known_as_long_as_pods_go_where_foretold() -> None:
    coming, placements = _coming(4)
    turns = Turns(coming, placements, _FIRST)
    taken = []
    for position, (template, pod) in enumerate(coming, _FIRST):
        assert turns.reach(position)
        assert not turns.reach(position + 1)
        template.refresh(pod, partial(turns.judged, position))
        row, _ = template.ranking.best([pod], 0)
        taken.append(row)
        template.place(pod, row)
    assert len(set(taken)) == 4  # each of them takes a node without a pod
    assert turns.used == 3  # before the first turn no node has changed
    assert not turns.reach(_FIRST + 4)


def test_a_pod_that_goes_elsewhere_ends_what_is_known() -> None:
    coming, placements = _coming(3)
    turns = Turns(coming, placements, _FIRST)
    (first, pod), _, _ = coming
    best, _ = first.ranking.best([pod], 0)
    first.place(pod, (best + 1) % (_NODES - 1))
    assert not turns.reach(_FIRST + 1)


def test_a_pod_that_is_not_placed_ends_what_is_known() -> None:
    coming, placements = _coming(3)
    turns = Turns(coming, placements, _FIRST)
    assert not turns.reach(_FIRST + 1)


def test_a_node_with_the_pod_foretold_is_judged_as_one_that_has_it() -> None:
    coming, placements = _coming(2)
    turns = Turns(coming, placements, _FIRST)
    (first, pod), second = coming
    row, _ = first.ranking.best([pod], 0)
    first.place(pod, row)
    foretold = turns.judged(_FIRST + 1, [row])
    known = Turns([second], placements, _FIRST + 1).judged(_FIRST + 1, [row])
    assert foretold[0].tolist() == known[0].tolist() == [True]
    assert [each.tolist() for each in foretold[1]] == [each.tolist() for each in known[1]] == [[-1]]
