from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace

import pytest

from engine.model import api
from engine.model.hold import HOLD_GATE
from engine.model.kubernetes_version import KubernetesVersion
from engine.model.pod import pod_of
from engine.model.time import Micros
from engine.quota import QuotaMode, QuotaVerdict, ReservationTimeouts
from engine.view import ClusterState
from tests.builders import pod_from
from tests.patience import PATIENCE_SECONDS
from webhook.admission import wire
from webhook.admission.handler import Outcome
from webhook.admission.quota import QuotaReviews
from webhook.admission.wire import LargePods
from webhook.cluster.timing import MonotonicClock
from webhook.quota import (
    MemoryStore,
    ObservedCluster,
    QuotaConfig,
    QuotaLedger,
)

PODS = {"group": "", "version": "v1", "resource": "pods"}


def asking(uid: str, /, namespace: str = "shop", **more: object) -> wire.AdmissionRequest:
    pod = {"metadata": {"name": uid}, "spec": {"containers": [{"name": "c"}]}}
    request = {
        "uid": uid,
        "operation": "CREATE",
        "resource": PODS,
        "namespace": namespace,
        "object": pod,
        **more,
    }
    body = {"apiVersion": wire.API_VERSION, "kind": wire.KIND, "request": request}
    return wire.decode(json.dumps(body).encode())


class Time:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


def quota_reviews(
    state: ClusterState,
    mode: QuotaMode = "Enforce",
    time: Time | None = None,
    record_denial: Callable[[str, QuotaVerdict], None] = lambda _namespace, _verdict: None,
    large_pods: LargePods | None = None,
    *,
    queues: bool = True,
) -> QuotaReviews:
    config = QuotaConfig(
        clock=MonotonicClock(now=time or Time()), timeouts=ReservationTimeouts(unseen_seconds=60)
    )
    observed = ObservedCluster(
        view=state.view, requests=lambda key, scheduled: state.requests(key, scheduled=scheduled)
    )
    return QuotaReviews(
        ledger=QuotaLedger(observed, MemoryStore(), config),
        view=state.view,
        mode=mode,
        excluded_namespaces=["kube-system"],
        record_denial=record_denial,
        large_pods=large_pods or LargePods(seconds=PATIENCE_SECONDS),
        queues=queues,
    )


async def outcomes(reviews: QuotaReviews, *requests: wire.AdmissionRequest) -> list[Outcome]:
    return [(await reviews.review(request)).outcome for request in requests]


ADMITTED, DENIED = Outcome.ADMITTED, Outcome.QUOTA_DENIED


async def test_admitted_pods_count_before_they_are_observed(state: ClusterState) -> None:
    # The quota of `shop` is two pods.
    reviews = quota_reviews(state)
    requests = (asking("a"), asking("b"), asking("c"))
    assert await outcomes(reviews, *requests) == [ADMITTED, ADMITTED, DENIED]


async def test_held_pods_count_like_others_before_and_after_they_are_observed(
    state: ClusterState,
) -> None:
    reviews = quota_reviews(state)
    gated = {"containers": [{"name": "c"}], "schedulingGates": [{"name": HOLD_GATE}]}
    held = {"metadata": {"name": "a", "namespace": "shop", "uid": "a"}, "spec": gated}
    state.set_pod(pod_from(held), seen_at=Micros(0))
    requests = [asking(name, object={"metadata": {"name": name}, "spec": gated}) for name in "bc"]
    assert await outcomes(reviews, *requests) == [ADMITTED, DENIED]


async def test_a_denial_reads_like_that_of_a_resource_quota(state: ClusterState) -> None:
    reviews = quota_reviews(state)
    await outcomes(reviews, asking("a"), asking("b"))
    response = (await reviews.review(asking("c"))).response
    assert response.status is not None
    assert response.status.code == 403
    assert (
        response.status.message
        == "exceeded quota: team, requested: pods=1, used: pods=2, limited: pods=2"
    )


async def test_in_audit_mode_a_denial_is_a_warning(state: ClusterState) -> None:
    reviews = quota_reviews(state, "Audit")
    await outcomes(reviews, asking("a"), asking("b"))
    answer = await reviews.review(asking("c"))
    assert answer.outcome is Outcome.QUOTA_AUDITED
    assert answer.response.allowed
    assert "exceeded quota: team" in answer.response.warnings[0]
    assert "exceeded quota: team" in answer.response.audit_annotations["quota"]


async def test_a_dry_run_is_judged_and_takes_nothing(state: ClusterState) -> None:
    reviews = quota_reviews(state)
    requests = [asking(f"d{i}", dryRun=True) for i in range(3)]
    assert await outcomes(reviews, *requests, asking("a"), asking("b")) == [ADMITTED] * 5
    assert await outcomes(reviews, asking("c", dryRun=True)) == [DENIED]


async def test_a_pod_that_never_came_gives_its_share_back(state: ClusterState) -> None:
    time = Time()
    reviews = quota_reviews(state, time=time)
    await outcomes(reviews, asking("a"), asking("b"))
    time.now = 61.0
    assert await outcomes(reviews, asking("c")) == [ADMITTED]


async def test_pods_that_run_already_count(state: ClusterState) -> None:
    for name in ("x", "y"):
        wire = api.Pod(metadata=api.ObjectMeta(namespace="shop", name=name))
        state.set_pod(pod_of(wire), seen_at=Micros(0))
    assert await outcomes(quota_reviews(state), asking("a")) == [DENIED]


@pytest.mark.parametrize("namespace", ["other", "kube-system"])
async def test_a_namespace_without_a_quota_or_excluded_is_not_limited(
    state: ClusterState, namespace: str
) -> None:
    requests = [asking(f"p{i}", namespace) for i in range(5)]
    assert DENIED not in await outcomes(quota_reviews(state), *requests)


async def test_switched_off_nothing_is_judged(state: ClusterState) -> None:
    requests = [asking(f"p{i}") for i in range(5)]
    assert await outcomes(quota_reviews(state, "Off"), *requests) == [Outcome.IGNORED] * 5


async def test_other_requests_are_not_judged(state: ClusterState) -> None:
    reviews = quota_reviews(state)
    requests = asking("a", operation="DELETE", object=None), asking("b", subResource="eviction")
    assert await outcomes(reviews, *requests) == [Outcome.IGNORED] * 2


NO_POD = {"spec": 1}
NO_QUANTITY = {"spec": {"containers": [{"resources": {"requests": {"cpu": "a lot"}}}]}}


@pytest.mark.parametrize("unreadable", [NO_POD, NO_QUANTITY])
async def test_a_pod_that_cannot_be_read_fits_no_quota(
    state: ClusterState, unreadable: object
) -> None:
    result = await quota_reviews(state).review(asking("a", object=unreadable))
    assert result.outcome is DENIED
    assert not result.response.allowed
    assert result.response.status is not None
    assert "the object is not a pod" in result.response.status.message


async def test_a_pod_that_cannot_be_read_is_admitted_where_there_is_no_quota(
    state: ClusterState,
) -> None:
    result = await quota_reviews(state).review(asking("a", "other", object=NO_POD))
    assert (result.outcome, result.response.allowed) == (Outcome.UNREADABLE, True)


async def test_in_audit_mode_a_pod_that_cannot_be_read_is_admitted_with_a_warning(
    state: ClusterState,
) -> None:
    result = await quota_reviews(state, "Audit").review(asking("a", object=NO_POD))
    assert result.response.allowed
    assert "the object is not a pod" in result.response.warnings[0]


async def test_a_pod_that_nests_deeply_is_read(state: ClusterState) -> None:
    requests = []
    for name in "abc":
        pod = {"metadata": {"name": name, "managedFields": ["nested"]}, "spec": {}}
        request = {"uid": name, "operation": "CREATE", "resource": PODS, "namespace": "shop"}
        body = {"apiVersion": wire.API_VERSION, "kind": wire.KIND}
        text = json.dumps({**body, "request": {**request, "object": pod}})
        nested = text.replace('"nested"', "[" * 9_000 + "]" * 9_000)
        requests.append(wire.decode(nested.encode()))
    assert await outcomes(quota_reviews(state), *requests) == [ADMITTED, ADMITTED, DENIED]


POD = {"metadata": {"name": "a", "uid": "u", "resourceVersion": "7"}}


def with_cpu(cpu: str) -> dict[str, object]:
    resources = {"requests": {"cpu": cpu}}
    return {**POD, "spec": {"containers": [{"name": "c", "resources": resources}]}}


def changing(old: object, new: object, by: str = "resize") -> wire.AdmissionRequest:
    return asking("change", operation="UPDATE", object=new, oldObject=old, subResource=by)


async def test_a_change_that_asks_for_nothing_more_is_admitted(state: ClusterState) -> None:
    reviews = quota_reviews(state)
    await outcomes(reviews, asking("x"), asking("y"))  # the quota is full
    assert await outcomes(reviews, changing(with_cpu("2"), with_cpu("1"))) == [ADMITTED]


@pytest.mark.parametrize(("minor", "outcome"), [(36, ADMITTED), (37, DENIED)])
async def test_a_change_is_charged_what_pods_are_counted_by(
    state: ClusterState, minor: int, outcome: Outcome
) -> None:
    # One container has 1 core and asks for 500m or 1, the other has 500m and asks for 1. By 1.36
    # they count 1 + 1 before and after; by 1.37 max(0.5 + 1, 1 + 0.5), then 1 + 1: 500m more.
    def pod(asks: str) -> dict[str, object]:
        amounts = {"a": (asks, "1"), "b": ("1", "500m")}
        containers = [
            {"name": name, "resources": {"requests": {"cpu": wanted}}}
            for name, (wanted, _) in amounts.items()
        ]
        statuses = [
            {"name": name, "resources": {"requests": {"cpu": has}}}
            for name, (_, has) in amounts.items()
        ]
        return {
            **POD,
            "spec": {"containers": containers},
            "status": {"containerStatuses": statuses},
        }

    state.set_kubernetes(KubernetesVersion(1, minor))
    state.set_quota(replace(state.view().namespaces.quotas["shop"][0], max={"cpu": 400}))
    reviews = quota_reviews(state)
    assert await outcomes(reviews, changing(pod("500m"), pod("1"))) == [outcome]


async def test_a_change_of_no_stored_pod_is_not_admitted(state: ClusterState) -> None:
    reviews = quota_reviews(state)
    not_stored = {**with_cpu("1"), "metadata": {"name": "a", "uid": "u"}}
    for old, problem in (
        (NO_POD, "the old object is not a pod"),
        (not_stored, "the old object has no resourceVersion"),
    ):
        response = (await reviews.review(changing(old, with_cpu("2")))).response
        assert not response.allowed
        assert response.status is not None
        assert problem in response.status.message


async def test_a_change_by_other_ways_is_not_judged(state: ClusterState) -> None:
    changed = changing(with_cpu("1"), with_cpu("2"), by="ephemeralcontainers")
    assert await outcomes(quota_reviews(state), changed) == [Outcome.IGNORED]


async def test_what_a_kubelet_reports_is_not_charged(state: ClusterState) -> None:
    reviews = quota_reviews(state)
    await outcomes(reviews, asking("x"), asking("y"))  # the quota is full
    reported = changing(with_cpu("1"), with_cpu("2"), by="status")
    assert await outcomes(reviews, reported) == [ADMITTED]


async def test_a_namespace_may_override_the_mode(state: ClusterState) -> None:
    reviews = quota_reviews(state)
    requests = (asking("a"), asking("b"), asking("c"), asking("d"))
    state.set_namespace("shop", {}, quota_mode="Audit")
    assert await outcomes(reviews, *requests[:3]) == [ADMITTED, ADMITTED, Outcome.QUOTA_AUDITED]
    state.set_namespace("shop", {}, quota_mode="Off")
    assert await outcomes(reviews, requests[3]) == [Outcome.IGNORED]


async def test_denials_are_recorded_except_in_a_dry_run(state: ClusterState) -> None:
    denials: list[tuple[str, tuple[str, ...]]] = []
    reviews = quota_reviews(
        state, record_denial=lambda space, verdict: denials.append((space, verdict.exceeded))
    )
    await outcomes(reviews, asking("a"), asking("b"), asking("c"), asking("d", dryRun=True))
    assert denials == [("shop", ("team",))]


def large(containers: int = 2_000, **resources: object) -> dict[str, object]:
    """Return a pod that is judged apart from others."""
    container = {"name": "c" * 40, "resources": resources}
    return {"metadata": {"name": "large"}, "spec": {"containers": [container] * containers}}


async def test_a_large_pod_is_judged_like_any_other(state: ClusterState) -> None:
    state.set_quota(replace(state.view().namespaces.quotas["shop"][0], max={"cpu": 2_000}))
    reviews = quota_reviews(state)
    fits, exceeds = large(requests={"cpu": "1m"}), large(requests={"cpu": "1m", "memory": "1"})
    exceeds["metadata"] = {"name": "another"}
    assert asking("a", object=fits).is_large
    assert await outcomes(reviews, asking("a", object=fits)) == [ADMITTED]
    response = (await reviews.review(asking("b", object=exceeds))).response
    assert not response.allowed
    assert response.status is not None
    assert "requested: cpu=2, used: cpu=2, limited: cpu=2" in response.status.message


TOO_LARGE = {"metadata": {"annotations": {"a": "x" * wire.MOST_POD_BYTES}}}
MANY_NAMES = large(1, requests={f"example.com/r{number}": "1" for number in range(1_001)})


@pytest.mark.parametrize(
    ("pod", "reason"),
    [(TOO_LARGE, "the pod is too large"), (MANY_NAMES, "the pod names more than 1000 resources")],
)
async def test_a_pod_beyond_judgement_is_denied_where_it_is_limited(
    state: ClusterState, pod: object, reason: str
) -> None:
    reviews = quota_reviews(state)
    result = await reviews.review(asking("a", object=pod))
    assert result.outcome is DENIED
    assert result.response.status is not None
    assert result.response.status.message == f"pod not checked against quota team: {reason}"
    audited = await quota_reviews(state, "Audit").review(asking("a", object=pod))
    assert audited.outcome is Outcome.QUOTA_AUDITED
    assert await outcomes(reviews, asking("a", "elsewhere", object=pod)) == [ADMITTED]


async def test_large_pods_that_come_faster_than_they_are_judged_are_denied(
    state: ClusterState,
) -> None:
    reviews = quota_reviews(state, large_pods=LargePods(most_waiting=0))
    message = "pod not checked against quota team: too many large pods at a time"
    response = (await reviews.review(asking("a", object=large()))).response
    assert response.status is not None
    assert response.status.message == message
    assert await outcomes(reviews, asking("b")) == [ADMITTED]


async def test_a_large_pod_that_is_changed_is_charged_the_difference(state: ClusterState) -> None:
    state.set_quota(replace(state.view().namespaces.quotas["shop"][0], max={"cpu": 2_000}))
    reviews = quota_reviews(state)
    before, after = large(requests={"cpu": "1m"}), large(requests={"cpu": "2m"})
    before["metadata"] = after["metadata"] = {"name": "large", "uid": "1", "resourceVersion": "7"}
    assert await outcomes(reviews, changing(before, after)) == [ADMITTED]  # of 2 cores, 2 more
    assert await outcomes(reviews, asking("b", object=with_cpu("1m"))) == [DENIED]
