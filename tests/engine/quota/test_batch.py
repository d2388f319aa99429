from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from engine.model.elastic_quota import ElasticQuota
from engine.quota import (
    AllowanceConfig,
    CohortUsage,
    QuotaRequest,
    QuotaRules,
    QuotaState,
    QuotaVerdict,
    Reservation,
    ReservationTimeouts,
    judge_batch,
)
from engine.quota.reservations import MOST_BYTES, encode
from tests.builders import elastic_quota

NOW = 100.0
FITS = QuotaVerdict()


def quota(group: str = "a", **maximum: int) -> ElasticQuota:
    return elastic_quota(f"team-{group}", group=group, most=maximum, uid="q", version=1)


def state(group: str = "a", **maximum: int) -> QuotaState:
    return QuotaState(
        quota(group, **maximum),
        NOW,
        replica="replica-1",
        timeouts=ReservationTimeouts(),
        allowances=AllowanceConfig(),
    )


def request(uid: str, *, dry_run: bool = False, **amounts: int) -> QuotaRequest:
    return QuotaRequest(Reservation(uid, f"name-{uid}", amounts), dry_run)


def allowed(verdicts: tuple[QuotaVerdict | None, ...]) -> list[bool]:
    return [verdict is not None and verdict.allowed for verdict in verdicts]


def test_each_request_finds_those_before_it_counted() -> None:
    batch = [request("a", cpu=600), request("b", cpu=500), request("c", cpu=400)]
    # 0 + 600 fits 1000; 600 + 500 does not, and takes nothing; 600 + 400 does.
    result = judge_batch(batch, {}, [state(cpu=1000)], NOW)
    assert allowed(result.verdicts) == [True, False, True]
    ((_, write),) = result.writes
    assert write.reservations.by_key.keys() == {"a", "c"}


def test_a_dry_run_reserves_nothing() -> None:
    batch = [request("a", dry_run=True, cpu=600), request("b", cpu=600)]
    assert allowed(judge_batch(batch, {}, [state(cpu=1000)], NOW).verdicts) == [True, True]


def test_without_an_admitted_request_nothing_is_written() -> None:
    assert judge_batch([request("a", cpu=2)], {"cpu": 1}, [state(cpu=2)], NOW).writes == ()


def test_a_denial_names_every_quota_it_does_not_fit() -> None:
    states = [state(cpu=1), state("b", pods=0)]
    (verdict,) = judge_batch([request("a", cpu=2, pods=1)], {}, states, NOW).verdicts
    assert verdict is not None
    assert verdict.exceeded == ("team-a", "team-b")
    assert verdict.message == (
        "exceeded quota: team-a, requested: cpu=2m, used: cpu=0, limited: cpu=1m; "
        "exceeded quota: team-b, requested: pods=1, used: pods=0, limited: pods=0"
    )


def test_only_quotas_that_limit_the_pod_are_written() -> None:
    states = [state(cpu=1), state("b", memory=1)]
    result = judge_batch([request("a", cpu=1)], {}, states, NOW)
    assert [written for written, _ in result.writes] == states[:1]


def test_a_reservation_has_resources_that_max_may_limit_later() -> None:
    batch = [request("a", cpu=1, memory=5, x=0)]
    ((_, write),) = judge_batch(batch, {}, [state(cpu=1)], NOW).writes
    assert write.reservations.by_key["a"].amounts == {"cpu": 1, "memory": 5}


def test_a_pod_that_names_very_many_resources_takes_few_bytes() -> None:
    many = {f"example.com/{i}": 1 for i in range(1000)}
    greedy = QuotaRequest(Reservation("a", "a", {"cpu": 1, **many}))
    ((_, write),) = judge_batch([greedy], {}, [state(cpu=1)], NOW).writes
    assert write.reservations.by_key["a"].amounts == {"cpu": 1}


def test_beyond_the_size_of_the_annotation_there_is_no_verdict() -> None:
    full = state(pods=10**6)
    batch = [request(f"uid-{i}", pods=1) for i in range(5_000)]
    result = judge_batch(batch, {}, [full], NOW)
    ((_, write),) = result.writes
    size = len(encode(write.reservations, "q"))
    assert MOST_BYTES - 100 < size <= MOST_BYTES
    assert result.verdicts.count(FITS) == len(write.reservations.by_key)
    assert result.verdicts[-1] is None


def test_in_a_nearly_full_annotation_reservations_of_observed_pods_end_at_once() -> None:
    batch = [request(f"uid-{i}", pods=1) for i in range(2_000)]
    full = state(pods=10**6)
    ((_, write),) = judge_batch(batch, {}, [full], NOW).writes
    full.update(replace(full.quota, version=2, reservations=encode(write.reservations, "q")), NOW)
    assert len(encode(full.pruned(NOW), "q")) > MOST_BYTES // 2
    full.mark_observed(lambda _: 5, 5, NOW)
    assert not full.pruned(NOW).by_key
    assert full.pruned(NOW).seen_up_to == 5


def test_where_many_are_admitted_reservations_of_observed_pods_end_soon() -> None:
    batch = [request(f"uid-{i}", pods=1) for i in range(500)]  # some 60 bytes each
    busy = state(pods=10**6)
    ((_, write),) = judge_batch(batch, {}, [busy], NOW).writes
    busy.update(replace(busy.quota, version=2, reservations=encode(write.reservations, "q")), NOW)
    busy.mark_observed(lambda _: 5, 5, NOW)
    assert len(busy.pruned(NOW + 0.9).by_key) == 500
    assert not busy.pruned(NOW + 1).by_key
    assert busy.pruned(NOW + 1).seen_up_to == 5


def test_by_upstreams_rule_unlisted_resources_are_forbidden() -> None:
    rules = QuotaRules(unlisted_resources="Zero")
    batch = [request("a", cpu=1), request("b", memory=1), request("c", pods=1)]
    verdicts = judge_batch(batch, {}, [state(memory=5)], NOW, rules).verdicts
    assert allowed(verdicts) == [False, True, True]


def test_by_upstreams_rule_nothing_at_all_is_admitted_while_cpu_is_over() -> None:
    rules = QuotaRules(unlisted_resources="Zero")
    verdicts = judge_batch([request("a", pods=1)], {"cpu": 6}, [state(cpu=5)], NOW, rules).verdicts
    assert allowed(verdicts) == [False]


def test_namespaces_that_borrow_share_the_sum_of_all_min() -> None:
    rules = QuotaRules(borrowing="AggregateMin")
    # All use 5 of 10 together; 5 + 3 fits, 8 + 3 does not, 8 + 2 does. A dry run reserves nothing.
    cohort = CohortUsage({"cpu": 5}, {"cpu": 10})
    batch = [
        request("q", cpu=5, dry_run=True),
        *(request(uid, cpu=3) for uid in "ab"),
        request("c", cpu=2),
    ]
    result = judge_batch(batch, {"cpu": 1}, [state(cpu=100)], NOW, rules, cohort)
    assert allowed(result.verdicts) == [True, True, False, True]
    assert result.verdicts[2] == QuotaVerdict(
        ("the sum of all min",),
        "exceeded quota: the sum of all min, requested: cpu=3m, used: cpu=8m, limited: cpu=10m",
    )


def named(uid: str, name: str, **amounts: int) -> QuotaRequest:
    return QuotaRequest(Reservation(uid, name, amounts))


def stored(name: str, **amounts: int) -> Callable[[str], dict[str, int]]:
    return lambda other: amounts if other == name else {}


def test_of_the_pods_of_a_name_only_the_greatest_takes_a_share() -> None:
    # One pod of 100m is stored; nine more of its name will all be refused by the API server.
    batch = [named(f"a{i}", "a", cpu=100) for i in range(9)]
    batch += [named("b", "b", cpu=800), named("c", "c", cpu=200), named("d", "d", cpu=100)]
    limit = state(cpu=1000)
    result = judge_batch(batch, {"cpu": 100}, [limit], NOW, counted=stored("a", cpu=100))
    # a 100, b 100 + 800; c 900 + 200 is too much; d 900 + 100
    assert allowed(result.verdicts) == [True] * 10 + [False, True]


def test_a_larger_pod_of_a_name_takes_the_difference() -> None:
    batch = [named("a2", "a", cpu=400), named("a3", "a", cpu=300), named("b", "b", cpu=700)]
    result = judge_batch(batch, {"cpu": 100}, [state(cpu=1000)], NOW, counted=stored("a", cpu=100))
    # a 400 in all, as no two of them can be stored; b 400 + 700
    assert allowed(result.verdicts) == [True, True, False]


def test_pods_of_a_name_are_compared_resource_by_resource() -> None:
    batch = [named("a2", "a", cpu=100, memory=900), named("b", "b", cpu=100, memory=100)]
    result = judge_batch(
        batch,
        {"cpu": 900, "memory": 100},
        [state(cpu=1000, memory=1000)],
        NOW,
        counted=stored("a", cpu=900, memory=100),
    )
    # a: cpu 900, memory 900
    assert allowed(result.verdicts) == [True, True]


def test_resizes_and_pods_without_a_name_add_up() -> None:
    resizes = [
        QuotaRequest(Reservation("a", "a", {"cpu": 400}, 7, f"resize-{i}")) for i in range(3)
    ]
    result = judge_batch(
        resizes, {"cpu": 100}, [state(cpu=1000)], NOW, counted=stored("a", cpu=100)
    )
    assert allowed(result.verdicts) == [True, True, False]  # 100 + 400 + 400 + 400
    unnamed = [named(f"u{i}", "", cpu=400) for i in range(3)]
    result = judge_batch(unnamed, {}, [state(cpu=1000)], NOW)
    assert allowed(result.verdicts) == [True, True, False]
