from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from engine.model.elastic_quota import KOORDINATOR_GROUP, UPSTREAM_GROUP, ElasticQuota
from engine.model.resources import Amounts
from engine.quota import QuotaRules, cohort_usage, judge, limited, reach_of
from engine.quota.verdict import judge_borrowing
from tests.builders import elastic_quota

ZERO = QuotaRules(unlisted_resources="Zero")
AMOUNTS = st.dictionaries(st.sampled_from(["cpu", "memory", "pods"]), st.integers(0, 9))


def quota(
    namespace: str = "shop",
    *,
    least: Amounts | None = None,
    most: Amounts | None = None,
    group: str = UPSTREAM_GROUP,
) -> ElasticQuota:
    return elastic_quota(namespace=namespace, group=group, least=least, most=most)


def test_with_zero_a_resource_that_max_does_not_name_is_forbidden() -> None:
    only_memory = quota(most={"memory": 2000})
    verdict = judge({"cpu": 100, "memory": 100}, {}, [only_memory], ZERO)
    assert (
        verdict.message == "exceeded quota: team, requested: cpu=100m, used: cpu=0, limited: cpu=0"
    )
    assert judge({"cpu": 100, "memory": 100}, {}, [only_memory]).allowed


def test_with_zero_other_resources_stay_unlimited_and_so_does_everything_without_a_max() -> None:
    request = {"nvidia.com/gpu": 8, "pods": 1}
    assert judge(request, {}, [quota(most={"memory": 2000})], ZERO).allowed
    assert judge({"cpu": 10**6}, {}, [quota(least={"cpu": 1})], ZERO).allowed


def test_with_zero_nothing_is_admitted_while_cpu_is_over() -> None:
    # 3 cores are used of 2: even a request for memory alone is denied.
    held, most = {"cpu": 3000}, {"cpu": 2000, "memory": 100}
    verdict = judge({"memory": 1}, held, [quota(most=most)], ZERO)
    assert verdict.message == "exceeded quota: team, requested: cpu=0, used: cpu=3, limited: cpu=2"
    assert judge({"memory": 1}, held, [quota(most=most)]).allowed


def test_what_a_quota_limits_follows_its_rules() -> None:
    request = {"cpu": 100, "memory": 0, "pods": 1}
    assert limited(request, quota(most={"pods": 5}), QuotaRules()) == {"pods": 1}
    assert limited(request, quota(most={"pods": 5}), ZERO) == {"cpu": 100, "pods": 1}


def test_a_namespace_may_borrow_what_others_leave_of_their_min() -> None:
    quotas = {
        "shop": [quota("shop", least={"cpu": 4000})],
        "mill": [quota("mill", least={"cpu": 4000})],
    }
    # 4 + 2 used of 8 that are guaranteed: 2 are left, to whoever comes first.
    cohort = cohort_usage(quotas, {"shop": {"cpu": 4000, "pods": 9}, "mill": {"cpu": 2000}})
    assert judge_borrowing({"cpu": 2000, "pods": 1}, cohort).allowed
    assert judge_borrowing({"cpu": 2001, "pods": 1}, cohort).message == (
        "exceeded quota: the sum of all min, requested: cpu=2001m, used: cpu=6, limited: cpu=8"
    )


def test_a_resource_that_no_min_names_cannot_be_borrowed_and_blocks_all_once_it_is() -> None:
    quotas = {"shop": [quota("shop", least={"cpu": 4000})]}
    assert not judge_borrowing({"memory": 1}, cohort_usage(quotas, {})).allowed
    over = cohort_usage(quotas, {"shop": {"nvidia.com/gpu": 1}})
    assert judge_borrowing({"cpu": 1}, over).exceeded == ("the sum of all min",)


def test_the_cohort_has_the_namespaces_with_a_quota_of_scheduler_plugins() -> None:
    quotas = {
        "shop": [quota("shop", least={"cpu": 1000})],
        "mill": [quota("mill", least={"cpu": 9000}, group=KOORDINATOR_GROUP)],
    }
    cohort = cohort_usage(
        quotas, {"shop": {"cpu": 500}, "mill": {"cpu": 9000}, "else": {"cpu": 9000}}
    )
    assert cohort.used == {"cpu": 500}
    assert cohort.guaranteed["cpu"] == 1000


@given(AMOUNTS, AMOUNTS, AMOUNTS)
def test_a_request_denied_by_the_default_rules_is_denied_with_zero(
    requests: Amounts, used: Amounts, most: Amounts
) -> None:
    usual = judge(requests, used, [quota(most=most)])
    strict = judge(requests, used, [quota(most=most)], ZERO)
    assert usual.allowed or not strict.allowed


def test_a_quota_reaches_the_pods_of_its_namespace() -> None:
    quotas = [("shop", UPSTREAM_GROUP, "team"), ("data", UPSTREAM_GROUP, "team")]
    assert reach_of(quotas) == frozenset(["shop", "data"])


def test_one_of_a_tree_reaches_pods_of_all_namespaces_by_a_label() -> None:
    quotas = [("shop", UPSTREAM_GROUP, "team"), ("kube-system", KOORDINATOR_GROUP, "tree")]
    assert reach_of(quotas) is None


def test_built_in_quotas_of_koordinator_limit_nobody() -> None:
    built_in = [("kube-system", KOORDINATOR_GROUP, "koordinator-default-quota")]
    assert reach_of(built_in) == frozenset()
