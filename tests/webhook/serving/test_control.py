from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from tests.fake_api_server import FakeApiServer, fake_api_server
from tests.webhook.cluster.reflecting import eventually
from tests.webhook.conftest import local_settings
from webhook.serving.composition import run_server
from webhook.serving.server import RunningServer
from webhook.serving.services import EMBEDDED, Role

SHARED = {
    "certificate_secret": "stowplan-tls",
    "certificate_names": ["127.0.0.1"],
    "hold": True,
    "policies": [],
}


@pytest.fixture
async def api_server() -> AsyncIterator[FakeApiServer]:
    async with fake_api_server(tls=True) as server:
        yield server


@asynccontextmanager
async def process(
    server: FakeApiServer, folder: Path, role: Role, **given: object
) -> AsyncIterator[RunningServer]:
    settings = local_settings(kubeconfig=server.kubeconfig(folder), **{**SHARED, **given})
    async with run_server(settings, role=role) as running:
        await eventually(running.health.ready)
        yield running


def lease(server: FakeApiServer) -> dict[str, Any]:
    (found,) = server.objects("leases").values()
    spec: dict[str, Any] = found["spec"]
    return spec


async def test_reviews_are_answered_by_one_process_and_the_leader_is_another(
    api_server: FakeApiServer, tmp_path: Path
) -> None:
    async with process(api_server, tmp_path, Role.CONTROL) as control:
        leader = lease(api_server)["holderIdentity"]
        assert leader
        async with process(api_server, tmp_path, Role.REVIEWS) as reviews:
            assert {"mutate", "validate", "policies"} <= set(reviews.paths)
            assert not {"mutate", "validate", "policies"} & set(control.paths)
            assert lease(api_server)["holderIdentity"] == leader
            assert reviews.ca_pem == control.ca_pem  # the certificate that control has made
    assert not lease(api_server)["holderIdentity"]


async def test_a_process_that_answers_reviews_never_leads_and_writes_no_certificate(
    api_server: FakeApiServer, tmp_path: Path
) -> None:
    given: dict[str, object] = {"certificate_secret": None, "certificate_names": []}
    async with process(api_server, tmp_path, Role.REVIEWS, **given) as reviews:
        held = reviews.health.report().held
        assert held is not None
        assert held.not_holding  # nobody leads
        assert not api_server.objects("leases")
        assert not api_server.objects("secrets")


async def test_pods_are_held_once_another_process_shows_that_it_releases_them(
    api_server: FakeApiServer, tmp_path: Path
) -> None:
    def is_holding() -> bool:
        held = reviews.health.report().held
        return held is not None and not held.not_holding

    async with (
        process(api_server, tmp_path, Role.CONTROL),
        process(api_server, tmp_path, Role.REVIEWS) as reviews,
    ):
        await eventually(is_holding)


async def test_both_roles_in_one_process_answer_reviews_and_lead(
    api_server: FakeApiServer, tmp_path: Path
) -> None:
    async with process(api_server, tmp_path, EMBEDDED) as both:
        assert "mutate" in both.paths
        assert lease(api_server)["holderIdentity"]


@pytest.mark.parametrize("role", [Role.CONTROL, Role.REVIEWS])
async def test_pages_of_held_pods_and_outcomes_are_those_of_either_process(
    api_server: FakeApiServer, tmp_path: Path, role: Role
) -> None:
    given: dict[str, object] = {"certificate_secret": None, "certificate_names": []}
    async with (
        process(api_server, tmp_path, role, **given) as running,
        aiohttp.ClientSession() as session,
    ):
        for page in ("/debug/queue", "/debug/outcome", "/debug/decisions"):
            async with session.get(f"{running.metrics_url}{page}") as told:
                assert told.status == 401, page  # it is there, for readers


async def test_pods_that_may_wait_for_quota_are_asked_about_where_none_is_placed_any_more(
    api_server: FakeApiServer, tmp_path: Path
) -> None:
    webhook = {"name": "placement.stowplan.dev", "clientConfig": {"url": "https://x/mutate"}}
    left_alone = {"name": "something-is-said-of-new-pods", "expression": "false"}
    api_server.create(
        {
            "apiVersion": "admissionregistration.k8s.io/v1",
            "kind": "MutatingWebhookConfiguration",
            "metadata": {"name": "stowplan"},
            "webhooks": [{**webhook, "matchConditions": [left_alone]}],
        }
    )

    def conditions() -> list[object]:
        (found,) = api_server.objects("mutatingwebhookconfigurations").values()
        return list(found["webhooks"][0]["matchConditions"])

    given = {"placement_mode": "Off", "quota_mode": "Queue", "webhook_configurations": ["stowplan"]}
    async with process(api_server, tmp_path, Role.CONTROL, **given):
        await eventually(lambda: not conditions())


async def test_a_leader_that_ends_hands_over_before_it_stops_to_answer(
    api_server: FakeApiServer, tmp_path: Path
) -> None:
    given = {"leader_service": "stowplan-leader", "pod_ips": ["10.0.0.1", "fd00::1"]}
    async with process(api_server, tmp_path, EMBEDDED, **given) as leader:
        await eventually(lambda: len(api_server.objects("endpointslices")) == 2)
        await leader.hand_over()
        assert not api_server.objects("endpointslices")
        assert not lease(api_server)["holderIdentity"]
        async with process(api_server, tmp_path, Role.CONTROL):
            await eventually(lambda: bool(lease(api_server)["holderIdentity"]))
            # It follows the next leader, so that it can say whether pods may be held.
            held = leader.health.report().held
            assert held is not None
