from __future__ import annotations

import pytest

from engine.model.time import SECOND, Micros
from engine.plugins.lib.humanize import amount_words, part_words, report_words
from engine.view import ClusterState
from tests.engine.policy.worlds import node, usage

MIB = 2**20


@pytest.mark.parametrize(
    ("resource", "amount", "words"),
    [
        ("cpu", 1500, "1.5 cores"),
        ("cpu", 1000, "1 core"),
        ("cpu", 0, "0 cores"),
        ("memory", 1536 * MIB, "1.5 GiB"),
        ("memory", 100, "100 bytes"),
        ("hugepages-2Mi", 4 * MIB, "4 MiB"),
        ("nvidia.com/gpu", 3, "3"),
        ("memory", -(2**30), "-1 GiB"),
    ],
)
def test_an_amount_is_written_as_people_write_it(resource: str, amount: int, words: str) -> None:
    assert amount_words(resource, amount) == words


@pytest.mark.parametrize(
    ("resource", "part", "whole", "words"),
    [
        ("cpu", 10_000, 8000, "10 of 8 cores"),
        ("memory", 512 * MIB, 2048 * MIB, "0.5 of 2 GiB"),
        ("pods", 9, 110, "9 of 110"),
    ],
)
def test_a_part_and_its_whole_share_a_unit(
    resource: str, part: int, whole: int, words: str
) -> None:
    assert part_words(resource, part, whole) == words


def test_the_age_of_a_report_is_told() -> None:
    state = ClusterState()
    state.set_node(node("a"))
    state.set_node(node("b"))
    state.set_usage(usage("a", cpu=100))
    view = state.view()
    asked_at = Micros(int(view.metric_time[view.rows["a"]]) + 7 * SECOND)
    assert report_words(view, view.rows["a"], asked_at) == "7 s old"
    assert report_words(view, view.rows["b"], asked_at) == "none"
