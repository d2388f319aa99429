from __future__ import annotations

from typing import Any

import msgspec

from engine.errors import StowplanError
from engine.quota import Reach
from webhook.admission import wire
from webhook.admission.quota_rollout import QuotaRolloutReviews
from webhook.admission.review_result import Outcome

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
