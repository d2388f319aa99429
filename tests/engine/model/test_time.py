from __future__ import annotations

from datetime import UTC, datetime

from hypothesis import given
from hypothesis import strategies as st

from engine.model.time import Micros, date, micros


@given(st.datetimes(timezones=st.just(UTC)))
def test_a_moment_and_its_date_are_the_same_to_the_microsecond(moment: datetime) -> None:
    assert date(micros(moment)) == moment


def test_moments_count_from_1970() -> None:
    # 365 days of 86,400 s.
    assert date(Micros(31_536_000_000_000)) == datetime(1971, 1, 1, tzinfo=UTC)
