"""The API servers, each by itself: which there are, and what each has taken up of a configuration.

Every API server follows the configurations by a watch of its own, and goes by what it has seen. It
takes up a configuration as a whole. So a request that the probe's webhook covers tells which
version it has: it is a dry run that creates a Lease in our own namespace, with the stamp of a
version as its label. An API server that has that version asks us, or fails to, and refuses the
Lease in the webhook's name; any other accepts it, and as a dry run stores nothing.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from datetime import datetime, timedelta

import msgspec

from engine.model.well_known import PROBE_WEBHOOK, STAMP_LABEL
from webhook.cluster.client.connection import ApiError, Connection, Server

_SLICE = "/apis/discovery.k8s.io/v1/namespaces/default/endpointslices/kubernetes"
_IDENTITIES = "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases"
_IDENTITY_LABEL = "apiserver.kubernetes.io/identity=kube-apiserver"
_SERVER_NAME = "kubernetes.default.svc"  # every API server's certificate is valid for it
_IS_ALIVE = timedelta(minutes=1)  # it renews its Lease every ten seconds
_CALL_SECONDS = 2.0
_SETTLE_SECONDS = 3.0
_PROBE = "stowplan-rollout-probe"


class _Port(msgspec.Struct, frozen=True):
    port: int


class _Endpoint(msgspec.Struct, frozen=True):
    addresses: list[str] = []


class _EndpointSlice(msgspec.Struct, frozen=True):
    endpoints: list[_Endpoint] | None = None
    ports: list[_Port] | None = None


class _LeaseSpec(msgspec.Struct, frozen=True, rename="camel"):
    renew_time: datetime | None = None


class _Lease(msgspec.Struct, frozen=True):
    spec: _LeaseSpec = _LeaseSpec()


class _Leases(msgspec.Struct, frozen=True):
    items: list[_Lease] | None = None


@dataclass(frozen=True, slots=True)
class KnownServers:
    """API servers that can be asked."""

    # one by one; None stands for the one that our connection leads to
    servers: frozenset[Server | None]
    are_all: bool  # whether there are certainly no others


@dataclass(eq=False)
class ApiServers:
    """The API servers of a cluster."""

    connection: Connection  # to any of them
    namespace: str  # of the installation, where a Lease may be created
    sleep: Callable[[float], Awaitable[None]] = asyncio.sleep  # waits for some seconds

    def __post_init__(self) -> None:
        self._path = f"/apis/coordination.k8s.io/v1/namespaces/{self.namespace}/leases"

    async def known(self) -> KnownServers:
        """Return the API servers that the Service `kubernetes` leads to.

        They are all where they are as many as renew a Lease of their identity. A load balancer in
        front of them counts as one.
        """
        try:
            endpoints = msgspec.json.decode(await self.connection.get(_SLICE), type=_EndpointSlice)
        except (ApiError, msgspec.DecodeError):
            return KnownServers(frozenset([None]), are_all=False)
        servers = frozenset(
            Server(address, port.port, _SERVER_NAME)
            for endpoint in endpoints.endpoints or ()
            for address in endpoint.addresses
            for port in endpoints.ports or ()
        )
        alive = await self._alive()
        return KnownServers(servers or frozenset([None]), are_all=0 < alive <= len(servers))

    async def _alive(self) -> int:
        """Return how many API servers have renewed their Leases, 0 where that is unknown."""
        query = (("labelSelector", _IDENTITY_LABEL),)
        try:
            leases = msgspec.json.decode(
                await self.connection.get(_IDENTITIES, query), type=_Leases
            )
        except (ApiError, msgspec.DecodeError):
            return 0
        renewed = [lease.spec.renew_time for lease in leases.items or () if lease.spec.renew_time]
        newest = max(renewed, default=None)
        return sum(1 for at in renewed if newest is not None and newest - at < _IS_ALIVE)

    async def has_taken_up(self, server: Server | None, stamp: str) -> bool:
        """Return whether an API server goes by the version with a stamp, or by a later one.

        Args:
            server: None for the one that the connection leads to.
            stamp: of the newest version; one of before counts as none.
        """
        lease = {
            "apiVersion": "coordination.k8s.io/v1",
            "kind": "Lease",
            "metadata": {"name": _PROBE, "labels": {STAMP_LABEL: stamp}},
        }
        body, query = msgspec.json.encode(lease), (("dryRun", "All"),)
        try:
            async with asyncio.timeout(_CALL_SECONDS):
                if server is None:
                    await self.connection.write("POST", self._path, body, query=query)
                else:
                    await self.connection.create_at(server, self._path, body, query=query)
        except ApiError as error:
            return f'webhook "{PROBE_WEBHOOK}"' in error.message
        except TimeoutError:
            return False
        return False

    async def settle(self) -> None:
        """Wait for those that cannot be asked: longer than any but a broken one is behind."""
        await self.sleep(_SETTLE_SECONDS)
