from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import pytest

from tests.webhook.conftest import Caller, Start

REVIEW: dict[str, Any] = json.loads(
    (Path(__file__).parents[1] / "reviews" / "generate_name.json").read_text()
)["review"]


def named(name: str) -> dict[str, Any]:
    request = REVIEW["request"]
    pod = {**request["object"], "metadata": {"name": name}}
    return {**REVIEW, "request": {**request, "uid": f"uid-{name}", "object": pod}}


async def test_the_probes_answer_and_readiness_says_what_is_loaded(caller: Caller) -> None:
    assert await caller.get(f"{caller.server.url}/livez") == (200, "ok\n")
    status, text = await caller.get(f"{caller.server.url}/readyz")
    detail = json.loads(text)
    assert status == 200
    assert detail["ready"] is True
    assert detail["policies"].pop("loadedAt")
    assert len(detail["policies"].pop("digest")) == 32
    assert detail["policies"] == {
        "loaded": 2,
        "lastReloadError": "",
        "refused": [],
        "holding": [],
        "atBinding": [],
    }
    assert detail["view"]["nodes"] == 3
    assert detail["view"]["stale"] == detail["sources"] == []
    assert detail["certificate"]["expiresAt"]


async def test_a_webhook_whose_certificate_has_expired_is_not_ready(start: Start) -> None:
    moment = [0]
    async with start(now=lambda: moment[0]) as caller:
        # A self-signed certificate is valid for a year of 365 days.
        moment[0] = 366 * 86_400 * 1_000_000
        assert not caller.server.health.ready()


async def test_the_state_of_a_replica_can_be_read_though_it_is_not_ready(caller: Caller) -> None:
    await caller.post("/mutate", named("a"))
    caller.server.health.draining = True
    status, text = await caller.get(f"{caller.server.url}/statusz")
    state = json.loads(text)
    assert (status, state["ready"]) == (200, False)
    assert state["reviews"] == {"mutate": 1}
    assert state["modes"] == {"placement": "Enforce", "quota": "Enforce"}


@pytest.mark.parametrize(("mode", "outcome"), [("Audit", "abstained"), ("Off", "ignored")])
async def test_an_installation_that_does_not_enforce_changes_no_pod(
    start: Start, mode: str, outcome: str
) -> None:
    async with start(placement_mode=mode) as caller:
        _, answer = await caller.post("/mutate", named("a"))
        assert "patch" not in answer["response"]
        assert await caller.count("mutate", outcome) == 1


async def test_metrics_and_debug_pages_are_not_where_reviews_go(caller: Caller) -> None:
    for page in ("/metrics", "/debug/decisions"):
        assert (await caller.get(f"{caller.server.url}{page}"))[0] == 404
        assert (await caller.get(f"{caller.server.metrics_url}{page}"))[0] == 200
    assert caller.server.metrics_url.startswith("http://")


async def test_metrics_tell_what_came_of_reviews_and_what_is_known(caller: Caller) -> None:
    await caller.post("/mutate", named("a"))
    await caller.post("/validate", named("a"))
    assert await caller.count("mutate", "placed") == 1
    assert await caller.count("validate", "admitted") == 1
    _, text = await caller.get(f"{caller.server.metrics_url}/metrics")
    for line in (
        "stowplan_view_nodes 3.0",
        "stowplan_view_pods 0.0",
        "stowplan_policies 2.0",
        "stowplan_policies_last_reload_successful 1.0",
        'stowplan_reviews_in_flight{path="mutate"} 0.0',
        'stowplan_review_seconds_count{path="mutate"} 1.0',
    ):
        assert line in text.splitlines()
    for name in (
        "stowplan_view_version",
        'stowplan_view_age_seconds{source="recording"}',
        "stowplan_certificate_expiry_timestamp_seconds",
        "stowplan_rule_errors_total",
    ):
        assert f"\n{name} " in text


async def test_two_webhooks_in_one_process_count_for_themselves(start: Start) -> None:
    async with start() as one, start() as other:
        await one.post("/mutate", named("a"))
        assert await one.count("mutate", "placed") == 1
        assert await other.count("mutate", "placed") == 0


async def test_the_latest_decisions_can_be_read_and_searched(caller: Caller) -> None:
    for name in ("web-1", "db", "web-2"):
        await caller.post("/mutate", named(name))

    async def names(query: str) -> list[str]:
        _, text = await caller.get(f"{caller.server.metrics_url}/debug/decisions{query}")
        return [one["pod"]["name"] for one in json.loads(text)]

    assert await names("") == ["web-2", "db", "web-1"]
    assert await names("?pod=shop/web") == ["web-2", "web-1"]
    assert await names("?limit=1") == ["web-2"]
    assert await names("?limit=0") == []


@pytest.mark.parametrize("limit", ["-1", "x", "1e3", "٣", "9" * 5000])
async def test_a_limit_that_is_no_number_is_refused(caller: Caller, limit: str) -> None:
    url = f"{caller.server.metrics_url}/debug/decisions"
    async with caller.session.get(url, params={"limit": limit}) as response:
        assert response.status == 400


async def test_the_server_does_not_say_what_it_is_made_of(caller: Caller) -> None:
    async with caller.session.get(f"{caller.server.url}/livez") as response:
        assert response.headers["Server"] == "stowplan"


async def test_a_review_above_seven_mebibytes_is_refused(caller: Caller) -> None:
    headers = {"Content-Type": "application/json"}
    url = f"{caller.server.url}/mutate"
    body = b" " * (8 * 1024 * 1024)
    async with caller.session.post(url, data=io.BytesIO(body), headers=headers) as response:
        assert response.status == 413
    body = json.dumps(REVIEW).encode() + body[: 6 * 1024 * 1024]
    async with caller.session.post(url, data=io.BytesIO(body), headers=headers) as response:
        assert response.status == 200
