"""Turns that are foretold together, and which of them come true."""

from __future__ import annotations

import msgspec

from engine.batch.judge import Judge
from engine.batch.placements import Placements
from engine.batch.stack import Stack
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

_FEW = "-double(node.podCount)"
_FULL = "node.podCount == 1 ? 1 : 0"
_THIRD = "node.name == 'n3' ? 2 : 0"
_TWO = "node.podCount == 2 ? 2 : node.podCount == 1 ? 0 : 1"
_THIRD_AGAIN = "node.name == 'n3' ? 1 : 0"
_SCORES = [_FEW, _FULL, _THIRD, _THIRD_AGAIN, _TWO]


def _coming(templates: list[list[str]]) -> tuple[list[tuple[Template, Pod]], Placements]:
    """Return templates with their next pods; of all nodes, n5 has a pod.

    Args:
        templates: the scores of each.
    """
    world = BatchWorld(
        policies(
            **{
                f"score{i}": f"match: {{objectSelector: {{matchLabels: {{score: s{i}}}}}}}\n"
                f"scores: [{', '.join(map(_score, scores))}]"
                for i, scores in enumerate(templates)
            }
        ),
        [node(f"n{i}", cpu="4", memory="8Gi", pods="3") for i in range(_NODES)],
        [
            msgspec.structs.replace(
                request(_wire(""), "r0").pod, node_name="n5", scheduling_gates=()
            )
        ],
        [request(_wire(f"s{i}"), f"p{i}") for i in range(len(templates))],
    )
    view = world.state().view()
    judge, placements = Judge(policies=world.policies, now=NOW), Placements(view)
    return [
        (
            Template(TemplateRules(judge.policies_for(each), each, view, judge), placements, 1),
            each.pod,
        )
        for each in world.requests
    ], placements


def _score(expression: str) -> str:
    return f'{{name: score{_SCORES.index(expression)}, expression: "{expression}"}}'


def _wire(score: str) -> dict[str, object]:
    return {
        "metadata": {"namespace": "default", "labels": {"score": score}},
        "spec": {"containers": [{"resources": {"requests": {"cpu": "1"}}}]},
    }


def _turns(coming: list[tuple[Template, Pod]], placements: Placements) -> Turns:
    stack = Stack([template for template, _ in coming], placements)
    return Turns(coming, stack, placements, _FIRST)


def test_pods_go_where_foretold_while_nodes_that_take_some_get_worse() -> None:
    coming, placements = _coming([[_FEW]] * 4)
    turns = _turns(coming, placements)
    taken = []
    for position, (template, pod) in enumerate(coming, _FIRST):
        assert turns.reach(position)
        assert not turns.reach(position + 1)
        best = turns.take()
        assert best is not None
        taken.append(best[0])
        template.place(pod, best[0])
    assert len(set(taken)) == 4  # each of them takes a node without a pod
    assert turns.taken == 4
    assert not turns.reach(_FIRST + 4)


def test_a_node_that_gets_better_by_a_pod_ends_what_is_foretold() -> None:
    # The first pod takes an empty node; for the second one it is as good as n5 from then on, the
    # only one with a pod before. Either may be its choice, and it is looked at exactly.
    coming, placements = _coming([[_FEW], [_FULL], [_FULL]])
    turns = _turns(coming, placements)
    (first, pod), (second, next_pod), _ = coming
    assert turns.reach(_FIRST)
    best = turns.take()
    assert best is not None
    first.place(pod, best[0])
    is_right = turns.reach(_FIRST + 1)
    turns.end()
    second.refresh(next_pod)
    found = second.best([next_pod], 0)
    assert found is not None
    assert found[0] in {5, best[0]}
    assert is_right == (found[0] == 5)


def test_a_total_may_be_another_one_while_pods_go_where_foretold() -> None:
    # The first pod goes to n5, which has two pods then: the scale of _TWO moves from 0..1 to 1..2,
    # so that n3 has 0 by it instead of 100. By the other two it is ahead of n5 still.
    coming, placements = _coming([[_FULL], [_THIRD, _THIRD_AGAIN, _TWO], [_FEW]])
    turns = _turns(coming, placements)
    (first, pod), (_, next_pod), _ = coming
    assert turns.reach(_FIRST)
    assert turns.take() == (5, 100)
    first.place(pod, 5)
    assert turns.reach(_FIRST + 1)
    assert turns.take() == (3, 200)
    second = coming[1][0]
    second.place(next_pod, 3)
    assert turns.reach(_FIRST + 2)  # the states of nodes that took pods are right still


def test_a_pod_that_is_not_placed_ends_what_is_foretold() -> None:
    coming, placements = _coming([[_FEW]] * 3)
    turns = _turns(coming, placements)
    assert turns.reach(_FIRST)
    turns.take()
    assert not turns.reach(_FIRST + 1)


def test_templates_know_in_the_end_which_pods_came() -> None:
    coming, placements = _coming([[_FEW]] * 4)
    turns = _turns(coming, placements)
    for position, (template, pod) in enumerate(coming[:2], _FIRST):
        assert turns.reach(position)
        best = turns.take()
        assert best is not None
        template.place(pod, best[0])
    turns.end()
    # Three nodes are left without a pod, and those that took one have one as n5 has.
    for template, pod in coming:
        assert template.seen == 2
        empty: list[int] = []
        while (best := template.ranking.best_but(empty, pod)) and best[1] == 100:
            empty.append(best[0])
        assert set(empty) == {0, 1, 2, 3, 4} - set(placements.rows)
