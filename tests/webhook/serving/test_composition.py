from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest

from engine.errors import InvalidFileError
from tests.patience import PATIENCE_SECONDS
from tests.webhook.conftest import ADVISING, Start

REVIEW = json.loads((Path(__file__).parents[1] / "reviews" / "generate_name.json").read_text())[
    "review"
]


async def test_bad_policies_keep_it_from_starting(start: Start, policies: Path) -> None:
    (policies / "bad.yaml").write_text("kind: Nothing\n")
    with pytest.raises(InvalidFileError, match=r"bad\.yaml"):
        async with start():
            pass


@pytest.mark.usefixtures("files_are_checked_often")
async def test_changed_policy_files_are_noticed_and_a_bad_change_is_told(
    start: Start, policies: Path
) -> None:
    async with start() as caller:

        async def loaded() -> tuple[int, str]:
            _, text = await caller.get(f"{caller.server.url}/readyz")
            policies = json.loads(text)["policies"]
            return policies["loaded"], policies["lastReloadError"]

        async with asyncio.timeout(PATIENCE_SECONDS):
            (policies / "more.yaml").write_text(ADVISING.replace("balance-limits", "more"))
            while await loaded() != (3, ""):
                pass
            (policies / "more.yaml").write_text("kind: Nothing\n")
            while not (await loaded())[1]:
                pass
        assert (await loaded())[0] == 3
        status, _ = await caller.post("/mutate", REVIEW)
        assert status == 200
        _, metrics = await caller.get(f"{caller.server.metrics_url}/metrics")
        assert 'stowplan_policy_reloads_total{outcome="loaded"}' in metrics
        assert 'stowplan_policy_reloads_total{outcome="failed"}' in metrics
        assert "stowplan_policies_last_reload_successful 0.0" in metrics


async def test_metrics_show_what_each_policy_and_rule_does(start: Start) -> None:
    async with start() as caller:
        for namespace in ("shop", "closed"):
            request = {**REVIEW["request"], "namespace": namespace}
            request["object"] = {**request["object"], "metadata": {"generateName": "web-"}}
            await caller.post("/mutate", {**REVIEW, "request": request})
            await caller.post("/mutate", {**REVIEW, "request": {**request, "dryRun": True}})
        _, metrics = await caller.get(f"{caller.server.metrics_url}/metrics")
    decisions = 'stowplan_policy_decisions_total{mode="Enforce",outcome="%s",policy="%s"} %s'
    for outcome, policy, count in (
        ("placed", "balance-limits", 1.0),
        ("denied", "balance-limits", 1.0),
        ("denied", "closed", 1.0),
        ("abstained", "closed", 0.0),
    ):
        assert decisions % (outcome, policy, count) in metrics
    rejected = 'stowplan_rule_rejections_total{mode="Enforce",policy="closed",rule="nobody"} 3.0'
    assert rejected in metrics


async def test_policies_of_the_api_are_reviewed_on_a_path_of_their_own(start: Start) -> None:
    def review(name: str, expression: str) -> dict[str, object]:
        spec = {"filters": [{"name": "f", "expression": expression}]}
        resource = {
            "group": "stowplan.dev",
            "version": "v1alpha1",
            "resource": "placementpolicies",
        }
        request = {
            "uid": "u",
            "operation": "CREATE",
            "resource": resource,
            "name": name,
            "object": {"metadata": {"name": name}, "spec": spec},
        }
        return {"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": request}

    async with start() as caller:
        answers = [
            (await caller.post("/policies", review(name, expression)))[1]["response"]
            for name, expression in (
                ("mine", "node.ready"),
                ("mine", "nod.ready"),
                ("balance-limits", "node.ready"),
            )
        ]
        _, metrics = await caller.get(f"{caller.server.metrics_url}/metrics")
    assert [answer["allowed"] for answer in answers] == [True, False, False]
    assert (
        "placementpolicies/mine:7:17: spec.filters[0].expression"
        in (answers[1]["status"]["message"])
    )
    assert "a policy in a file has the name `balance-limits`" in answers[2]["status"]["message"]
    assert 'stowplan_reviews_total{outcome="invalid",path="policies"} 2.0' in metrics
