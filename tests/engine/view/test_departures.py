from __future__ import annotations

from engine.model.time import Micros
from engine.view.departures import Departures


def test_a_pod_departs_once_and_at_its_last_moment() -> None:
    departures = Departures()
    departures.put("a", Micros(5))
    departures.put("a", Micros(7))  # its grace period was changed
    departures.put("b", Micros(6))
    assert departures.take(Micros(5)) == []
    assert departures.take(Micros(9)) == ["b", "a"]
    assert departures.take(Micros(9)) == []


def test_who_is_gone_departs_no_more() -> None:
    departures = Departures()
    departures.put("a", Micros(5))
    departures.put("a", None)
    assert departures.take(Micros(9)) == []


def test_some_at_a_time_the_earliest_first() -> None:
    departures = Departures()
    for moment in (3, 1, 2):
        departures.put(f"p{moment}", Micros(moment))
    assert (departures.take(Micros(9), 2), departures.is_due(Micros(9))) == (["p1", "p2"], True)


def test_memory_follows_the_pods_that_are_left() -> None:
    departures = Departures()
    for moment in range(10_000):
        departures.put("a", Micros(moment))
    assert len(departures._queue) <= 2 + 1024  # noqa: SLF001
    assert departures.take(Micros(10_000)) == ["a"]
