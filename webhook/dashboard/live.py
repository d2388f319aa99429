"""Live updates: a stream of server-sent events that say when to fetch a page again."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress
from typing import Final

from aiohttp import web

_POLL_SECONDS: Final = 0.25
_SHORTEST_SILENCE_SECONDS: Final = 1.0
_LONGEST_SILENCE_SECONDS: Final = 4.0
"""Ages and guesses of waits change without an event; and a write finds out who has gone."""

_LONGEST_SECONDS: Final = 600.0
"""Of a stream; then the browser connects again, and its reader is authorized again."""

_MOST_STREAMS: Final = 32
_NONE: Final = -1  # a version of no cluster


class LiveUpdates:
    """Streams with the version of the cluster: when it has changed, at most once in a second.

    Args:
        version: of the cluster.
    """

    def __init__(self, version: Callable[[], int]) -> None:
        self._version = version
        self._streams = 0

    async def stream(self, request: web.Request) -> web.StreamResponse:
        """Send events until the reader leaves, or for ten minutes.

        Raises:
            HTTPServiceUnavailable: there are too many streams; the browser does not try again.
        """
        if self._streams >= _MOST_STREAMS:
            raise web.HTTPServiceUnavailable(text="too many readers at a time\n")
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        self._streams += 1
        try:
            await response.prepare(request)
            with suppress(ConnectionResetError):  # the reader has left
                await self._send(response)
        finally:
            self._streams -= 1
        return response

    async def _send(self, response: web.StreamResponse) -> None:
        loop = asyncio.get_running_loop()
        # The page may be older than its stream: the first event comes whether or not there is news.
        sent, sent_at = _NONE, loop.time()
        until = sent_at + _LONGEST_SECONDS
        while loop.time() < until:
            await asyncio.sleep(_POLL_SECONDS)
            version, silence = self._version(), loop.time() - sent_at
            has_changed = version != sent and silence >= _SHORTEST_SILENCE_SECONDS
            if has_changed or silence >= _LONGEST_SILENCE_SECONDS:
                await response.write(b"data: %d\n\n" % version)
                sent, sent_at = version, loop.time()
