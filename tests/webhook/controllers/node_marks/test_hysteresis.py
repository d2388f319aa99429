"""A mark follows what lasts, at a distance in time, and never what goes back and forth."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from engine.model.time import Micros
from webhook.controllers.node_marks.hysteresis import Hysteresis, Mark, MarkTimes

TIMES = MarkTimes(settle=15, quiet=60, dwell=60)
ROUND = 5
HOT = Mark("a", "stowplan.dev/avoid")


class Node:
    """One node, of which every due change is written at once, round by round."""

    def __init__(self, *, marked: bool = False) -> None:
        self.now = 0.0
        self.created = Micros(1)
        self.present = {HOT} if marked else set[Mark]()
        self.changes: list[float] = []
        self.hysteresis = Hysteresis(TIMES)

    @property
    def marked(self) -> bool:
        return bool(self.present)

    def rounds(self, verdicts: Iterable[bool]) -> None:
        """Let rounds pass in which the filters reject the node, or do not."""
        for rejected in verdicts:
            due = self.hysteresis.observe(
                {"a": self.created}, {HOT} if rejected else set(), self.present, self.now
            )
            for mark in due:
                self.present ^= {mark}
                self.changes.append(self.now)
                self.hysteresis.changed(mark, self.now)
            self.now += ROUND

    def for_seconds(self, seconds: int, *, rejected: bool) -> None:
        self.rounds([rejected] * (seconds // ROUND))


def test_a_hot_node_is_marked_and_unmarked_once_it_has_been_cool_for_a_while() -> None:
    node = Node()
    node.for_seconds(60, rejected=True)
    assert not node.marked  # whoever led before may have unmarked it a moment ago
    node.for_seconds(ROUND, rejected=True)
    assert node.marked
    node.for_seconds(300, rejected=True)
    node.for_seconds(60, rejected=False)
    assert node.marked
    node.for_seconds(ROUND, rejected=False)
    assert not node.marked


def test_a_spike_marks_nothing() -> None:
    node = Node()
    node.for_seconds(100, rejected=False)
    node.for_seconds(15, rejected=True)
    node.for_seconds(100, rejected=False)
    assert node.changes == []


def test_a_filter_that_goes_back_and_forth_does_not_move_the_mark() -> None:
    node = Node()
    for _ in range(20):
        node.for_seconds(30, rejected=True)
        node.for_seconds(40, rejected=False)
    assert node.marked
    assert len(node.changes) == 1


def test_the_next_leader_follows_the_mark_that_it_finds() -> None:
    kept, taken_back = Node(marked=True), Node(marked=True)
    kept.for_seconds(300, rejected=True)
    assert kept.changes == []
    taken_back.for_seconds(65, rejected=False)
    assert taken_back.changes == [60]


def test_a_node_to_come_is_left_alone_at_first_also_one_of_the_same_name() -> None:
    node = Node()
    node.for_seconds(65, rejected=True)
    assert node.marked
    node.created, node.present = Micros(2), set()
    node.for_seconds(60, rejected=True)
    assert not node.marked
    node.for_seconds(ROUND, rejected=True)
    assert node.marked


def test_what_waits_for_longest_comes_first_and_deleted_nodes_are_forgotten() -> None:
    hysteresis = Hysteresis(TIMES)
    nodes = dict.fromkeys("abc", Micros(1))
    marks = {name: Mark(name, "k") for name in nodes}
    assert hysteresis.observe(nodes, set(), set(), 0) == []
    assert hysteresis.observe(nodes, {marks["b"]}, set(), 100) == []
    assert hysteresis.observe(nodes, {marks["b"], marks["a"], marks["c"]}, set(), 110) == []
    del nodes["c"]
    due = hysteresis.observe(nodes, {marks["b"], marks["a"]}, set(), 130)
    assert due == [marks["b"], marks["a"]]


@given(st.lists(st.booleans(), max_size=150), st.booleans(), st.booleans())
def test_changes_are_apart_and_what_lasts_is_followed(
    verdicts: list[bool],
    marked: bool,  # noqa: FBT001 (drawn)
    at_last: bool,  # noqa: FBT001 (drawn)
) -> None:
    node = Node(marked=marked)
    node.rounds(verdicts)
    node.for_seconds(130, rejected=at_last)
    assert node.marked is at_last
    moments = [0.0, *node.changes]
    assert all(after - before >= 60 for before, after in pairwise(moments))
