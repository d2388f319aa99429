"""The store of quotas and pods that the ledger needs, and one in memory for recorded clusters."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from http import HTTPStatus
from typing import Protocol
from urllib.parse import urlencode

import msgspec

from engine.errors import QuantityError, StowplanError
from engine.model import api
from engine.model.elastic_quota import RESERVATIONS_ANNOTATION, ElasticQuota, QuotaKey, quota_of
from engine.model.pod import TERMINAL_PHASES, Pod, pod_of
from webhook.cluster.client.connection import MERGE_PATCH, ApiError, Connection
from webhook.cluster.client.envelopes import meta_of, page_of
from webhook.cluster.objects import UNREADABLE, readable_part


class StoreError(StowplanError):
    """A request to the store failed."""


class ConflictError(StoreError):
    """Another writer was faster; nothing was written."""


class UnreachableError(StoreError):
    """The outcome is unknown: a write may have been made or not."""


@dataclass(frozen=True, slots=True)
class StoredPod:
    uid: str  # distinguishes it from others that have had its name
    version: int  # its resourceVersion
    is_active: bool  # whether it has not finished


class Store(Protocol):
    """The newest versions of quotas and pods. All methods raise `StoreError`."""

    async def read(self, quota: ElasticQuota) -> ElasticQuota | None:
        """Return the newest version of a quota, None if it is gone."""

    async def write(self, quota: ElasticQuota, reservations: str) -> ElasticQuota | None:
        """Write the annotation on exactly this version; return the new one, None if it is gone."""

    async def pod(self, namespace: str, name: str) -> StoredPod | None:
        """Return the pod of a name, None if there is none."""

    async def newest_pod_version(self, namespace: str) -> int:
        """Return the newest resourceVersion of a pod in a namespace, 0 if there is none."""

    async def pods(self, namespace: str) -> Sequence[Pod]:
        """Return the pods of a namespace that can be read."""


class MemoryStore:
    """Reservations of this process alone, on quotas that nobody else writes."""

    def __init__(self) -> None:
        self._quotas: dict[QuotaKey, ElasticQuota] = {}

    async def read(self, quota: ElasticQuota) -> ElasticQuota | None:
        """Return the newest version of a quota."""
        return self._quotas.get(quota.key, quota)

    async def write(self, quota: ElasticQuota, reservations: str) -> ElasticQuota | None:
        """Return the quota with the annotation."""
        new = replace(quota, version=quota.version + 1, reservations=reservations)
        self._quotas[quota.key] = new
        return new

    async def pod(self, _namespace: str, _name: str) -> StoredPod | None:
        """Return None: all pods of a recording are in the view, and none is added."""
        return None

    async def newest_pod_version(self, _namespace: str) -> int:
        """Return 0: none is ever added."""
        return 0

    async def pods(self, _namespace: str) -> Sequence[Pod]:
        """Return none: a recording shows whom a surge might replace, and nobody else."""
        return ()


# Repeating the request would not help.
_PERMANENT_FAILURES = frozenset(range(400, 500)) - {HTTPStatus.TOO_MANY_REQUESTS}
_PAGE_SIZE = "500"

_quota = msgspec.json.Decoder(api.ElasticQuota).decode
_pod = msgspec.json.Decoder(api.Pod).decode


class ApiStore:
    """Reads and writes through one connection; every read returns the newest version."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    async def read(self, quota: ElasticQuota) -> ElasticQuota | None:
        """Return the newest version of a quota, None if it is gone."""
        return _quota_in(await self._request("GET", _path(quota)))

    async def write(self, quota: ElasticQuota, reservations: str) -> ElasticQuota | None:
        """Write the annotation on exactly this version; return the new one, None if it is gone."""
        metadata = {
            "resourceVersion": str(quota.version),
            "annotations": {RESERVATIONS_ANNOTATION: reservations},
        }
        body = msgspec.json.encode({"metadata": metadata})
        return _quota_in(await self._request("PATCH", _path(quota), body))

    async def pod(self, namespace: str, name: str) -> StoredPod | None:
        body = await self._request("GET", f"/api/v1/namespaces/{namespace}/pods/{name}")
        if body is None:
            return None
        try:
            wire = _pod_in(body)
        except UNREADABLE as error:
            raise UnreachableError(f"a pod that cannot be read: {error}") from error
        is_active = wire.status.phase not in TERMINAL_PHASES
        return StoredPod(wire.metadata.uid, wire.metadata.version, is_active)

    async def newest_pod_version(self, namespace: str) -> int:
        """Return the newest resourceVersion of a pod in a namespace, 0 if there is none."""
        newest = 0
        async for page in self._pages(namespace):
            versions = (meta_of(raw).resource_version for raw in page)
            newest = max(newest, *map(api.version_number, versions), 0)
        return newest

    async def pods(self, namespace: str) -> Sequence[Pod]:
        """Return the pods of a namespace that can be read."""
        found = []
        async for page in self._pages(namespace):
            for raw in page:
                with suppress(*UNREADABLE, QuantityError):
                    found.append(pod_of(_pod_in(raw)))
        return found

    async def _pages(self, namespace: str) -> AsyncIterator[Sequence[msgspec.Raw]]:
        query = {"limit": _PAGE_SIZE}
        while True:
            path = f"/api/v1/namespaces/{namespace}/pods?{urlencode(query)}"
            body = await self._request("GET", path)
            try:
                page = page_of(body or b"")
            except UNREADABLE as error:
                raise UnreachableError(f"a list that cannot be read: {error}") from error
            yield page.items or ()
            if not page.metadata.token:
                return
            query = {"limit": _PAGE_SIZE, "continue": page.metadata.token}

    async def _request(self, method: str, path: str, body: bytes = b"") -> bytes | None:
        """Return the body of the answer, None if the object does not exist."""
        try:
            return await self._connection.write(method, path, body, content_type=MERGE_PATCH)
        except ApiError as error:
            if error.status == HTTPStatus.NOT_FOUND:
                return None
            if error.status == HTTPStatus.CONFLICT:
                raise ConflictError(str(error)) from error
            if error.status in _PERMANENT_FAILURES:
                raise StoreError(str(error)) from error
            raise UnreachableError(str(error)) from error


def _pod_in(body: bytes | msgspec.Raw) -> api.Pod:
    """Decode a pod as far as it can be read, like the watch: it counts there, too."""
    try:
        return _pod(body)
    except UNREADABLE:
        return readable_part(body, api.Pod)


def _quota_in(body: bytes | None) -> ElasticQuota | None:
    if body is None:
        return None
    try:
        return quota_of(_quota(body))
    except UNREADABLE as error:
        raise UnreachableError(f"a quota that cannot be read: {error}") from error


def _path(quota: ElasticQuota) -> str:
    return f"/apis/{quota.group}/v1alpha1/namespaces/{quota.namespace}/elasticquotas/{quota.name}"
