from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from ipaddress import ip_address
from pathlib import Path
from typing import Any

import pytest

from tests.fake_api_server import FakeApiServer, fake_api_server
from tests.webhook.cluster.reflecting import eventually
from webhook.cluster.client.connection import connected
from webhook.controllers.leader_endpoint import LeaderEndpoint

NAMESPACE, SERVICE = "system", "stowplan-leader"


class Process:
    """A process that may lead."""

    def __init__(self, addresses: str, server: FakeApiServer, folder: Path) -> None:
        self.leads = True
        self._addresses = [ip_address(each) for each in addresses.split(",")]
        self._kubeconfig = server.kubeconfig(folder)

    @asynccontextmanager
    async def endpoint(self) -> AsyncIterator[LeaderEndpoint]:
        async with connected(self._kubeconfig, None) as connection:
            yield LeaderEndpoint(
                connection,
                namespace=NAMESPACE,
                service=SERVICE,
                addresses=self._addresses,
                port=9443,
                may_write=lambda: self.leads,
            )

    @asynccontextmanager
    async def on_duty(self) -> AsyncIterator[None]:
        """Run the duty until the block is left, as the elector does."""
        async with self.endpoint() as endpoint:
            duty = asyncio.create_task(endpoint.run())
            try:
                yield
            finally:
                duty.cancel()
                await asyncio.gather(duty, return_exceptions=True)


@pytest.fixture
async def api_server() -> AsyncIterator[FakeApiServer]:
    async with fake_api_server() as server:
        yield server


def slices(server: FakeApiServer) -> dict[str, Any]:
    """Return the slices of the Service by their names."""
    return {
        name: found
        for (_, name), found in server.objects("endpointslices").items()
        if found["metadata"]["labels"]["kubernetes.io/service-name"] == SERVICE
    }


def addresses(server: FakeApiServer) -> list[str]:
    """Return where callers of the Service are led."""
    endpoints = [each for found in slices(server).values() for each in found["endpoints"]]
    return [address for each in endpoints for address in each["addresses"]]


async def test_the_leader_is_found_while_it_leads_and_no_longer(
    api_server: FakeApiServer, tmp_path: Path
) -> None:
    async with Process("10.0.0.1", api_server, tmp_path).on_duty():
        await eventually(lambda: addresses(api_server) == ["10.0.0.1"])
        found = slices(api_server)[f"{SERVICE}-ipv4"]
        assert (found["addressType"], found["ports"][0]["port"]) == ("IPv4", 9443)
    assert not api_server.objects("endpointslices")


async def test_a_pod_of_both_families_is_found_by_either(
    api_server: FakeApiServer, tmp_path: Path
) -> None:
    async with Process("fd00::1,10.0.0.1", api_server, tmp_path).on_duty():
        await eventually(lambda: len(slices(api_server)) == 2)
        types = {name: found["addressType"] for name, found in slices(api_server).items()}
        assert types == {f"{SERVICE}-ipv4": "IPv4", f"{SERVICE}-ipv6": "IPv6"}
        assert sorted(addresses(api_server)) == ["10.0.0.1", "fd00::1"]
    assert not api_server.objects("endpointslices")


async def test_the_next_leader_replaces_the_address_of_one_that_was_killed(
    api_server: FakeApiServer, tmp_path: Path
) -> None:
    async with Process("10.0.0.1", api_server, tmp_path).endpoint() as killed:
        await killed.keep()
    async with Process("10.0.0.2", api_server, tmp_path).endpoint() as following:
        await following.keep()
    assert addresses(api_server) == ["10.0.0.2"]


async def test_who_leads_no_longer_leaves_the_address_of_the_next_leader_alone(
    api_server: FakeApiServer, tmp_path: Path
) -> None:
    late = Process("10.0.0.1", api_server, tmp_path)
    async with late.on_duty():
        await eventually(lambda: addresses(api_server) == ["10.0.0.1"])
        late.leads = False
        async with Process("10.0.0.2", api_server, tmp_path).endpoint() as following:
            await following.keep()
    assert addresses(api_server) == ["10.0.0.2"]


async def test_who_does_not_lead_writes_nothing(api_server: FakeApiServer, tmp_path: Path) -> None:
    process = Process("10.0.0.1", api_server, tmp_path)
    process.leads = False
    async with process.endpoint() as endpoint:
        await endpoint.keep()
    assert not api_server.objects("endpointslices")


async def test_a_leader_of_one_family_leaves_nothing_of_one_that_had_both(
    api_server: FakeApiServer, tmp_path: Path
) -> None:
    for given in ("10.0.0.1,fd00::1", "fd00::2"):
        async with Process(given, api_server, tmp_path).endpoint() as endpoint:
            await endpoint.keep()
    assert addresses(api_server) == ["fd00::2"]
    assert slices(api_server)[f"{SERVICE}-ipv6"]["addressType"] == "IPv6"


async def test_an_address_that_is_right_is_not_written_again(
    api_server: FakeApiServer, tmp_path: Path
) -> None:
    async with Process("10.0.0.1", api_server, tmp_path).endpoint() as endpoint:
        await endpoint.keep()
        before = len(api_server.requests)
        await endpoint.keep()
    assert [each.method for each in api_server.requests[before:]] == ["GET", "GET"]


@pytest.mark.parametrize(
    "changed",
    [
        {"endpoints": [{"addresses": ["10.0.0.1"], "conditions": {"ready": False}}]},
        {"endpoints": []},
        {"ports": [{"name": "other", "port": 9443, "protocol": "TCP"}]},
    ],
)
async def test_a_slice_by_which_nobody_is_led_here_is_written_again(
    api_server: FakeApiServer, tmp_path: Path, changed: dict[str, Any]
) -> None:
    async with Process("10.0.0.1", api_server, tmp_path).endpoint() as endpoint:
        await endpoint.keep()
        before = slices(api_server)[f"{SERVICE}-ipv4"]
        api_server.replace({**before, **changed})
        await endpoint.keep()
        after = slices(api_server)[f"{SERVICE}-ipv4"]
    assert (after["endpoints"], after["ports"]) == (before["endpoints"], before["ports"])


async def test_a_slice_that_says_not_ready_is_deleted_at_the_end(
    api_server: FakeApiServer, tmp_path: Path
) -> None:
    async with Process("10.0.0.1", api_server, tmp_path).on_duty():
        await eventually(lambda: addresses(api_server) == ["10.0.0.1"])
        found = slices(api_server)[f"{SERVICE}-ipv4"]
        not_ready = [{"addresses": ["10.0.0.1"], "conditions": {"ready": False}}]
        api_server.replace({**found, "endpoints": not_ready})
    assert not slices(api_server)
