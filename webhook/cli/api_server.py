"""A client that sends reviews as an API server does, for a demonstration without one."""

from __future__ import annotations

import ssl
import uuid
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any

import aiohttp
import msgspec

from engine.report import DecisionReport
from webhook.admission import wire
from webhook.serving.server import RunningServer

_SECONDS = 10


class Status(msgspec.Struct, frozen=True):
    """The reason for a denial."""

    code: int
    message: str


class Response(msgspec.Struct, frozen=True):
    """The response of a webhook to a review."""

    uid: str
    allowed: bool
    patch: bytes = b"[]"  # base64 on the wire
    status: Status | None = None

    @property
    def operations(self) -> list[dict[str, Any]]:
        """The patch, decoded."""
        return msgspec.json.decode(self.patch, type=list[dict[str, Any]])


class _Review(msgspec.Struct, frozen=True):
    response: Response


class ApiServer:
    """Sends reviews of pods as an API server does: over TLS, trusting one authority."""

    def __init__(self, session: aiohttp.ClientSession, server: RunningServer) -> None:
        self._session = session
        self._server = server

    async def review(self, path: str, pod: Mapping[str, Any]) -> Response:
        """Return the response to the review of a pod's creation."""
        # The same review has the same uid in each run, for the same output.
        key = f"{path}/{pod['metadata']['namespace']}/{pod['metadata']['name']}"
        request = {
            "uid": str(uuid.uuid5(uuid.NAMESPACE_URL, key)),
            "kind": {"group": "", "version": "v1", "kind": "Pod"},
            "resource": {"group": "", "version": "v1", "resource": "pods"},
            "operation": "CREATE",
            "name": pod["metadata"]["name"],
            "namespace": pod["metadata"]["namespace"],
            "userInfo": {"username": "demo"},
            "object": pod,
        }
        body = {"apiVersion": wire.API_VERSION, "kind": wire.KIND, "request": request}
        async with self._session.post(
            f"{self._server.url}/{path}?timeout={_SECONDS}s",
            data=msgspec.json.encode(body),
            headers={"Content-Type": "application/json"},
        ) as answer:
            return msgspec.json.decode(await answer.read(), type=_Review).response

    async def latest_decision(self) -> DecisionReport:
        """Return the newest decision, from the debug page."""
        url = f"{self._server.metrics_url}/debug/decisions"
        async with self._session.get(url, params={"limit": 1}) as answer:
            (report,) = msgspec.json.decode(await answer.read(), type=list[DecisionReport])
            return report


@asynccontextmanager
async def connected(server: RunningServer) -> AsyncIterator[ApiServer]:
    """Connect to a webhook, as its caller."""
    trust = ssl.create_default_context(cadata=server.ca_pem.decode())
    async with aiohttp.ClientSession(
        connector=aiohttp.TCPConnector(ssl=trust),
        timeout=aiohttp.ClientTimeout(total=_SECONDS),
        raise_for_status=True,
    ) as session:
        yield ApiServer(session, server)
