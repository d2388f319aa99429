from __future__ import annotations

import logging
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.fake_api_server import FakeApiServer, fake_api_server
from webhook.cluster.client.connection import connected
from webhook.controllers.release.release_health import SchedulerLease


@pytest.fixture
async def server() -> AsyncIterator[FakeApiServer]:
    async with fake_api_server() as running:
        yield running


@pytest.fixture
async def lease(server: FakeApiServer, tmp_path: Path) -> AsyncIterator[SchedulerLease]:
    async with connected(server.kubeconfig(tmp_path), None) as connection:
        yield SchedulerLease(connection)


def hold(server: FakeApiServer, holder: str | None) -> None:
    lease = {
        "apiVersion": "coordination.k8s.io/v1",
        "kind": "Lease",
        "metadata": {"name": "kube-scheduler", "namespace": "kube-system"},
        "spec": {"holderIdentity": holder},
    }
    if ("kube-system", "kube-scheduler") in server.objects("leases"):
        server.replace(lease)
    else:
        server.create(lease)


async def test_another_holder_is_noticed_once(server: FakeApiServer, lease: SchedulerLease) -> None:
    hold(server, "a")
    assert not await lease.has_new_holder()  # nobody knows what it knows, but nothing changed
    assert not await lease.has_new_holder()
    hold(server, "b")
    assert await lease.has_new_holder()
    assert not await lease.has_new_holder()


async def test_a_lease_that_nobody_holds_for_a_while_has_a_new_holder_afterwards(
    server: FakeApiServer, lease: SchedulerLease
) -> None:
    hold(server, "a")
    await lease.has_new_holder()
    for nobody in ("", None):
        hold(server, nobody)
        assert not await lease.has_new_holder()
    hold(server, "b")
    assert await lease.has_new_holder()


@pytest.mark.parametrize("status", [0, 403, 404, 503])
async def test_a_lease_that_cannot_be_read_is_no_failure(
    server: FakeApiServer,
    lease: SchedulerLease,
    status: int,
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO)
    hold(server, "a")
    await lease.has_new_holder()
    server.fail_next(2, status)
    assert not await lease.has_new_holder()
    assert not await lease.has_new_holder()
    assert caplog.text.count("the Lease of the scheduler cannot be read") == 1
    hold(server, "b")
    assert await lease.has_new_holder()
