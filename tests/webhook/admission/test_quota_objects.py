from __future__ import annotations

from typing import Any

import msgspec
import pytest

from engine.errors import StowplanError
from engine.quota import Reach
from engine.view import ClusterState
from webhook.admission import wire
from webhook.admission.handler import Outcome, ReviewResult
from webhook.admission.quota_objects import QuotaObjectReviews, QuotaRolloutReviews
from webhook.admission.wire import AdmissionError
from webhook.cluster.timing import MonotonicClock

UPSTREAM, KOORDINATOR = "scheduling.x-k8s.io", "scheduling.sigs.k8s.io"


class Coverage:
    """Remembers what was to be covered."""

    def __init__(self, refusal: str = "") -> None:
        self.covered: list[Reach] = []
        self._refusal = refusal

    async def cover(self, reach: Reach) -> None:
        self.covered.append(reach)
        if self._refusal:
            raise StowplanError(self._refusal)


def request(group: str = UPSTREAM, **more: Any) -> wire.AdmissionRequest:  # noqa: ANN401 (JSON)
    request = {
        "uid": "1",
        "operation": "CREATE",
        "resource": {"group": group, "version": "v1alpha1", "resource": "elasticquotas"},
        "namespace": "shop",
        "name": "team",
        **more,
    }
    review = {"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": request}
    return wire.decode(msgspec.json.encode(review))


async def test_a_quota_is_admitted_once_its_namespace_is_covered() -> None:
    coverage = Coverage()
    result = await QuotaRolloutReviews(coverage).review(request())
    assert result.response.allowed
    assert coverage.covered == [frozenset(["shop"])]


async def test_one_of_koordinators_tree_needs_all_namespaces() -> None:
    coverage = Coverage()
    await QuotaRolloutReviews(coverage).review(request(KOORDINATOR))
    assert coverage.covered == [None]


async def test_a_quota_that_would_not_be_in_force_is_refused_with_the_reason() -> None:
    result = await QuotaRolloutReviews(Coverage("an API server is behind")).review(request())
    assert result.outcome is Outcome.UNDECIDED
    assert result.response.status is not None
    assert result.response.status.message == (
        "the quota would not be in force: an API server is behind; try again"
    )


async def test_nothing_is_covered_for_dry_runs_changes_and_quotas_that_limit_nobody() -> None:
    coverage = Coverage()
    reviews = QuotaRolloutReviews(coverage)
    for each in (
        request(dryRun=True),
        request(operation="UPDATE"),
        request(KOORDINATOR, name="koordinator-default-quota"),
    ):
        assert (await reviews.review(each)).response.allowed
    assert coverage.covered == []


async def test_a_probe_is_refused_so_that_the_api_server_names_its_webhook() -> None:
    leases = {"group": "coordination.k8s.io", "version": "v1", "resource": "leases"}
    result = await QuotaRolloutReviews(Coverage()).review(request(resource=leases))
    assert result.outcome is Outcome.PROBED
    assert not result.response.allowed


GROUP, OTHER_GROUP = "scheduling.x-k8s.io", "scheduling.sigs.k8s.io"


async def _at_once(_: float) -> None:
    """Wait for nothing: the view of a test does not change by itself."""


CLOCK = MonotonicClock(sleep=_at_once)
REVIEWS = QuotaObjectReviews(view=ClusterState().view, clock=CLOCK)


def quota_request(
    operation: str = "CREATE", group: str = GROUP, **more: object
) -> wire.AdmissionRequest:
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
    message = refused(await REVIEWS.review(quota_request(object=wrong)))
    assert message.startswith("`spec.min` has less than none of `memory`: `-1`; `spec.max` cannot")
    assert not refused(await REVIEWS.review(quota_request(object=quota(max={"cpu": "1"}))))


async def test_whoever_asks_for_hard_reclaim_and_may_not_is_warned_once() -> None:
    asking = quota(min={"cpu": "1"}, max={"cpu": "2"})
    asking["metadata"] = {
        "name": "team",
        "namespace": "shop",
        "annotations": {"stowplan.dev/reclaim": "Hard"},
    }
    before = quota(min={"cpu": "1"}, max={"cpu": "2"})
    allowing = QuotaObjectReviews(view=ClusterState().view, hard_namespaces=("shop",), clock=CLOCK)
    warning = (
        "annotation `stowplan.dev/reclaim`: `Hard` counts as `On` in namespace `shop`, which is not"
        " among `quota.hardReclaimNamespaces`"
    )
    created = quota_request("CREATE", object=asking)
    changed = quota_request("UPDATE", object=asking, oldObject=before)
    again = quota_request("UPDATE", object=asking, oldObject=asking)
    for each, expected in ((created, [warning]), (changed, [warning]), (again, [])):
        answer = await REVIEWS.review(each)
        assert refused(answer) == ""
        assert list(answer.response.warnings) == expected
        assert not (await allowing.review(each)).response.warnings


async def test_our_own_writes_are_never_refused() -> None:
    old = quota(max={"cpu": "1"}, min={"cpu": "2"})
    new = old | {"metadata": {"name": "team", "annotations": {"stowplan.dev/reservations": "{}"}}}
    assert not refused(await REVIEWS.review(quota_request("UPDATE", object=new, oldObject=old)))
    other = quota(max={"cpu": "1"}, min={"cpu": "3"})
    assert refused(await REVIEWS.review(quota_request("UPDATE", object=other, oldObject=old)))


async def test_koordinators_own_quotas_are_not_deleted() -> None:
    name = "koordinator-default-quota"
    answer = await REVIEWS.review(quota_request("DELETE", OTHER_GROUP, name=name))
    assert refused(answer) == f"can not delete quotaGroup :{name}"
    assert not refused(await REVIEWS.review(quota_request("DELETE", name=name)))


async def test_another_object_is_an_error() -> None:
    with pytest.raises(AdmissionError, match="the object is not an ElasticQuota"):
        await REVIEWS.review(quota_request(object={"spec": {"max": {"cpu": [1]}}}))
    with pytest.raises(AdmissionError, match="the object is not an ElasticQuota"):
        await REVIEWS.review(quota_request())


@pytest.mark.parametrize(
    "request_",
    [
        quota_request("CONNECT"),
        quota_request("UPDATE", subResource="status"),
        quota_request(group="example.com"),
        quota_request(resource={"version": "v1", "resource": "pods"}),
    ],
)
async def test_other_requests_pass(request_: wire.AdmissionRequest) -> None:
    assert (await REVIEWS.review(request_)).outcome is Outcome.IGNORED
