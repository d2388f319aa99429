"""Reviews of pods that quotas of Koordinator's tree limit, by their label or from above."""

from __future__ import annotations

from engine.model.elastic_quota import KOORDINATOR_GROUP, NAME_LABEL, TreeSettings
from engine.model.hold import HOLD_GATE, HOLD_REASONS_ANNOTATION
from engine.view import ClusterState
from tests.builders import elastic_quota
from tests.webhook.admission.test_quota import asking, outcomes, quota_reviews
from webhook.admission.handler import Outcome
from webhook.admission.wire import AdmissionRequest


def _state() -> ClusterState:
    state = ClusterState()
    top = TreeSettings(is_parent=True)
    for name, settings, cpu in (("top", top, 3000), ("batch", TreeSettings(parent="top"), 4000)):
        state.set_quota(
            elastic_quota(
                name, namespace="quotas", group=KOORDINATOR_GROUP, most={"cpu": cpu}, tree=settings
            )
        )
    return state


def _creation(
    cpu: str, label: str = "batch", *, uid: str = "a", queued: bool = False
) -> AdmissionRequest:
    resources = {"requests": {"cpu": cpu}}
    spec: dict[str, object] = {"containers": [{"name": "c", "resources": resources}]}
    metadata: dict[str, object] = {"name": uid, "labels": {NAME_LABEL: label}}
    if queued:
        spec["schedulingGates"] = [{"name": HOLD_GATE}]
        metadata["annotations"] = {HOLD_REASONS_ANNOTATION: "quota"}
    return asking(uid, object={"metadata": metadata, "spec": spec})


async def test_a_label_never_leads_past_the_quotas_above_it() -> None:
    reviews = quota_reviews(_state())
    denied = _creation("3500m")
    status = (await reviews.review(denied)).response.status
    assert status is not None
    assert status.message == (
        "exceeded quota: top, requested: cpu=3500m, used: cpu=0, limited: cpu=3"
    )
    # The second is denied though nobody has seen the first yet.
    requests = (_creation("2"), _creation("2", uid="b"), _creation("9", label="unknown"))
    expected = [Outcome.ADMITTED, Outcome.QUOTA_DENIED, Outcome.ADMITTED]
    assert await outcomes(reviews, *requests) == expected


async def test_a_pod_may_wait_for_what_will_be_free_and_for_nothing_more() -> None:
    reviews = quota_reviews(_state(), "Queue")
    requests = (_creation("3", queued=True), _creation("4", queued=True))
    assert await outcomes(reviews, *requests) == [Outcome.QUEUED, Outcome.QUOTA_DENIED]
