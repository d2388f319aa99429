from __future__ import annotations

from typing import Any

import msgspec
import pytest

from engine.view import ClusterState
from webhook.admission import wire
from webhook.admission.quota_objects import QuotaObjectReviews, by_resource
from webhook.admission.review_result import Outcome, ReviewResult
from webhook.admission.wire import AdmissionError
from webhook.quota.config import MonotonicClock

GROUP, OTHER_GROUP = "scheduling.x-k8s.io", "scheduling.sigs.k8s.io"


async def _at_once(_: float) -> None:
    """Wait for nothing: the view of a test does not change by itself."""


CLOCK = MonotonicClock(sleep=_at_once)
REVIEWS = QuotaObjectReviews(view=ClusterState().view, clock=CLOCK)


def request(operation: str = "CREATE", group: str = GROUP, **more: object) -> wire.AdmissionRequest:
    request = {
        "uid": "1",
        "operation": operation,
        "resource": {"group": group, "version": "v1alpha1", "resource": "elasticquotas"},
        "namespace": "shop",
        "name": "team",
        **more,
    }
    body = {"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": request}
    return wire.decode(msgspec.json.encode(body))


def quota(**spec: object) -> dict[str, Any]:
    return {
        "apiVersion": f"{GROUP}/v1alpha1",
        "kind": "ElasticQuota",
        "metadata": {"name": "team"},
        "spec": spec,
    }


def refused(answer: ReviewResult) -> str:
    """Return what the author of a quota reads, "" if it is stored."""
    status = answer.response.status
    assert answer.outcome == (Outcome.INVALID if status else Outcome.ADMITTED)
    assert answer.response.allowed == (status is None)
    return status.message if status else ""


async def test_an_invalid_quota_is_refused_with_all_reasons() -> None:
    wrong = quota(max={"cpu": "1", "gpu": "1"}, min={"memory": "-1"})
    message = refused(await REVIEWS.review(request(object=wrong)))
    assert message.startswith("`spec.min` has less than none of `memory`: `-1`; `spec.max` cannot")
    assert not refused(await REVIEWS.review(request(object=quota(max={"cpu": "1"}))))


async def test_our_own_writes_are_never_refused() -> None:
    old = quota(max={"cpu": "1"}, min={"cpu": "2"})
    new = old | {"metadata": {"name": "team", "annotations": {"stowplan.dev/reservations": "{}"}}}
    assert not refused(await REVIEWS.review(request("UPDATE", object=new, oldObject=old)))
    other = quota(max={"cpu": "1"}, min={"cpu": "3"})
    assert refused(await REVIEWS.review(request("UPDATE", object=other, oldObject=old)))


async def test_koordinators_own_quotas_are_not_deleted() -> None:
    name = "koordinator-default-quota"
    answer = await REVIEWS.review(request("DELETE", OTHER_GROUP, name=name))
    assert refused(answer) == f"can not delete quotaGroup :{name}"
    assert not refused(await REVIEWS.review(request("DELETE", name=name)))


async def test_another_object_is_an_error() -> None:
    with pytest.raises(AdmissionError, match="the object is not an ElasticQuota"):
        await REVIEWS.review(request(object={"spec": {"max": {"cpu": [1]}}}))
    with pytest.raises(AdmissionError, match="the object is not an ElasticQuota"):
        await REVIEWS.review(request())


@pytest.mark.parametrize(
    "request_",
    [
        request("CONNECT"),
        request("UPDATE", subResource="status"),
        request(group="example.com"),
        request(resource={"version": "v1", "resource": "pods"}),
    ],
)
async def test_other_requests_pass(request_: wire.AdmissionRequest) -> None:
    assert (await REVIEWS.review(request_)).outcome is Outcome.IGNORED


def test_reviews_of_one_path_go_by_their_resource() -> None:
    pods, quotas = (ReviewResult(Outcome.ADMITTED, wire.allowed(uid)) for uid in ("pods", "quotas"))
    answer = by_resource(pods=lambda _: pods, quotas=lambda _: quotas)
    assert answer(request()) is quotas
    assert answer(request(resource={"version": "v1", "resource": "pods"})) is pods
