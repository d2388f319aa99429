"""Which answers make a pod one that is assumed on its advised node."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jsonpatch
import msgspec
import pytest

from engine.model.advice import ADVICE_ANNOTATION, Advice
from engine.model.pod import Pod
from engine.model.time import Micros
from engine.pipeline import Scope
from engine.policy import load_policies
from engine.view import ClusterState
from tests.webhook.conftest import DENYING
from tests.webhook.test_placement_reviews import asking
from webhook.answers import Answer, Outcome
from webhook.explanations import Explanations
from webhook.placement_reviews import PlacementReviews

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
Review = Callable[..., Answer]
Told = list[tuple[Pod, Advice]]


@pytest.fixture
def told() -> Told:
    """What was to be assumed."""
    return []


@pytest.fixture
def review(state: ClusterState, tmp_path: Path, told: Told) -> Review:
    """Return how to have a pod reviewed; parts of the request, and the policies in force."""

    def answer(policy: str = POLICY, **parts: Any) -> Answer:  # noqa: ANN401 - parts of a request
        path = tmp_path / "policy.yaml"
        path.write_text(f"{policy}\n---\n{DENYING}")
        loaded = load_policies([path])
        reviews = PlacementReviews(
            policies=lambda: loaded,
            view=state.view,
            judged_at=lambda: Micros(0),
            clock=lambda: 0.0,
            scope=Scope(),
            explanations=Explanations(9),
            assume=lambda pod, advice: told.append((pod, advice)),
        )
        return reviews.answer(asking(**{"object": POD, **parts}))

    return answer


def patched(answer: Answer, sent: dict[str, Any]) -> dict[str, Any]:
    after: dict[str, Any] = jsonpatch.apply_patch(sent, json.loads(answer.response.patch or b"[]"))
    return after


def test_what_is_assumed_is_what_stands_on_the_pod(review: Review, told: Told) -> None:
    answer = review()
    assert answer.outcome is Outcome.PLACED
    ((pod, advice),) = told
    assert (pod.namespace, pod.generate_name) == ("shop", "web-")
    text = patched(answer, POD)["metadata"]["annotations"][ADVICE_ANNOTATION]
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
    review: Review, told: Told, parts: dict[str, Any]
) -> None:
    review(**parts)
    assert told == []


def test_a_second_round_of_admission_keeps_the_first_advice(review: Review, told: Told) -> None:
    once = patched(review(uid="first"), POD)
    twice = patched(review(uid="second", object=once), once)
    assert twice == once
    assert len(told) == 1
