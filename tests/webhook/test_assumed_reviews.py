"""Reviews that make a pod count on its advised node before it is observed."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jsonpatch
import msgspec
import pytest

from engine.model.decision import ADVICE_ANNOTATION, Advice
from engine.model.pod import Pod
from engine.model.time import Micros
from engine.pipeline import Scope
from engine.policy import load_policies
from engine.view import ClusterState, ClusterView, Sum
from tests.webhook.admission.test_placement import review_of
from tests.webhook.conftest import DENYING
from webhook.admission.handler import Outcome, ReviewResult
from webhook.admission.placement import PlacementReviews
from webhook.admission.quota import QuotaReviews
from webhook.placement.live_policies import PolicyCounts
from webhook.placement.placer import Placer
from webhook.quota import MemoryStore, ObservedCluster, QuotaLedger

POLICY = """
apiVersion: stowplan.dev/v1alpha1
kind: PlacementPolicy
metadata: {name: b-first}
spec:
  scores:
    - name: is-b
      expression: "node.name == 'node-b' ? 1 : 0"
"""
CONTAINERS: dict[str, Any] = {"containers": [{"name": "c"}]}
POD: dict[str, Any] = {"metadata": {"generateName": "web-"}, "spec": CONTAINERS}
Review = Callable[..., ReviewResult]
Assumed = list[tuple[Pod, Advice]]


@dataclass(frozen=True, slots=True)
class Recorder:
    """The pods in flight, with a record of each time one is assumed."""

    assumed: Assumed
    state: ClusterState

    def assume(self, pod: Pod, advice: Advice) -> None:
        self.assumed.append((pod, advice))
        self.state.assume(pod, advice, at=Micros(0))

    def withdraw(self, pod: Pod) -> Advice | None:
        return self.state.withdraw(pod)


@pytest.fixture
def assumed() -> Assumed:
    """Each assumed pod, with its advice."""
    return []


@pytest.fixture
def review(state: ClusterState, tmp_path: Path, assumed: Assumed) -> Review:
    """Return how to have a pod reviewed; parts of the request, and the policies in force."""

    def review_by(policy: str = POLICY, **parts: Any) -> ReviewResult:  # noqa: ANN401 - parts of a request
        path = tmp_path / "policy.yaml"
        path.write_text(f"{policy}\n---\n{DENYING}")
        loaded = load_policies([path])
        placer = Placer(
            view=state.view, now=lambda: Micros(0), scope=Scope(), assumed=Recorder(assumed, state)
        )
        reviews = PlacementReviews(placer, lambda: loaded, lambda: 0.0, PolicyCounts())
        return reviews.review(review_of(**{"object": POD, **parts}))

    return review_by


def patched(result: ReviewResult, sent: dict[str, Any]) -> dict[str, Any]:
    after: dict[str, Any] = jsonpatch.apply_patch(sent, json.loads(result.response.patch or b"[]"))
    return after


def test_what_is_assumed_is_what_stands_on_the_pod(review: Review, assumed: Assumed) -> None:
    result = review()
    assert result.outcome is Outcome.PLACED
    ((pod, advice),) = assumed
    assert (pod.namespace, pod.generate_name) == ("shop", "web-")
    text = patched(result, POD)["metadata"]["annotations"][ADVICE_ANNOTATION]
    assert msgspec.json.decode(text, type=Advice) == advice
    assert advice.nodes == ("node-b",)
    assert advice.id


@pytest.mark.parametrize(
    "parts",
    [
        {"dryRun": True},
        {"namespace": "closed"},  # denied
        {"namespace": "kube-system"},  # not ours, as those on the next lines
        {"object": {**POD, "metadata": {"ownerReferences": [{"kind": "DaemonSet"}]}}},
        {"object": {**POD, "spec": {**CONTAINERS, "nodeName": "node-a"}}},
        {"object": {**POD, "spec": {**CONTAINERS, "schedulerName": "other"}}},
        {"operation": "DELETE"},
        {"object": {"metadata": {}, "spec": {"containers": "none"}}},
        {"object": {**POD, "metadata": {"annotations": {ADVICE_ANNOTATION: "{}"}}}},
        {"policy": POLICY.replace("spec:", "spec:\n  mode: Audit")},
        {"policy": POLICY.replace("node-b", "none")},  # all nodes are as good: none is preferred
    ],
)
def test_a_pod_that_gets_no_advice_that_lasts_is_not_assumed(
    review: Review, assumed: Assumed, parts: dict[str, Any]
) -> None:
    review(**parts)
    assert assumed == []


def on_nodes(state: ClusterState) -> dict[str, int]:
    """Return how many pods are assumed on each node that has any."""
    view = state.view()
    return {name: int(view.assumed[row]) for name, row in view.rows.items() if view.assumed[row]}


def with_sidecar(pod: dict[str, Any], cpu: str) -> dict[str, Any]:
    """Return a pod as another webhook leaves it."""
    sidecar = {"name": "sidecar", "resources": {"requests": {"cpu": cpu}}}
    spec = {**pod["spec"], "containers": [*pod["spec"]["containers"], sidecar]}
    return {**pod, "spec": spec}


def test_a_second_round_of_admission_keeps_the_first_advice_and_counts_the_pod_once(
    review: Review, assumed: Assumed, state: ClusterState
) -> None:
    once = patched(review(uid="first"), POD)
    twice = patched(review(uid="second", object=once), once)
    assert twice == once
    assert [advice for _, advice in assumed] == [assumed[0][1]] * 2
    assert on_nodes(state) == {"node-b": 1}


def test_in_a_second_round_a_pod_counts_as_other_webhooks_left_it(
    review: Review, state: ClusterState
) -> None:
    once = patched(review(uid="first"), POD)
    review(uid="second", object=with_sidecar(once, "3"))
    view = state.view()
    assert view.assumed[view.rows["node-b"]] == 1
    assert view.amount(view.sums[Sum.REQUESTS], "cpu")[view.rows["node-b"]] == 3_000


def test_a_pod_is_not_in_its_own_way_in_a_second_round(review: Review, assumed: Assumed) -> None:
    # Nodes have 4 cores: beside itself the pod fits nowhere, and the policy denies such pods.
    policy = f"{POLICY}  filters: [{{expression: 'node.name == \"node-b\"', name: only-b}}]\n"
    policy += "  placement: {whenNoneFits: Deny}\n"
    pod = with_sidecar(POD, "3")
    once = patched(review(policy, uid="first", object=pod), pod)
    again = review(policy, uid="second", object=once)
    assert again.outcome is Outcome.PLACED
    assert len(assumed) == 2


def test_a_pod_that_is_denied_in_a_second_round_counts_no_more(
    review: Review, state: ClusterState
) -> None:
    once = patched(review(uid="first"), POD)
    denied = review(uid="second", object=once, namespace="closed")
    assert denied.outcome is Outcome.DENIED
    assert on_nodes(state) == {}


def test_a_dry_run_of_a_pod_in_flight_leaves_it_where_it_is(
    review: Review, state: ClusterState
) -> None:
    once = patched(review(uid="first"), POD)
    review(uid="second", object=once, dryRun=True)
    assert on_nodes(state) == {"node-b": 1}


def test_pods_of_one_template_share_a_decision_where_time_is_short_and_count_each(
    state: ClusterState, tmp_path: Path, assumed: Assumed
) -> None:
    (tmp_path / "policy.yaml").write_text(POLICY)
    loaded, now = load_policies([tmp_path]), [0.0]

    def slow_view() -> ClusterView:
        now[0] += 0.03  # seconds; a decision takes so long here
        return state.view()

    placer = Placer(
        view=slow_view, now=lambda: Micros(0), scope=Scope(), assumed=Recorder(assumed, state)
    )
    reviews = PlacementReviews(placer, lambda: loaded, lambda: now[0], PolicyCounts())
    results = [reviews.review(review_of(uid=uid, object=POD)) for uid in ("first", "second")]
    assert [result.outcome for result in results] == [Outcome.PLACED, Outcome.SHARED]
    for result, (_, advice) in zip(results, assumed, strict=True):
        text = patched(result, POD)["metadata"]["annotations"][ADVICE_ANNOTATION]
        assert msgspec.json.decode(text, type=Advice) == advice
    assert len({advice.id for _, advice in assumed}) == 2
    assert on_nodes(state) == {"node-b": 2}


@pytest.mark.parametrize(("dry_run", "left"), [(False, 2), (True, 3)])
async def test_a_pod_that_quota_denies_counts_no_more_unless_it_was_a_dry_run(
    review: Review, state: ClusterState, *, dry_run: bool, left: int
) -> None:
    quota = QuotaReviews(  # two pods are allowed in `shop`
        ledger=QuotaLedger(ObservedCluster(view=state.view), MemoryStore()),
        view=state.view,
        mode="Enforce",
        excluded_namespaces=(),
        withdraw=state.withdraw,
    )
    outcomes = []
    for number in range(3):
        final = patched(review(uid=f"u-{number}"), POD)
        final["metadata"]["uid"] = str(number)
        validated = review_of(uid=f"v-{number}", object=final, dryRun=dry_run and number == 2)
        outcomes.append((await quota.review(validated)).outcome)
    assert outcomes == [Outcome.ADMITTED, Outcome.ADMITTED, Outcome.QUOTA_DENIED]
    assert on_nodes(state) == {"node-b": left}
