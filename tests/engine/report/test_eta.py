from __future__ import annotations

import pytest

from engine.model.time import SECOND, Micros
from engine.report import ReleaseRates, eta_text, expected_wait


def _at(seconds: float) -> Micros:
    return Micros(int((1_000_000 + seconds) * SECOND))


def _rates(*released: float, waiting_since: float = 0) -> ReleaseRates:
    rates = ReleaseRates()
    rates.waits("team", _at(waiting_since))
    for moment in released:
        rates.released("team", _at(moment))
    return rates


def _seconds(rates: ReleaseRates, now: float) -> float | None:
    interval = rates.interval("team", _at(now))
    return None if interval is None else interval / SECOND


def test_the_interval_is_the_time_of_waiting_by_the_releases_in_it() -> None:
    # Five pods left in the 300 s since the first one waits: one each 60 s.
    assert _seconds(_rates(10, 50, 120, 130, 290), 300) == 60


def test_there_is_none_below_five_releases() -> None:
    rates = _rates(10, 50, 120, 130)
    assert _seconds(rates, 300) is None
    rates.released("team", _at(299))
    assert _seconds(rates, 300) == 60
    assert ReleaseRates().interval("team", _at(0)) is None


def test_releases_of_more_than_ten_minutes_ago_do_not_count() -> None:
    # At 1,000 s the window begins at 400 s, with six releases in it: 600 / 6.
    rates = _rates(100, 200, 300, 401, 500, 600, 700, 800, 900)
    assert _seconds(rates, 1_000) == 100
    # At 1,150 s it begins at 550 s, and four are left.
    assert _seconds(rates, 1_150) is None


def test_of_many_releases_the_latest_hundred_count() -> None:
    # One in a second up to 100 s, then one each half second up to 150 s. The latest hundred are
    # those at 100.5, 101 ... 150; 99 of them are after the first: 49.5 / 99.
    rates = _rates(*range(1, 101), *(100 + half / 2 for half in range(1, 101)))
    assert _seconds(rates, 150) == 0.5


def test_while_nothing_is_released_the_interval_grows() -> None:
    rates = _rates(10, 20, 30, 40, 50)
    assert _seconds(rates, 50) == 10  # 50 / 5
    assert _seconds(rates, 500) == 100  # 500 / 5


def test_one_quota_says_nothing_of_another() -> None:
    rates = _rates(10, 20, 30, 40, 50)
    assert rates.interval("other", _at(50)) is None


def test_a_quota_that_nobody_waits_for_is_forgotten_after_ten_minutes() -> None:
    rates = _rates(10, 20, 30, 40, 50)
    rates.retain(_at(649), set())
    assert _seconds(rates, 100) == 20
    rates.retain(_at(660), {"team"})
    assert _seconds(rates, 100) == 20
    rates.retain(_at(660), set())
    assert _seconds(rates, 100) is None


def test_a_pod_waits_for_as_many_releases_as_its_position() -> None:
    assert expected_wait(4, Micros(45 * SECOND)) == 180 * SECOND


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0.2, "about 1 min"),
        (60, "about 1 min"),
        (61, "about 2 min"),
        (180, "about 3 min"),
        (3_600, "about 60 min"),
        (3_601, "about 2 h"),
        (86_400, "about 24 h"),
        (86_401, "more than a day"),
    ],
)
def test_a_wait_is_told_as_a_guess(seconds: float, text: str) -> None:
    assert eta_text(Micros(int(seconds * SECOND))) == text
