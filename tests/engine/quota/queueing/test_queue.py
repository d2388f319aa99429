"""Why pods wait, as it is told to those who ask for one, for some or for all of them."""

from __future__ import annotations

from engine.model.hold import QueuedReason
from engine.model.time import Micros
from engine.quota.queueing import Bound, Lack, QuotaWait, QuotaWaits
from tests.engine.quota.queueing.queues import cycle, decide, key, pod, quota, released

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


def test_what_fits_within_max_and_the_cohort_goes_in_the_queue_order() -> None:
    queue = [pod("shop/a", 1), pod("shop/b", 1), pod("shop/c", 1)]
    assert released(decide(queue, [quota("shop")], room=3)) == ["shop/a", "shop/b", "shop/c"]


def test_max_is_never_exceeded_whatever_room_the_cohort_has() -> None:
    decision = decide([pod("shop/a", 2), pod("shop/b", 2)], [quota("shop", 0, 3)])
    assert released(decision) == ["shop/a"]
    wait = decision.waits["shop/b"]
    assert (wait.reason, wait.position, wait.of) == (QueuedReason.WAITING_FOR_QUOTA, 1, 1)
    assert wait.lacks == (Lack("cpu", 2, 1, key("shop")),)
    assert wait.message == "needs cpu 2m, 1m free"


def test_a_pod_that_alone_exceeds_max_waits_for_ever_and_keeps_nobody() -> None:
    queue = [pod("shop/large", 4, waited=1_000), pod("shop/small", 1)]
    decision = decide(queue, [quota("shop", 0, 3)])
    assert released(decision) == ["shop/small"]
    assert decision.waits["shop/large"].reason is QueuedReason.EXCEEDS_MAX


def test_beyond_min_a_pod_waits_for_room_in_the_cohort() -> None:
    decision = decide(
        [pod("shop/a", 2)], [quota("shop", 1), quota("batch", 1)], {"batch": 9}, room=10
    )
    assert released(decision) == []
    wait = decision.waits["shop/a"]
    assert wait.message == "needs cpu 2m, 1m free; batch/quota borrows cpu 8m"
    assert not wait.is_within_min


def test_within_min_a_pod_goes_although_others_have_borrowed_all_room() -> None:
    decision = decide(
        [pod("shop/a", 2)], [quota("shop", 2), quota("batch")], {"batch": 10}, room=10
    )
    assert released(decision) == ["shop/a"]
    assert decision.released[0].is_within_min


def test_pods_within_min_go_before_those_that_borrow() -> None:
    queue = [pod("batch/first", 2), pod("shop/second", 2)]
    decision = decide(queue, [quota("shop", 2), quota("batch")], room=2)
    assert released(decision) == ["shop/second"]
    assert "batch/first" in decision.waits


def test_of_those_that_borrow_the_lowest_share_with_the_pod_goes_first() -> None:
    # of 10: a 4 + 1 = 0.5, b 2 + 2 = 0.4, then b 4 + 2 = 0.6
    queue = [pod("a/1", 1), pod("b/1", 2), pod("b/2", 2)]
    decision = decide(queue, [quota("a"), quota("b")], {"a": 4, "b": 2}, room=11)
    assert released(decision) == ["b/1", "a/1", "b/2"]


def test_a_weight_divides_the_share() -> None:
    # of 10: a 4 + 1 = 0.5 / 3, b 1 + 1 = 0.2
    queue = [pod("b/1", 1), pod("a/1", 1)]
    quotas = [quota("a", weight=3), quota("b")]
    assert released(decide(queue, quotas, {"a": 4, "b": 1}, room=10)) == ["a/1", "b/1"]


def test_the_dominant_resource_counts() -> None:
    # a: cpu 1 / 10, memory 8 / 10; b: cpu 3 / 10, memory 1 / 10
    queue = [pod("a/1", {"cpu": 1, "memory": 0}), pod("b/1", {"cpu": 1, "memory": 0})]
    decision = decide(
        queue,
        [quota("a"), quota("b")],
        {"a": {"cpu": 0, "memory": 8}, "b": {"cpu": 2, "memory": 1}},
        room={"cpu": 10, "memory": 10},
    )
    assert released(decision) == ["b/1", "a/1"]


def test_a_pod_overtakes_one_of_its_quota_that_does_not_fit() -> None:
    queue = [pod("shop/large", 3), pod("shop/small", 1)]
    assert released(decide(queue, [quota("shop", 0, 5)], {"shop": 3})) == ["shop/small"]


def test_nothing_of_its_quota_overtakes_a_pod_that_has_waited_for_five_minutes() -> None:
    queue = [pod("shop/large", 3, waited=300), pod("shop/small", 1), pod("other/small", 1)]
    decision = decide(queue, [quota("shop", 0, 5), quota("other")], {"shop": 3})
    assert released(decision) == ["other/small"]
    assert decision.waits["shop/small"].behind == "shop/large"
    queue = [pod("shop/large", 3, waited=299), pod("shop/small", 1)]
    assert released(decide(queue, [quota("shop", 0, 5)], {"shop": 3})) == ["shop/small"]


def test_a_pod_that_the_cohort_can_never_take_is_overtaken_for_ever() -> None:
    # 3 of 10 are in use by pods of no quota: 8 will never be free
    queue = [pod("shop/large", 8, waited=1_000), pod("shop/small", 1)]
    decision = decide(queue, [quota("shop")], room=10, outside=3)
    assert released(decision) == ["shop/small"]
    queue[0] = pod("shop/large", 7, waited=1_000)
    decision = decide(queue, [quota("shop")], {"shop": 1}, room=10, outside=3)
    assert released(decision) == []


def test_what_a_head_within_min_needs_is_kept_while_it_waits_for_what_min_does_not_name() -> None:
    # shop is within its min of cpu, and waits for memory: batch may not take that cpu
    queue = [
        pod("shop/a", {"cpu": 2, "memory": 5}),
        pod("batch/a", {"cpu": 2}),
        pod("batch/b", {"cpu": 1}),
    ]
    decision = decide(
        queue,
        [quota("shop", {"cpu": 4}), quota("batch")],
        {"batch": {"memory": 8}},
        room={"cpu": 3, "memory": 10},
    )
    assert released(decision) == ["batch/b"]
    assert decision.waits["shop/a"].is_within_min
    assert decision.waits["shop/a"].lacks == (Lack("memory", 5, 2, None),)


def test_a_pod_that_requests_nothing_that_min_names_borrows() -> None:
    queue = [pod("shop/a", {"memory": 1}), pod("batch/a", {"cpu": 1})]
    decision = decide(queue, [quota("shop", 5), quota("batch", 5)], room={"cpu": 10, "memory": 10})
    assert [release.is_within_min for release in decision.released] == [True, False]
    assert released(decision) == ["batch/a", "shop/a"]


def test_a_bound_that_quotas_share_holds_for_all_of_them_together() -> None:
    parent = Bound(key("parent"), {"cpu": 3})
    quotas = [quota("a", more=[parent]), quota("b", more=[parent])]
    queue = [pod("a/1", 1), pod("b/1", 1), pod("a/2", 1), pod("b/2", 1)]
    decision = decide(queue, quotas, {"parent": 1})
    assert released(decision) == ["a/1", "b/1"]
    assert decision.waits["a/2"].lacks == (Lack("cpu", 1, 0, key("parent")),)


def test_two_bounds_of_one_quota_count_a_pod_once() -> None:
    runtime = Bound(key("a"), {"cpu": 2})
    queue = [pod("a/1", 1), pod("a/2", 1), pod("a/3", 1)]
    assert released(decide(queue, [quota("a", 0, 5, more=[runtime])])) == ["a/1", "a/2"]


def test_what_nobody_offers_can_only_be_had_within_min() -> None:
    queue = [pod("shop/a", {"example.com/gpu": 1}), pod("shop/b", {"example.com/gpu": 1})]
    decision = decide(queue, [quota("shop", {"example.com/gpu": 1})])
    assert released(decision) == ["shop/a"]
    assert decision.waits["shop/b"].lacks == (Lack("example.com/gpu", 1, -1, None),)


def test_positions_are_those_among_the_pods_of_the_quota_that_wait() -> None:
    queue = [pod("a/1", 1), pod("b/1", 1), pod("a/2", 1), pod("a/3", 1)]
    waits = decide(queue, [quota("a", 0, 1), quota("b", 0, 0)]).waits
    assert {name: (wait.position, wait.of) for name, wait in waits.items()} == {
        "a/2": (1, 2),
        "a/3": (2, 2),
        "b/1": (1, 1),
    }
