"""The connections of a listener, within limits of number and time.

Without them, whoever can connect could keep API servers out: by connections that send nothing, or
half a request, until no descriptor is left. aiohttp limits the time between two requests alone.
"""

from __future__ import annotations

import asyncio
import logging
import resource
import time
from collections.abc import Callable
from typing import Final

from aiohttp import web

from engine.model.count_text import counted

KEEP_ALIVE_SECONDS: Final = 180.0
"""How long a connection stays after a request: twice as long as an API server keeps it, so that
none is closed while a review is on its way."""

_FIRST_REQUEST_SECONDS: Final = 5.0
_LINGERING_SECONDS: Final = 1.0
_LOG_EVERY_SECONDS: Final = 10.0
_MOST_DESCRIPTORS: Final = 8_192
_OTHER_DESCRIPTORS: Final = 64
"""Of watches, files and other listeners, and of connections whose handshake is under way."""

_log = logging.getLogger(__name__)


def raise_descriptor_limit() -> None:
    """Let the process have as many descriptors as it may, within reason."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != resource.RLIM_INFINITY and soft < _MOST_DESCRIPTORS:
        most = _MOST_DESCRIPTORS if hard == resource.RLIM_INFINITY else min(hard, _MOST_DESCRIPTORS)
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))


def most_connections(wanted: int) -> int:
    """Return how many connections there are descriptors for, at most as many as wanted."""
    descriptors, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if descriptors == resource.RLIM_INFINITY:
        return wanted
    return max(1, min(wanted, descriptors - _OTHER_DESCRIPTORS))


class Connections:
    """The open connections of a listener.

    Beyond the limit a connection takes the place of the oldest that has brought no review; where
    there is none, of the one that was used least recently among those of the peer with most. So
    connections that API servers use are the last to go.

    Args:
        most: connections at a time.
        first_request_seconds: longest time from a handshake to the headers of a request.
        count_closed: called with the reason for each connection that is closed here.
        clock: monotonic seconds.
    """

    def __init__(
        self,
        most: int,
        *,
        first_request_seconds: float = _FIRST_REQUEST_SECONDS,
        count_closed: Callable[[str], None] = lambda _reason: None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.first_request_seconds = first_request_seconds
        self._most = most
        self._count_closed = count_closed
        self._clock = clock
        self._unproven: dict[Connection, None] = {}  # no review yet; the oldest first
        self._proven: dict[str, dict[Connection, None]] = {}  # by peer; least recently used first
        self._logged_at = -_LOG_EVERY_SECONDS
        self._unlogged = 0

    def __len__(self) -> int:
        """Number of open connections."""
        return len(self._unproven) + sum(map(len, self._proven.values()))

    def opened(self, connection: Connection) -> None:
        """Count a connection; where there are too many, another one is closed, or this one."""
        self._unproven[connection] = None
        if len(self) > self._most:
            self._victim(connection).give_up("too many connections")

    def brought_review(self, connection: Connection) -> None:
        """Note that a review came by a connection, and was answered."""
        self._unproven.pop(connection, None)
        of_peer = self._proven.setdefault(connection.peer, {})
        of_peer.pop(connection, None)
        of_peer[connection] = None

    def has_review_of(self, peer: str) -> bool:
        """Return whether a review came from an address by a connection that is still open."""
        return peer in self._proven

    def closed(self, connection: Connection) -> None:
        """Count a connection no longer."""
        self._unproven.pop(connection, None)
        of_peer = self._proven.get(connection.peer)
        if of_peer is not None:
            of_peer.pop(connection, None)
            if not of_peer:
                del self._proven[connection.peer]

    def given_up(self, connection: Connection, reason: str) -> None:
        """Count a connection that is closed for a reason; some are logged."""
        self._count_closed(reason)
        self._unlogged += 1
        if self._clock() - self._logged_at < _LOG_EVERY_SECONDS:
            return
        _log.warning(
            "%s closed since the last such line, the latest from %s: %s",
            counted(self._unlogged, "connection"),
            connection.peer or "an unknown address",
            reason,
        )
        self._logged_at, self._unlogged = self._clock(), 0

    def _victim(self, newcomer: Connection) -> Connection:
        for connection in self._unproven:
            if connection is not newcomer:
                return connection
        largest = max(self._proven.values(), key=len)
        own = self._proven.get(newcomer.peer, {})
        if len(own) < len(largest):
            return next((each for each in largest if not each.is_busy), newcomer)
        return newcomer


class Connection(web.RequestHandler):
    """One connection: aiohttp's, within limits, and without its words about malformed requests.

    Args:
        server: that handles the requests.
        connections: those of the same listener.
        loop: the running loop.
    """

    __slots__ = ("_connections", "_timer", "peer")

    def __init__(
        self, server: web.Server, connections: Connections, *, loop: asyncio.AbstractEventLoop
    ) -> None:
        super().__init__(
            server,
            loop=loop,
            keepalive_timeout=KEEP_ALIVE_SECONDS,
            lingering_time=_LINGERING_SECONDS,
            auto_decompress=False,  # reviews are not compressed, and small bodies can become large
            access_log=None,  # type: ignore[arg-type] # as `AppRunner` takes it
        )
        self.peer = ""
        self._connections = connections
        self._timer: asyncio.TimerHandle | None = None

    @property
    def is_busy(self) -> bool:
        """Whether a request is being handled."""
        return self._current_request is not None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Begin to wait for the first request."""
        super().connection_made(transport)
        address = transport.get_extra_info("peername")
        # A socket of both families shows IPv4 as IPv6.
        self.peer = str(address[0]).removeprefix("::ffff:") if address else ""
        self._wait()
        self._connections.opened(self)

    def connection_lost(self, exc: BaseException | None) -> None:
        """End."""
        self._stop_waiting()
        self._connections.closed(self)
        super().connection_lost(exc)

    async def finish_response(
        self, request: web.BaseRequest, resp: web.StreamResponse, start_time: float | None
    ) -> tuple[web.StreamResponse, bool]:
        """Respond."""
        result = await super().finish_response(request, resp, start_time)
        self._stop_waiting()
        is_review = request.method == "POST" and resp.status == web.HTTPOk.status_code
        if is_review and self.transport is not None:
            self._connections.brought_review(self)
        return result

    def handle_error(
        self,
        request: web.BaseRequest,
        status: int = 500,
        exc: BaseException | None = None,
        message: str | None = None,
    ) -> web.StreamResponse:
        """Return the response to a request that is malformed, or whose handler failed."""
        if status != web.HTTPBadRequest.status_code:
            return super().handle_error(request, status, exc, message)
        self._connections.given_up(self, "malformed request")
        headers = {"Server": "stowplan"}
        response = web.Response(status=status, text="malformed request\n", headers=headers)
        response.force_close()
        return response

    def give_up(self, reason: str) -> None:
        """Close at once."""
        self._connections.given_up(self, reason)
        self._connections.closed(self)
        if self.transport is not None:
            self.transport.abort()

    def close_if_idle(self) -> None:
        """Close if no request has come; wait again while one is being handled."""
        if self.is_busy:
            self._wait()
        else:
            self.give_up("no request in time")

    def _wait(self) -> None:
        seconds = self._connections.first_request_seconds
        self._timer = asyncio.get_running_loop().call_later(seconds, self.close_if_idle)

    def _stop_waiting(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
