"""Named objects that are watched, so that reading one again costs the API server no call."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Iterable
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from http import HTTPStatus
from typing import Final, Protocol

import msgspec

from webhook.cluster.client.connection import NO_CONTACT, ApiError, Connection, Query
from webhook.cluster.decode_errors import UNREADABLE

_SILENCE_SECONDS: Final = 90.0  # there is a bookmark about once a minute
_WATCH_AGAIN_SECONDS: Final = 5.0

_log = logging.getLogger(__name__)


class Requests(Protocol):
    """Requests to the API server, as `Connection` makes them."""

    async def get(self, path: str, query: Query = ()) -> bytes:
        """Return the body of an answer."""

    async def write(
        self,
        method: str,
        path: str,
        body: bytes,
        *,
        content_type: str = "application/json",
        query: Query = (),
    ) -> bytes:
        """Create, replace, patch or delete an object; return the body of the answer."""

    def watch(
        self, path: str, query: Query, *, read_timeout_seconds: float
    ) -> AbstractAsyncContextManager[AsyncIterator[bytes]]:
        """Open a watch."""


class _Metadata(msgspec.Struct, frozen=True, rename="camel"):
    resource_version: str = ""


class _Object(msgspec.Struct, frozen=True):
    metadata: _Metadata = _Metadata()


class _Event(msgspec.Struct, frozen=True):
    type: str
    object: msgspec.Raw


@dataclass(slots=True)
class _Known:
    """What the watch has shown of an object.

    Attributes:
        is_watched: whether each change is shown from here on.
        is_read: whether its present state is known.
        body: as it is; None where there is none.
        version: the newest that was seen; of two the later is greater.
    """

    is_watched: bool = False
    is_read: bool = False
    body: bytes | None = None
    version: int = 0

    def take(self, body: bytes | None, version: int) -> None:
        if version >= self.version:
            self.is_read, self.body, self.version = True, body, version


class WatchedObjects:
    """Requests like those of a connection; certain objects are read from what a watch has shown.

    What is read may be some moments old, as any answer is by the time it arrives: whoever writes
    over it does so with its resourceVersion. Without a watch each read is a request.

    Args:
        connection: to the API server.
        paths: of the objects.
    """

    def __init__(self, connection: Connection, paths: Iterable[str]) -> None:
        self._connection = connection
        self._known = {path: _Known() for path in paths}

    async def run(self) -> None:
        """Watch until cancelled."""
        await asyncio.gather(*(self._keep_watching(path) for path in self._known))

    async def get(self, path: str, query: Query = ()) -> bytes:
        """Return an object.

        Raises:
            ApiError: there is none, or it cannot be read.
        """
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
        """Write as a connection does; whoever reads next sees it.

        Raises:
            ApiError: it was refused, or there was no answer.
        """
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
        """Open a watch, as a connection does."""
        return self._connection.watch(path, query, read_timeout_seconds=read_timeout_seconds)

    async def _read(self, path: str, known: _Known) -> None:
        """Read an object whose changes are shown already: a creation is not missed."""
        try:
            answer = await self._connection.get(path)
        except ApiError as error:
            if error.status != HTTPStatus.NOT_FOUND:
                raise
            known.take(None, known.version)
        else:
            known.take(answer, _version(answer))

    async def _keep_watching(self, path: str) -> None:
        collection, _, name = path.rpartition("/")
        query = (
            ("watch", "true"),
            ("allowWatchBookmarks", "true"),
            ("fieldSelector", f"metadata.name={name}"),
        )
        known = self._known[path]
        while True:
            try:
                async with self._connection.watch(
                    collection, query, read_timeout_seconds=_SILENCE_SECONDS
                ) as lines:
                    known.is_watched, known.is_read, known.version = True, False, 0
                    async for line in lines:
                        _follow(known, line)
            except (ApiError, *UNREADABLE) as error:
                _log.debug("%s is not watched: %s", path, error)
            finally:
                known.is_watched = False
            await asyncio.sleep(_WATCH_AGAIN_SECONDS)


def _follow(known: _Known, line: bytes) -> None:
    event = msgspec.json.decode(line, type=_Event)
    if event.type == "ERROR":
        raise ApiError(NO_CONTACT, "", "the watch has ended")
    if event.type in {"ADDED", "MODIFIED", "DELETED"}:
        body = bytes(event.object)
        known.take(None if event.type == "DELETED" else body, _version(body))


def _version(body: bytes) -> int:
    text = msgspec.json.decode(body, type=_Object).metadata.resource_version
    return int(text) if text.isdecimal() else 0
