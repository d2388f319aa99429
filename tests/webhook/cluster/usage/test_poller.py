from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Sequence

import pytest

from engine.model.time import SECOND, Micros
from engine.model.usage import NodeUsage
from engine.view import ClusterState
from tests.webhook.cluster.polling import NOW, Polling
from webhook.cluster.usage.poller import UsageSourceError


class _Source:
    """Reads what it is given, or fails with it."""

    def __init__(self) -> None:
        self.skipped = 0
        self.readings: list[NodeUsage] = []
        self.error: Exception | None = None

    async def read(self) -> Sequence[NodeUsage]:
        if self.error is not None:
            raise self.error
        return self.readings

    async def backfill(self) -> AsyncIterator[Sequence[NodeUsage]]:
        for ago in (200, 100):
            yield [reading(Micros(NOW - ago * SECOND))]


def reading(at: Micros) -> NodeUsage:
    return NodeUsage(node_name="a", update_time=at, usage={"cpu": 100, "memory": 1})


async def test_no_error_ends_the_polling(caplog: pytest.LogCaptureFixture) -> None:
    source = _Source()
    source.readings = [reading(NOW)]
    source.error = RuntimeError("something new")
    polled = Polling(source, ClusterState())
    await polled.look(lambda: setattr(source, "error", None))
    assert "something new" in caplog.text
    assert polled.usages().keys() == {"a"}
    assert (polled.status.last_error, polled.status.synced) == ("", True)


async def test_a_failure_is_logged_when_it_begins_and_when_it_ends(
    caplog: pytest.LogCaptureFixture,
) -> None:
    source = _Source()
    source.error = UsageSourceError("out of order")
    polled = Polling(source, ClusterState())
    with caplog.at_level(logging.INFO):
        await polled.look(lambda: None, lambda: None, lambda: setattr(source, "error", None))
    assert caplog.messages == [
        "no usage from metrics.k8s.io: out of order",
        "usage from metrics.k8s.io is back",
    ]


async def test_the_past_adds_to_the_history_of_the_first_reading() -> None:
    source = _Source()
    source.readings = [reading(NOW)]
    polled = Polling(source, ClusterState())
    await polled.look()
    # 200 s before now, 100 s before and now span half of five minutes.
    assert [window.duration_ns for window in polled.usages()["a"].aggregated] == [300 * 10**9]
    assert polled.status.events == 1
