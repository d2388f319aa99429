"""The EndpointSlice of the Service that leads to the leader: its address, while it leads."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping
from http import HTTPStatus
from ipaddress import IPv4Address, IPv6Address
from typing import Any, Final

import msgspec

from webhook.cluster.client.connection import ApiError, Connection

PORT_NAME: Final = "webhook"
"""Name of the port, as the Service has it."""

_LOOK_SECONDS: Final = 30.0  # somebody may have deleted it
_RETRY_SECONDS: Final = 1.0
_CALL_SECONDS: Final = 2.0

_log = logging.getLogger(__name__)


class LeaderEndpoint:
    """The duty of the leader to be found.

    It writes the slice as soon as it leads, and deletes it before the Lease is released: callers
    are refused at once then, and do not wait for a process that ends. The next leader replaces
    what one that was killed has left.

    Args:
        connection: to the API server.
        namespace: of the Service.
        service: its name, and that of the slice.
        address: of this process.
        port: where it answers reviews.
        may_write: whether this process leads at this very moment.
    """

    def __init__(
        self,
        connection: Connection,
        *,
        namespace: str,
        service: str,
        address: IPv4Address | IPv6Address,
        port: int,
        may_write: Callable[[], bool],
    ) -> None:
        self._connection = connection
        self._collection = f"/apis/discovery.k8s.io/v1/namespaces/{namespace}/endpointslices"
        self._path = f"{self._collection}/{service}"
        self._may_write = may_write
        self._slice: dict[str, Any] = {
            "apiVersion": "discovery.k8s.io/v1",
            "kind": "EndpointSlice",
            "metadata": {
                "name": service,
                "namespace": namespace,
                "labels": {
                    "kubernetes.io/service-name": service,
                    "endpointslice.kubernetes.io/managed-by": "stowplan.dev",
                },
            },
            "addressType": f"IPv{address.version}",
            "endpoints": [{"addresses": [str(address)], "conditions": {"ready": True}}],
            "ports": [{"name": PORT_NAME, "port": port, "protocol": "TCP", "appProtocol": "https"}],
        }

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
        """Write the slice unless it is as it should be.

        Raises:
            ApiError: it cannot be read or written.
        """
        found = await self._read()
        if not self._may_write() or _holds(found, self._slice):
            return
        if found is not None and found.get("addressType") != self._slice["addressType"]:
            await self._connection.write("DELETE", self._path, b"{}")  # it can never be changed
            found = None
        if found is None:
            await self._connection.write("POST", self._collection, msgspec.json.encode(self._slice))
            return
        version = found["metadata"]["resourceVersion"]
        metadata = {**self._slice["metadata"], "resourceVersion": version}
        await self._connection.write(
            "PUT", self._path, msgspec.json.encode({**self._slice, "metadata": metadata})
        )

    async def _delete(self) -> None:
        """Delete the slice if it is ours, while nobody else can lead."""
        try:
            async with asyncio.timeout(_CALL_SECONDS):
                found = await self._read()
                if found is None or not self._leads_here(found) or not self._may_write():
                    return
                version = found["metadata"]["resourceVersion"]
                options = {"preconditions": {"resourceVersion": version}}
                await self._connection.write("DELETE", self._path, msgspec.json.encode(options))
        except (ApiError, TimeoutError, msgspec.DecodeError) as error:
            _log.warning("the leader's address is left behind: %s", error or "no answer in time")

    async def _read(self) -> dict[str, Any] | None:
        try:
            found: dict[str, Any] = msgspec.json.decode(await self._connection.get(self._path))
        except ApiError as error:
            if error.status == HTTPStatus.NOT_FOUND:
                return None
            raise
        return found

    def _leads_here(self, found: Mapping[str, Any]) -> bool:
        addresses = [each.get("addresses") for each in found.get("endpoints") or ()]
        return addresses == [each["addresses"] for each in self._slice["endpoints"]]


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
