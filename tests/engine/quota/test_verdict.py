from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from engine.model.elastic_quota import ElasticQuota
from engine.model.pod import DeploymentPod, deployment_pod_of
from engine.quota import QuotaRequest, QuotaState, Reservation, judge, judge_batch
from engine.quota.reservations import decode
from tests.builders import elastic_quota
from tests.engine.quota.overrun_model import TIMEOUTS, SurgeCluster
from tests.engine.quota.test_batch import NOW, state

_FAST = 0


def _state(**maximum: int) -> QuotaState:
    made = state("a", **maximum)
    made.quota = replace(made.quota, allows_surge=True)
    return made


def _request(name: str, cpu: int, deployment: str = "web") -> QuotaRequest:
    return QuotaRequest(Reservation(f"uid-{name}", name, {"cpu": cpu}), of=_of(deployment))


def _of(deployment: str) -> DeploymentPod:
    return DeploymentPod(deployment, "new")


def _allowed(quota: QuotaState, running: Mapping[str, int], *requests: QuotaRequest) -> list[bool]:
    """Judge requests where pods named `deployment-number` run."""
    result = judge_batch(
        requests,
        {"cpu": sum(running.values())},
        [quota],
        NOW,
        counted=lambda name: {"cpu": running[name]} if name in running else {},
        replaced=lambda new: [name for name in running if name.startswith(new.deployment)],
    )
    return [verdict is not None and verdict.allowed for verdict in result.verdicts]


def test_a_pod_goes_above_max_by_as_much_as_the_one_that_it_replaces() -> None:
    running = {"web-1": 4, "web-2": 4}
    assert _allowed(_state(cpu=8), running, _request("new", 4)) == [True]
    assert _allowed(_state(cpu=8), running, _request("new", 5)) == [False]
    # 8 + 5 are 4 above 9, as much as comes back.
    assert _allowed(_state(cpu=9), running, _request("new", 5)) == [True]


def test_without_the_annotation_or_a_pod_to_replace_nothing_goes_above_max() -> None:
    running = {"web-1": 4, "web-2": 4}
    assert _allowed(state(cpu=8), running, _request("new", 4)) == [False]
    assert _allowed(_state(cpu=8), running, _request("new", 4, "mail")) == [False]
    bare = QuotaRequest(Reservation("u", "new", {"cpu": 4}))
    assert _allowed(_state(cpu=8), running, bare) == [False]


def test_each_deployment_surges_by_one_pod() -> None:
    running = {"web-1": 2, "web-2": 2, "mail-1": 4}
    requests = [_request("a", 2), _request("b", 2), _request("c", 4, "mail")]
    assert _allowed(_state(cpu=8), running, *requests) == [True, False, True]


def test_nothing_else_takes_the_room_that_comes_back() -> None:
    running = {"web-1": 4, "web-2": 4}
    bare = QuotaRequest(Reservation("u", "bare", {"cpu": 1}))
    assert _allowed(_state(cpu=8), running, _request("new", 4), bare) == [True, False]
    # A pod that is there for a surge of one Deployment is not replaced for another one, too.
    both = QuotaRequest(Reservation("v", "x", {"cpu": 4}), of=_of("web-1"))
    assert _allowed(_state(cpu=8), {"web-1": 8}, _request("new", 4), both) == [True, False]


def test_no_pod_is_replaced_by_itself_or_while_it_surges() -> None:
    running = {"web-1": 8}
    # Of one name there is one pod: the new one may be as large, and is no surge.
    assert _allowed(_state(cpu=8), running, _request("web-1", 8)) == [True]
    assert _allowed(_state(cpu=8), running, _request("web-1", 9)) == [False]
    # `web-2` surges; it is of a Deployment `web-2`, too, and not replaced for that.
    of_itself = QuotaRequest(Reservation("v", "x", {"cpu": 4}), of=_of("web-2"))
    running = {"web-1": 8, "web-2": 4}
    assert _allowed(_state(cpu=8), running, of_itself) == [False]


def test_two_deployments_surge_side_by_side_however_long_it_takes() -> None:
    cluster = SurgeCluster()
    # Those of `x` are a, c, e; of `y` b and d. 4 + 4 of 10, then one more of each.
    cluster.roll_out([(_FAST, name) for name in "abc"])
    cluster.now += 2 * TIMEOUTS.settled_seconds
    cluster.prune(_FAST)
    cluster.write_arrives(_FAST, answered=True)
    cluster.roll_out([(_FAST, name) for name in "de"])
    assert sorted(cluster.pods) == ["a", "b", "c", "d"]
    listed = decode(cluster.quota.reservations, "q")
    assert listed is not None
    assert {(each.name, each.surge, each.replaces) for each in listed.by_key.values()} == {
        ("c", "x", "a"),
        ("d", "y", "b"),
    }


def test_a_surge_is_no_longer_listed_as_one_once_either_pod_has_ended() -> None:
    for ends in "ac":
        cluster = SurgeCluster()
        cluster.roll_out([(_FAST, name) for name in "abc"])
        cluster.delete(ends)
        cluster.watch(_FAST, most=99)
        cluster.now += 2 * TIMEOUTS.settled_seconds
        cluster.prune(_FAST)
        cluster.write_arrives(_FAST, answered=True)
        assert '"surge"' not in cluster.quota.reservations


def test_a_pod_is_of_a_deployment_by_its_replica_set_and_the_hash_of_its_template() -> None:
    labels = {"pod-template-hash": "7d9f"}
    assert deployment_pod_of("web-app-7d9f-", labels, ["ReplicaSet"]) == ("web-app", "7d9f")
    for name, kinds in (
        ("web-", ["ReplicaSet"]),
        ("web-7d9f-", ["Job"]),
        ("-7d9f-", ["ReplicaSet"]),
    ):
        assert deployment_pod_of(name, labels, kinds) is None
    assert deployment_pod_of("web-7d9f-", {}, ["ReplicaSet"]) is None


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
