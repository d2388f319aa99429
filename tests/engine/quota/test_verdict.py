from engine.model.elastic_quota import ElasticQuota
from engine.quota import judge
from tests.builders import elastic_quota


def quota(name: str = "team", **maximum: int) -> ElasticQuota:
    names = {"gpu": "nvidia.com/gpu"}
    return elastic_quota(name, most={names.get(key, key): value for key, value in maximum.items()})


def test_a_request_that_fills_the_quota_exactly_fits() -> None:
    # 7500m used + 500m = 8000m, and the limit is 8000m: not above it.
    verdict = judge({"cpu": 500}, {"cpu": 7500}, [quota(cpu=8000)])
    assert verdict.allowed
    assert verdict.message == ""


def test_a_denial_lists_only_what_was_exceeded_in_sorted_order() -> None:
    # cpu: 7600m + 500m = 8100m > 8; memory: 1Gi + 1Gi = 2Gi fits 4Gi; gpu: 2 + 1 = 3 > 2.
    verdict = judge(
        {"nvidia.com/gpu": 1, "memory": 2**30, "cpu": 500},
        {"cpu": 7600, "memory": 2**30, "nvidia.com/gpu": 2},
        [quota(cpu=8000, memory=4 * 2**30, gpu=2)],
    )
    assert not verdict.allowed
    assert verdict.message == (
        "exceeded quota: team, requested: cpu=500m,nvidia.com/gpu=1,"
        " used: cpu=7600m,nvidia.com/gpu=2, limited: cpu=8,nvidia.com/gpu=2"
    )


def test_a_resource_that_max_does_not_name_is_unlimited() -> None:
    assert judge({"memory": 2**40}, {}, [quota(cpu=1)]).allowed


def test_a_quota_already_overrun_still_admits_what_it_does_not_concern() -> None:
    # cpu is over its limit, but the pod asks for none.
    assert judge({"memory": 1, "cpu": 0}, {"cpu": 9000}, [quota(cpu=8000, memory=10)]).allowed


def test_every_quota_of_the_namespace_must_fit() -> None:
    verdict = judge({"cpu": 600}, {"cpu": 500}, [quota("a", cpu=1000), quota("b", cpu=2000)])
    assert verdict.exceeded == ("a",)


def test_the_number_of_pods_can_be_limited() -> None:
    verdict = judge({"pods": 1}, {"pods": 3}, [quota(pods=3)])
    assert (
        verdict.message == "exceeded quota: team, requested: pods=1, used: pods=3, limited: pods=3"
    )
