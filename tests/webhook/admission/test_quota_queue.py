from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from engine.model.hold import HOLD_GATE, HOLD_REASONS_ANNOTATION
from engine.model.time import Micros
from engine.quota import QuotaMode
from engine.view import ClusterState
from tests.builders import elastic_quota, pod_from
from tests.webhook.admission.test_quota import ADMITTED, DENIED, asking, changing, quota_reviews
from webhook.admission.handler import Outcome
from webhook.admission.quota import QuotaReviews
from webhook.admission.wire import AdmissionRequest

QUEUED = Outcome.QUEUED
QUEUE = {HOLD_REASONS_ANNOTATION: "placement,quota"}
GATE = [{"name": HOLD_GATE}]


def manifest(
    name: str,
    *,
    gates: list[dict[str, str]] | None = None,
    annotations: dict[str, str] | None = None,
    version: str = "",
    cpu: str = "1",
) -> dict[str, Any]:
    metadata = {"name": name, "namespace": "shop", "uid": name, "annotations": annotations or {}}
    resources = {"requests": {"cpu": cpu}}
    spec = {
        "containers": [{"name": "c", "resources": resources}],
        "schedulingGates": gates or [],
    }
    return {"metadata": {**metadata, "resourceVersion": version}, "spec": spec}


def queued(name: str, version: str = "", cpu: str = "1") -> dict[str, Any]:
    return manifest(name, gates=GATE, annotations=QUEUE, version=version, cpu=cpu)


def creation(pod: dict[str, Any], **more: object) -> AdmissionRequest:
    return asking(pod["metadata"]["name"], "shop", object=pod, **more)


def release(name: str, by: str = "", **more: object) -> AdmissionRequest:
    old, new = queued(name, version="7"), manifest(name, annotations=QUEUE)
    uid = f"release-{name}"
    return asking(
        uid, "shop", operation="UPDATE", object=new, oldObject=old, subResource=by, **more
    )


def store(state: ClusterState, *pods: dict[str, Any]) -> None:
    for pod in pods:
        state.set_pod(pod_from(pod), seen_at=Micros(0))


async def outcomes(reviews: QuotaReviews, *requests: AdmissionRequest) -> list[Outcome]:
    return [(await reviews.review(request)).outcome for request in requests]


async def test_queued_pods_take_no_share_until_they_are_released(state: ClusterState) -> None:
    # The quota of `shop` is two pods.
    reviews = quota_reviews(state, "Queue")
    names = "abcd"
    pods = [queued(name) for name in names]
    assert await outcomes(reviews, *map(creation, pods)) == [QUEUED] * 4
    store(state, *pods)
    assert await outcomes(reviews, *map(release, names)) == [ADMITTED, ADMITTED, DENIED, DENIED]


@pytest.mark.parametrize("mode", ["Queue", "Enforce"])
async def test_a_pod_that_is_not_held_is_judged_at_once(
    state: ClusterState, mode: QuotaMode
) -> None:
    reviews = quota_reviews(state, mode)
    pods = [manifest(name) for name in "abc"]
    assert await outcomes(reviews, *map(creation, pods)) == [ADMITTED, ADMITTED, DENIED]


@pytest.mark.parametrize(
    ("gates", "annotations"),
    [
        (GATE, {}),
        (GATE, {HOLD_REASONS_ANNOTATION: "placement"}),
        (GATE, {HOLD_REASONS_ANNOTATION: "quotas, quota"}),
        (GATE, {HOLD_REASONS_ANNOTATION: f"{'x' * 59},quota"}),
        ([{"name": "example.com/gate"}], QUEUE),
        ([*({"name": str(number)} for number in range(16)), *GATE], QUEUE),
        ([], QUEUE),
    ],
)
async def test_a_half_forged_queued_pod_takes_its_share(
    state: ClusterState, gates: list[dict[str, str]], annotations: dict[str, str]
) -> None:
    reviews = quota_reviews(state, "Queue")
    pods = [manifest(name, gates=gates, annotations=annotations) for name in "abc"]
    assert await outcomes(reviews, *map(creation, pods)) == [ADMITTED, ADMITTED, DENIED]


@pytest.mark.parametrize("by", ["", "status"])
@pytest.mark.parametrize(
    "left",
    [
        {"gates": []},
        {"gates": [], "annotations": {}},
        {"gates": GATE, "annotations": {}},
        {"gates": GATE, "annotations": {HOLD_REASONS_ANNOTATION: "placement"}},
        {"gates": [{"name": "example.com/gate"}]},
    ],
    ids=["gate removed", "both removed", "reason removed", "reason changed", "other gate"],
)
async def test_every_way_out_of_the_queue_is_judged(
    state: ClusterState, left: dict[str, Any], by: str
) -> None:
    reviews = quota_reviews(state, "Queue")
    assert await outcomes(reviews, *(creation(manifest(name)) for name in "ab")) == [ADMITTED] * 2
    new = manifest("c", **{"annotations": QUEUE, **left})
    response = (await reviews.review(changing(queued("c", "7"), new, by))).response
    assert not response.allowed
    assert response.status is not None
    assert response.status.code == 403
    assert response.status.message.startswith("exceeded quota: team, requested: pods=1, used: ")


async def test_other_changes_of_a_queued_pod_are_free(state: ClusterState) -> None:
    reviews = quota_reviews(state, "Queue")
    assert await outcomes(reviews, *(creation(manifest(name)) for name in "ab")) == [ADMITTED] * 2
    larger = queued("c", cpu="9")
    requests = [changing(queued("c", "7"), larger, by) for by in ("", "resize", "status")]
    back = changing(manifest("c", version="7"), queued("c"), "")
    assert await outcomes(reviews, *requests, back) == [ADMITTED] * 4


async def test_a_release_that_is_repeated_takes_one_share(state: ClusterState) -> None:
    reviews = quota_reviews(state, "Queue")
    store(state, queued("a", "7"))
    requests = [release("a"), release("a"), creation(manifest("b")), creation(manifest("c"))]
    assert await outcomes(reviews, *requests) == [ADMITTED, ADMITTED, ADMITTED, DENIED]


async def test_a_dry_run_of_a_release_takes_nothing(state: ClusterState) -> None:
    reviews = quota_reviews(state, "Queue")
    requests = [release(name, dryRun=True) for name in "abc"]
    assert await outcomes(reviews, *requests) == [ADMITTED] * 3


async def test_a_pod_that_can_never_be_released_is_not_queued(state: ClusterState) -> None:
    limit(state, max={"cpu": 2000})
    reviews = quota_reviews(state, "Queue")
    store(state, manifest("running", cpu="2"))
    assert await outcomes(reviews, creation(queued("a", cpu="2"))) == [QUEUED]
    result = await reviews.review(creation(queued("b", cpu="3")))
    assert result.outcome is DENIED
    assert result.response.status is not None
    expected = "exceeded quota: team, requested: cpu=3, used: cpu=0, limited: cpu=2"
    assert result.response.status.message == expected


async def test_of_one_quota_only_so_many_pods_wait(state: ClusterState) -> None:
    limit(state, max_queued=2)
    reviews = quota_reviews(state, "Queue")
    for name in "ab":
        assert await outcomes(reviews, creation(queued(name))) == [QUEUED]
        store(state, queued(name))
    result = await reviews.review(creation(queued("c")))
    assert result.outcome is DENIED
    assert result.response.status is not None
    expected = "too many pods wait for quota: team, waiting: 2, limited: 2"
    assert result.response.status.message == expected
    state.delete_pod("shop/a")
    assert await outcomes(reviews, creation(queued("c"))) == [QUEUED]


async def test_where_nothing_is_queued_the_gate_and_the_reason_change_nothing() -> None:
    state = ClusterState(leave_out_queued=False)
    limit(state, max={"pods": 2})
    reviews = quota_reviews(state, "Enforce", queues=False)
    pods = [queued(name, "7") for name in "ab"]
    assert await outcomes(reviews, *map(creation, pods)) == [ADMITTED, ADMITTED]
    store(state, *pods)
    assert await outcomes(reviews, creation(queued("c"))) == [DENIED]
    assert await outcomes(reviews, *map(release, "ab")) == [ADMITTED, ADMITTED]


async def test_releases_that_are_refused_are_no_denied_creations(state: ClusterState) -> None:
    denials: list[str] = []
    reviews = quota_reviews(
        state, "Queue", record_denial=lambda space, _verdict: denials.append(space)
    )
    await outcomes(reviews, *(creation(manifest(name)) for name in "ab"), release("c"))
    assert not denials


def limit(state: ClusterState, **changes: Any) -> None:  # noqa: ANN401 - fields of a quota
    quota = elastic_quota(most={"pods": 2}, uid="q", version=9)
    state.set_quota(replace(quota, **changes))
