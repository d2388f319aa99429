from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from engine.model.time import SECOND
from engine.view import ClusterState, stale_reports
from engine.view.staleness import StaleReports
from tests.engine.policy.worlds import NOW, node, usage

MOMENTS = st.integers(-3, 8)


@given(st.lists(st.integers(0, 5), max_size=12), st.lists(MOMENTS, max_size=8))
def test_overdue_is_every_report_that_is_not_newer(times: list[int], moments: list[int]) -> None:
    found = StaleReports(np.array(times, np.int64))
    for moment in moments:
        overdue = found.overdue(moment)
        expected = [row for row, time in enumerate(times) if time <= moment]
        assert sorted(overdue.rows.tolist()) == expected
        timed = [row for row in expected if times[row] > 0]
        assert np.frombuffer(overdue.timed, np.intp).tolist() == timed


def test_the_same_is_overdue_until_another_report_is() -> None:
    found = StaleReports(np.array([30, 10, 0]))  # overdue from 10 on: rows 1 and 2
    assert found.overdue(12) is found.overdue(29)
    assert found.overdue(29) is not found.overdue(30)


def test_a_new_report_counts() -> None:
    state = ClusterState()
    state.set_node(node("a"))
    state.set_usage(usage("a", cpu=1000, age=100))
    assert stale_reports(state.view()).overdue(NOW - 50 * SECOND).rows.size == 1
    state.set_usage(usage("a", cpu=1000, age=0))
    assert stale_reports(state.view()).overdue(NOW - 50 * SECOND).rows.size == 0
