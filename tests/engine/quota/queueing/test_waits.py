"""Why pods wait, as it is told to those who ask for one, for some or for all of them."""

from __future__ import annotations

from engine.model.queued_condition import QueuedReason
from engine.model.time import Micros
from engine.quota.queueing import QuotaWait, QuotaWaits
from tests.engine.quota.queueing.queues import cycle, key, pod, quota

QUEUE = [pod("shop/a", 2), pod("shop/b", 1), pod("batch/c", 3), pod("shop/d", 9)]
QUOTAS = [quota("shop", 0, 3), quota("batch", 0, 2)]
ELSEWHERE = QuotaWait(
    QueuedReason.WAITING_FOR_CAPACITY, key("mail"), 1, 1, is_within_min=True, since=Micros(0)
)


def test_pods_that_wait_for_a_quota_or_for_something_else_are_told_in_order() -> None:
    ended = cycle(QUEUE, QUOTAS, {"shop": 2})
    assert [release.key for release in ended.releases()] == ["shop/b"]
    waits = ended.waits({"mail/e": ELSEWHERE, "shop/d": ELSEWHERE})
    assert list(waits) == ["shop/a", "shop/d", "batch/c", "mail/e"]
    assert len(waits) == 4
    assert "shop/b" not in waits
    assert waits.get("shop/b") is None
    assert waits["shop/a"].message == "needs cpu 2m, 0 free"
    assert waits["shop/d"] == waits["mail/e"] == ELSEWHERE


def test_the_quotas_that_pods_wait_for_are_known_and_why_their_first_pods_wait() -> None:
    ended = cycle(QUEUE, QUOTAS, {"shop": 2})
    assert list(ended.releases())
    waits = ended.waits({"mail/e": ELSEWHERE})
    assert waits.quotas == {key("shop"), key("batch"), key("mail")}
    firsts = waits.firsts()
    assert firsts == {
        key("shop"): waits["shop/a"],
        key("batch"): waits["batch/c"],
        key("mail"): ELSEWHERE,
    }
    assert firsts[key("batch")].reason is QueuedReason.EXCEEDS_MAX


def test_nobody_waits_without_a_cycle() -> None:
    assert (dict(QuotaWaits()), QuotaWaits().quotas, QuotaWaits().firsts()) == ({}, set(), {})
