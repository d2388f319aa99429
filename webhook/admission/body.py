"""Reading of request bodies within bounds of size, time and memory."""

from __future__ import annotations

import asyncio
from typing import NamedTuple

from aiohttp import web

_MOST_UNFINISHED_BYTES = 64 * 1024 * 1024


class Body(NamedTuple):
    """The body of a request.

    Attributes:
        data: its bytes; at least its beginning if it is too large.
        is_whole: whether these are all.
    """

    data: bytes
    is_whole: bool


class BodyReader:
    """Reads bodies; those that come slowly or fill memory are given up, the oldest first.

    Callers are not trusted: bodies that never end must neither outlast nor outgrow those that do. A
    body that arrives at once, as from an API server, is read before it can be given up.

    Args:
        seconds: longest time from the headers of a request to the end of its body.
        most_unfinished_bytes: bytes that all unfinished bodies may hold together.
    """

    def __init__(
        self, seconds: float, *, most_unfinished_bytes: int = _MOST_UNFINISHED_BYTES
    ) -> None:
        self._seconds = seconds
        self._most_unfinished_bytes = most_unfinished_bytes
        self._unfinished: dict[asyncio.Timeout, int] = {}  # bytes read, by the limit of each body
        self._unfinished_bytes = 0  # INVARIANT: the sum of those

    async def read(self, request: web.Request) -> Body:
        """Return a body, at most as much of it as the application accepts.

        Raises:
            TimeoutError: it did not arrive in time, or younger ones need the memory.
            ConnectionError: the connection was closed before its end.
            aiohttp.web.RequestPayloadError: it is malformed.
        """
        content, most_bytes = request.content, request.client_max_size
        if content.is_eof():  # nearly always: no time limit is needed
            return _body(content.read_nowait(), most_bytes)
        data = bytearray()
        async with asyncio.timeout(self._seconds) as limit:
            self._unfinished[limit] = 0
            try:
                while len(data) <= most_bytes and not content.at_eof():
                    if request.transport is None:
                        raise ConnectionResetError
                    chunk = await content.readany()
                    data += chunk
                    self._add(limit, len(chunk))
            finally:
                self._unfinished_bytes -= self._unfinished.pop(limit, 0)
        return _body(bytes(data), most_bytes)

    def _add(self, limit: asyncio.Timeout, size: int) -> None:
        """Count bytes of a body; those of the oldest bodies are given up for them."""
        if limit not in self._unfinished:
            return  # given up: its task will be told
        self._unfinished[limit] += size
        self._unfinished_bytes += size
        while self._unfinished_bytes > self._most_unfinished_bytes:
            oldest = next(iter(self._unfinished))
            self._unfinished_bytes -= self._unfinished.pop(oldest)
            oldest.reschedule(0.0)


def _body(data: bytes, most_bytes: int) -> Body:
    return Body(data, is_whole=len(data) <= most_bytes)
