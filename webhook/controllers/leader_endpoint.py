"""The EndpointSlices of the Service that leads to the leader: its addresses, while it leads."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from ipaddress import IPv4Address, IPv6Address
from typing import Any, Final, Literal

import msgspec

from webhook.cluster.client.connection import ApiError, Connection, find_as

PORT_NAME: Final = "webhook"
"""Name of the port, as the Service has it."""

_VERSIONS: Final[tuple[Literal[4, 6], ...]] = (4, 6)  # of IP: a slice has addresses of one

_LOOK_SECONDS: Final = 30.0  # somebody may have deleted it
_RETRY_SECONDS: Final = 1.0
_CALL_SECONDS: Final = 2.0

_log = logging.getLogger(__name__)


class LeaderEndpoint:
    """The duty of the leader to be found.

    It writes a slice per IP family as soon as it leads, and deletes them before the Lease is
    released: callers are refused at once then, and do not wait for a process that ends. The next
    leader replaces what one that was killed has left.
    """

    def __init__(
        self,
        connection: Connection,
        *,
        namespace: str,
        service: str,
        addresses: Sequence[IPv4Address | IPv6Address],
        port: int,
        may_write: Callable[[], bool],
    ) -> None:
        self._connection = connection
        self._collection = f"/apis/discovery.k8s.io/v1/namespaces/{namespace}/endpointslices"
        self._may_write = may_write
        by_version = {address.version: address for address in addresses}
        self._slices: dict[str, dict[str, Any] | None] = {}
        for version in _VERSIONS:
            name = f"{service}-ipv{version}"
            metadata = {
                "name": name,
                "namespace": namespace,
                "labels": {
                    "kubernetes.io/service-name": service,
                    "endpointslice.kubernetes.io/managed-by": "stowplan.dev",
                },
            }
            address = by_version.get(version)
            self._slices[name] = _slice(metadata, address, port) if address else None

    async def run(self) -> None:
        """Keep the slice until cancelled, then delete it."""
        try:
            while True:
                is_kept = await self._kept()
                await asyncio.sleep(_LOOK_SECONDS if is_kept else _RETRY_SECONDS)
        finally:
            await self._delete()

    async def _kept(self) -> bool:
        try:
            async with asyncio.timeout(_CALL_SECONDS):
                await self.keep()
        except (ApiError, TimeoutError, msgspec.DecodeError) as error:
            _log.warning("the leader is not found yet: %s", error or "no answer in time")
            return False
        return True

    async def keep(self) -> None:
        """Write the slices unless they are as they should be."""
        for name, wanted in self._slices.items():
            found = await self._read(name)
            if not self._may_write():
                return
            await self._replace(name, found, wanted)

    async def _replace(
        self, name: str, found: dict[str, Any] | None, wanted: dict[str, Any] | None
    ) -> None:
        path = f"{self._collection}/{name}"
        if wanted is None:
            if found is not None:  # of a leader before, which had an address of that family
                await self._connection.write("DELETE", path, b"{}")
        elif found is None:
            await self._connection.write("POST", self._collection, msgspec.json.encode(wanted))
        elif not _holds(found, wanted):
            version = found["metadata"]["resourceVersion"]
            metadata = {**wanted["metadata"], "resourceVersion": version}
            body = msgspec.json.encode({**wanted, "metadata": metadata})
            await self._connection.write("PUT", path, body)

    async def _delete(self) -> None:
        """Delete the slices that are ours, while nobody else can lead."""
        try:
            async with asyncio.timeout(_CALL_SECONDS):
                for name, ours in self._slices.items():
                    await self._delete_if_same(name, ours)
        except (ApiError, TimeoutError, msgspec.DecodeError) as error:
            _log.warning("the leader's address is left behind: %s", error or "no answer in time")

    async def _delete_if_same(self, name: str, ours: dict[str, Any] | None) -> None:
        found = await self._read(name) if ours is not None else None
        if (
            ours is None
            or found is None
            or not _leads_to_same(found, ours)
            or not self._may_write()
        ):
            return
        version = found["metadata"]["resourceVersion"]
        options = {"preconditions": {"resourceVersion": version}}
        path = f"{self._collection}/{name}"
        await self._connection.write("DELETE", path, msgspec.json.encode(options))

    async def _read(self, name: str) -> dict[str, Any] | None:
        return await find_as(self._connection, f"{self._collection}/{name}", dict[str, Any])


def _slice(
    metadata: dict[str, Any], address: IPv4Address | IPv6Address, port: int
) -> dict[str, Any]:
    return {
        "apiVersion": "discovery.k8s.io/v1",
        "kind": "EndpointSlice",
        "metadata": metadata,
        "addressType": f"IPv{address.version}",
        "endpoints": [{"addresses": [str(address)], "conditions": {"ready": True}}],
        "ports": [{"name": PORT_NAME, "port": port, "protocol": "TCP", "appProtocol": "https"}],
    }


def _leads_to_same(found: dict[str, Any], ours: dict[str, Any]) -> bool:
    addresses = [each.get("addresses") for each in found.get("endpoints") or ()]
    return addresses == [each["addresses"] for each in ours["endpoints"]]


def _holds(found: object, wanted: object) -> bool:
    """Return whether JSON has all that is wanted; objects may have more, lists may not."""
    if isinstance(wanted, dict):
        return isinstance(found, dict) and all(
            _holds(found.get(name), value) for name, value in wanted.items()
        )
    if isinstance(wanted, list):
        return (
            isinstance(found, list)
            and len(found) == len(wanted)
            and all(map(_holds, found, wanted))
        )
    return found == wanted
