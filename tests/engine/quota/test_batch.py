from __future__ import annotations

from dataclasses import replace

from engine.model.elastic_quota import ElasticQuota
from engine.quota import (
    AllowanceConfig,
    CohortUsage,
    LocalAllowance,
    QuotaRequest,
    QuotaRules,
    QuotaState,
    QuotaVerdict,
    Reservation,
    ReservationTimeouts,
    judge_batch,
)
from engine.quota.reservations import MOST_BYTES

NOW = 100.0
FITS = QuotaVerdict()


def quota(group: str = "a", **maximum: int) -> ElasticQuota:
    return ElasticQuota(
        namespace="shop",
        name=f"team-{group}",
        group=group,
        min=None,
        max=maximum,
        used={},
        uid="q",
        version=1,
    )


def book(group: str = "a", **maximum: int) -> QuotaState:
    return QuotaState(
        quota(group, **maximum), NOW, ReservationTimeouts(), LocalAllowance("me", AllowanceConfig())
    )


def asked(uid: str, *, dry_run: bool = False, **amounts: int) -> QuotaRequest:
    return QuotaRequest(Reservation(uid, f"name-{uid}", amounts), dry_run)


def allowed(verdicts: tuple[QuotaVerdict | None, ...]) -> list[bool]:
    return [verdict is not None and verdict.allowed for verdict in verdicts]


def test_each_request_finds_those_before_it_counted() -> None:
    batch = [asked("a", cpu=600), asked("b", cpu=500), asked("c", cpu=400)]
    # 0 + 600 fits 1000; 600 + 500 does not, and takes nothing; 600 + 400 does.
    judgement = judge_batch(batch, {}, [book(cpu=1000)], NOW)
    assert allowed(judgement.verdicts) == [True, False, True]
    ((_, draft),) = judgement.writes
    assert draft.reservations.by_key.keys() == {"a", "c"}


def test_a_question_takes_nothing() -> None:
    batch = [asked("a", dry_run=True, cpu=600), asked("b", cpu=600)]
    assert allowed(judge_batch(batch, {}, [book(cpu=1000)], NOW).verdicts) == [True, True]


def test_where_nobody_is_admitted_nothing_is_written() -> None:
    assert judge_batch([asked("a", cpu=2)], {"cpu": 1}, [book(cpu=2)], NOW).writes == ()


def test_a_denial_names_every_quota_it_does_not_fit() -> None:
    books = [book(cpu=1), book("b", pods=0)]
    (verdict,) = judge_batch([asked("a", cpu=2, pods=1)], {}, books, NOW).verdicts
    assert verdict is not None
    assert verdict.exceeded == ("team-a", "team-b")
    assert verdict.message == (
        "exceeded quota: team-a, requested: cpu=2m, used: cpu=0, limited: cpu=1m; "
        "exceeded quota: team-b, requested: pods=1, used: pods=0, limited: pods=0"
    )


def test_only_quotas_that_limit_the_pod_are_written() -> None:
    books = [book(cpu=1), book("b", memory=1)]
    judgement = judge_batch([asked("a", cpu=1)], {}, books, NOW)
    assert [one for one, _ in judgement.writes] == books[:1]


def test_what_max_does_not_limit_today_is_remembered_for_it_may_tomorrow() -> None:
    batch = [asked("a", cpu=1, memory=5, x=0)]
    ((_, draft),) = judge_batch(batch, {}, [book(cpu=1)], NOW).writes
    assert draft.reservations.by_key["a"].amounts == {"cpu": 1, "memory": 5}


def test_a_pod_that_names_very_many_resources_takes_little_room() -> None:
    many = {f"example.com/{i}": 1 for i in range(1000)}
    one = QuotaRequest(Reservation("a", "a", {"cpu": 1, **many}))
    ((_, draft),) = judge_batch([one], {}, [book(cpu=1)], NOW).writes
    assert draft.reservations.by_key["a"].amounts == {"cpu": 1}


def test_beyond_its_size_nobody_can_say() -> None:
    full = book(pods=10**6)
    batch = [asked(f"uid-{i}", pods=1) for i in range(5_000)]
    judgement = judge_batch(batch, {}, [full], NOW)
    ((_, draft),) = judgement.writes
    size = len(full.annotation(draft.reservations))
    assert MOST_BYTES - 100 < size <= MOST_BYTES
    assert judgement.verdicts.count(FITS) == len(draft.reservations.by_key)
    assert judgement.verdicts[-1] is None


def test_where_room_is_scarce_pods_that_were_seen_make_room_at_once() -> None:
    batch = [asked(f"uid-{i}", pods=1) for i in range(2_000)]
    full = book(pods=10**6)
    ((_, draft),) = judge_batch(batch, {}, [full], NOW).writes
    full.update(
        replace(full.quota, version=2, reservations=full.annotation(draft.reservations)), NOW
    )
    assert len(full.annotation(full.pruned(NOW))) > MOST_BYTES // 2
    full.mark_observed(lambda _: 5, 5, NOW)
    assert not full.pruned(NOW).by_key
    assert full.pruned(NOW).seen_up_to == 5


def test_where_many_are_admitted_pods_that_were_seen_make_room_soon() -> None:
    batch = [asked(f"uid-{i}", pods=1) for i in range(500)]  # some 60 bytes each
    busy = book(pods=10**6)
    ((_, draft),) = judge_batch(batch, {}, [busy], NOW).writes
    busy.update(
        replace(busy.quota, version=2, reservations=busy.annotation(draft.reservations)), NOW
    )
    busy.mark_observed(lambda _: 5, 5, NOW)
    assert len(busy.pruned(NOW + 0.9).by_key) == 500
    assert not busy.pruned(NOW + 1).by_key
    assert busy.pruned(NOW + 1).seen_up_to == 5


def test_by_upstreams_rule_what_max_does_not_list_is_forbidden() -> None:
    rules = QuotaRules(unlisted_resources="Zero")
    batch = [asked("a", cpu=1), asked("b", memory=1), asked("c", pods=1)]
    verdicts = judge_batch(batch, {}, [book(memory=5)], NOW, rules).verdicts
    assert allowed(verdicts) == [False, True, True]


def test_by_upstreams_rule_nothing_at_all_is_admitted_while_cpu_is_over() -> None:
    rules = QuotaRules(unlisted_resources="Zero")
    verdicts = judge_batch([asked("a", pods=1)], {"cpu": 6}, [book(cpu=5)], NOW, rules).verdicts
    assert allowed(verdicts) == [False]


def test_who_borrows_shares_what_all_are_guaranteed() -> None:
    rules = QuotaRules(borrowing="AggregateMin")
    # All hold 5 of 10 together; 5 + 3 fits, 8 + 3 does not, 8 + 2 does. Questions take nothing.
    pool = CohortUsage({"cpu": 5}, {"cpu": 10})
    batch = [
        asked("q", cpu=5, dry_run=True),
        *(asked(uid, cpu=3) for uid in "ab"),
        asked("c", cpu=2),
    ]
    judgement = judge_batch(batch, {"cpu": 1}, [book(cpu=100)], NOW, rules, pool)
    assert allowed(judgement.verdicts) == [True, True, False, True]
    assert judgement.verdicts[2] == QuotaVerdict(
        ("the sum of all min",),
        "exceeded quota: the sum of all min, requested: cpu=3m, used: cpu=8m, limited: cpu=10m",
    )
