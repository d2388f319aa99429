from __future__ import annotations

from itertools import count

from engine.model.rule_times import RuleTimes


def test_time_and_evaluations_of_a_rule_add_up() -> None:
    times = RuleTimes(count(100, 10).__next__)
    for _ in range(2):
        times.note("gpus", "room", times.clock())
    times.note("", "NodeResourcesFit", times.clock())
    # Each reading of the clock is 10 ns after the last one.
    assert list(times) == [("gpus", "room", 20, 2), ("", "NodeResourcesFit", 10, 1)]


def test_rules_begin_at_0_and_are_forgotten() -> None:
    times = RuleTimes(count(0, 10).__next__)
    times.note("old", "room", times.clock())
    times.note("gpus", "room", times.clock())
    times.keep([("gpus", "room"), ("new", "room")])
    assert list(times) == [("gpus", "room", 10, 1), ("new", "room", 0, 0)]
