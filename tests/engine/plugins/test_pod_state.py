from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from engine.plugins import Cycle
from engine.plugins.pod_state import PodStateScore
from tests.engine.measured_cluster import NOW, by_node, cluster, node, pod

if TYPE_CHECKING:
    from engine.model.pod import Pod

NODES = [node("a"), node("b"), node("c")]
RULE = PodStateScore()


def leaving(name: str, on: str) -> Pod:
    return msgspec.structs.replace(pod(name, on), deleting=True)


def coming(name: str, to: str) -> Pod:
    return msgspec.structs.replace(pod(name), nominated_node_name=to)


def test_pods_that_leave_speak_for_a_node_and_pods_to_come_against_it() -> None:
    pods = [leaving("1", "a"), leaving("2", "a"), coming("3", "a"), coming("4", "b"), pod("5", "c")]
    view = cluster(NODES, pods)
    raw = RULE.score(Cycle(pod(), view, NOW)).values
    assert by_node(view, raw) == {"a": 1, "b": -1, "c": 0}
    # Of the 2 between the least and the greatest: 2, 0 and 1.
    assert RULE.normalize(raw).tolist() == [100, 0, 50]


def test_a_nomination_of_the_pod_itself_counts_too() -> None:
    view = cluster(NODES)
    own = RULE.score(Cycle(coming("incoming", "b"), view, NOW)).values
    assert by_node(view, own) == {"a": 0, "b": -1, "c": 0}
    assert not RULE.score(Cycle(pod(), view, NOW)).values.any()
    assert not RULE.score(Cycle(coming("incoming", "gone"), view, NOW)).values.any()


def test_where_nothing_moves_no_node_gets_points() -> None:
    view = cluster(NODES)
    assert RULE.normalize(RULE.score(Cycle(pod(), view, NOW)).values).tolist() == [0, 0, 0]
