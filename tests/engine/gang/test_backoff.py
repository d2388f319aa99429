from __future__ import annotations

from engine.gang import GangBackoff, GangKey
from engine.model.time import SECOND, Micros, date

_KEY = GangKey("shop", "train")


def _at(seconds: float) -> Micros:
    return Micros(int(seconds * SECOND))


def test_a_gang_that_never_failed_may_be_tried() -> None:
    assert GangBackoff().refusal(_KEY, _at(0)) == ""


def test_each_failure_doubles_the_wait_up_to_ten_minutes() -> None:
    backoff, now = GangBackoff(), 0
    for seconds in (10, 20, 40, 80, 160, 320, 600, 600):
        backoff.failed(_KEY, _at(now))
        assert backoff.refusal(_KEY, _at(now + seconds - 0.5)).endswith("tried again in 1 s")
        assert backoff.refusal(_KEY, _at(now + seconds)) == ""
        now += seconds


def test_the_reason_tells_how_long_it_waits() -> None:
    backoff = GangBackoff()
    backoff.failed(_KEY, _at(100))
    expected = "podGroup shop/train failed recently; it is tried again in 8 s"
    assert backoff.refusal(_KEY, _at(102.5)) == expected


def test_a_gang_that_has_started_waits_the_first_time_again() -> None:
    backoff = GangBackoff()
    backoff.failed(_KEY, _at(0))
    backoff.failed(_KEY, _at(10))
    backoff.started(_KEY)
    assert not backoff.failed_at
    backoff.failed(_KEY, _at(20))
    assert backoff.refusal(_KEY, _at(30)) == ""


def test_other_gangs_do_not_wait() -> None:
    backoff = GangBackoff()
    backoff.failed(_KEY, _at(0))
    assert backoff.refusal(GangKey("mail", "train"), _at(1)) == ""


def test_it_tells_when_gangs_failed_last() -> None:
    backoff = GangBackoff()
    backoff.failed(_KEY, _at(5))
    backoff.failed(_KEY, _at(50))
    assert backoff.failed_at == {_KEY: date(_at(50))}


def test_what_has_not_failed_for_long_is_forgotten() -> None:
    backoff = GangBackoff()
    for number in range(100):
        backoff.failed(GangKey("shop", f"{number}"), _at(number))
    backoff.failed(_KEY, _at(1250))
    assert len(backoff.failed_at) == 50  # those of the last 20 minutes, 51 to 99, and this one


def test_very_many_failures_wait_no_longer() -> None:
    backoff = GangBackoff()
    for _ in range(10_000):
        backoff.failed(_KEY, _at(0))
    assert backoff.refusal(_KEY, _at(600)) == ""
