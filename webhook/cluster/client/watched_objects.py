"""Named objects that are watched, so that reading one again costs the API server no call."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from http import HTTPStatus
from typing import Final

import msgspec

from engine.model import api
from webhook.cluster.client.connection import (
    MERGE_PATCH,
    NO_CONTACT,
    ApiError,
    Connection,
    Query,
    find,
    object_changes,
)
from webhook.cluster.client.envelopes import meta_of
from webhook.cluster.objects import UNREADABLE

_WATCH_AGAIN_SECONDS: Final = 5.0

_log = logging.getLogger(__name__)


@dataclass(slots=True)
class _Known:
    """What the watch has shown of an object."""

    is_watched: bool = False  # whether each change is shown from here on
    is_read: bool = False  # whether its present state is known
    body: bytes | None = None  # as it is; None where there is none
    version: int = 0  # the newest that was seen; of two the later is greater

    def take(self, body: bytes | None, version: int) -> None:
        if version >= self.version:
            self.is_read, self.body, self.version = True, body, version


class WatchedObjects:
    """Requests like those of a connection; certain objects are read from what a watch has shown.

    What is read may be some moments old, as any answer is by the time it arrives: whoever writes
    over it does so with its resourceVersion. Without a watch each read is a request.
    """

    def __init__(self, connection: Connection, paths: Iterable[str]) -> None:
        self._connection = connection
        self._known = {path: _Known() for path in paths}

    async def run(self) -> None:
        await asyncio.gather(*(self._keep_watching(path) for path in self._known))

    async def get(self, path: str, query: Query = ()) -> bytes:
        known = self._known.get(path)
        if known is None or query or not known.is_watched:
            return await self._connection.get(path, query)
        if not known.is_read:
            await self._read(path, known)
        if known.body is None:
            raise ApiError(HTTPStatus.NOT_FOUND, "NotFound", f"{path}: not found")
        return known.body

    async def write(
        self,
        method: str,
        path: str,
        body: bytes,
        *,
        content_type: str = "application/json",
        query: Query = (),
    ) -> bytes:
        """Write as a connection does; whoever reads next sees it."""
        answer = await self._connection.write(
            method, path, body, content_type=content_type, query=query
        )
        known = self._known.get(path)
        if known is not None and method != "DELETE" and not query:
            known.take(answer, _version(answer))
        return answer

    def watch(
        self, path: str, query: Query, *, read_timeout_seconds: float
    ) -> AbstractAsyncContextManager[AsyncIterator[bytes]]:
        return self._connection.watch(path, query, read_timeout_seconds=read_timeout_seconds)

    async def _read(self, path: str, known: _Known) -> None:
        """Read an object whose changes are shown already: a creation is not missed."""
        answer = await find(self._connection, path)
        known.take(answer, known.version if answer is None else _version(answer))

    async def _keep_watching(self, path: str) -> None:
        known = self._known[path]
        while True:
            try:
                async with object_changes(self._connection, path) as changes:
                    known.is_watched, known.is_read, known.version = True, False, 0
                    async for event in changes:
                        body = bytes(event.object)
                        is_gone = event.type == "DELETED"
                        known.take(None if is_gone else body, _version(body))
            except (ApiError, *UNREADABLE) as error:
                _log.debug("%s is not watched: %s", path, error)
            finally:
                known.is_watched = False
            await asyncio.sleep(_WATCH_AGAIN_SECONDS)


def _version(body: bytes) -> int:
    return api.version_number(meta_of(msgspec.Raw(body)).resource_version)


class ConfigMap(msgspec.Struct):
    metadata: api.ObjectMeta = api.ObjectMeta()
    data: dict[str, str] = {}


class ConfigMapStore:
    def __init__(
        self, connection: Connection, *, namespace: str, name: str, may_write: Callable[[], bool]
    ) -> None:
        self.namespace: Final = namespace
        self.name: Final = name
        self._connection = connection
        self._collection = f"/api/v1/namespaces/{namespace}/configmaps"
        self._may_write = may_write

    async def read(self) -> ConfigMap:
        """Return what was written last; an empty one where there is none."""
        body = await find(self._connection, f"{self._collection}/{self.name}")
        if body is None:
            return ConfigMap()
        try:
            return msgspec.json.decode(body, type=ConfigMap)
        except UNREADABLE as error:
            raise ApiError(NO_CONTACT, "", f"ConfigMap `{self.name}`: {error}") from error

    async def write(self, data: Mapping[str, str], version: str = "") -> None:
        """Replace some of its parts, by key."""
        if not self._may_write():
            raise ApiError(NO_CONTACT, "", "this replica does not lead")
        metadata = {"resourceVersion": version} if version else {}
        try:
            patch = msgspec.json.encode({"metadata": metadata, "data": data})
            path = f"{self._collection}/{self.name}"
            await self._connection.write("PATCH", path, patch, content_type=MERGE_PATCH)
        except ApiError as error:
            if error.status != HTTPStatus.NOT_FOUND:
                raise
            config_map = {
                "apiVersion": "v1",
                "kind": "ConfigMap",
                "metadata": {"name": self.name},
                "data": data,
            }
            body = msgspec.json.encode(config_map)
            await self._connection.write("POST", self._collection, body)
