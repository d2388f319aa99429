from __future__ import annotations

from itertools import count

import pytest

from engine.model.time import SECOND, Micros
from webhook.cluster.watch.source_status import SourceStatus
from webhook.controllers.reclaim.plan_inputs import PlanInputs


def test_a_source_that_is_missing_for_long_is_told_now_and_then(
    caplog: pytest.LogCaptureFixture,
) -> None:
    budgets = SourceStatus(name="budgets", domain=None, required=False, last_error="forbidden")
    seconds = count()
    inputs = PlanInputs(lambda: True, [budgets], lambda: Micros(next(seconds) * SECOND))
    for _ in range(661):
        assert not inputs.are_ready()
    text = "nobody is evicted for pods that wait: budgets cannot be read: forbidden"
    assert [record.message for record in caplog.records] == [text, text]  # after 60 and 660 s
    budgets.synced = True
    assert inputs.are_ready()


def test_nothing_is_planned_before_the_cluster_is_known(caplog: pytest.LogCaptureFixture) -> None:
    inputs = PlanInputs(lambda: False, [], lambda: Micros(0))
    assert not inputs.are_ready()
    assert not caplog.records
