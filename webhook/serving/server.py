"""A server that listens: its addresses, and its end without losing a review."""

from __future__ import annotations

import asyncio
import logging
import resource
import socket
import time
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import AsyncExitStack
from dataclasses import KW_ONLY, dataclass
from functools import partial
from ssl import SSLContext
from typing import Final, Protocol

from aiohttp import web

from engine.errors import Diagnostic, counted
from webhook.background import in_background
from webhook.cluster import Cluster
from webhook.serving.health import Health
from webhook.settings import SettingsError

HANDSHAKE_SECONDS: Final = 5.0
EVERY_ADDRESS: Final = "::"
"""What stands for each address of this machine, of IPv4 as well."""

_BACKLOG: Final = 1024
_TURNS_EACH: Final = 16  # so handshakes take about a tenth of the processor
_MOST_HELD: Final = 1024  # beyond them the backlog waits, too
_RETRY_SECONDS: Final = 1.0

# The connections of a listener, within limits of number and time.
#
# Without them, whoever can connect could keep API servers out: by connections that send nothing, or
# half a request, until no descriptor is left. aiohttp limits the time between two requests alone.


_log = logging.getLogger(__name__)


class ReviewQueue(Protocol):
    waiting: int  # how many wait for their turn, or have it; none of them for anything else
    taken: int  # how many turns have ended, or were not needed


@dataclass(eq=False)
class Acceptor:
    """Accepts connections, further ones of a peer in turn with its reviews.

    A TLS handshake takes as much of a processor as a review or more. An API server speaks HTTP/1.1
    to webhooks: it opens a connection for each review that finds none idle, sends it on whichever
    is free first, and closes what it has too many of. So when reviews begin to wait, more
    connections come, their handshakes make others wait, and a moment's delay would become an
    overload that lasts. Therefore, while reviews wait, a further connection of a peer whose reviews
    come by others is held, and one is let in after every few turns of reviews. A peer without such
    connections is let in at once: another API server, or a probe.
    """

    protocol: Callable[[], asyncio.Protocol]
    tls: SSLContext | None
    brings_reviews: Callable[[str], bool]
    turns: Sequence[ReviewQueue] = ()

    def __post_init__(self) -> None:
        self._held: asyncio.Queue[socket.socket] = asyncio.Queue(_MOST_HELD)
        self._connecting: set[asyncio.Task[None]] = set()

    async def accept(self, listener: socket.socket) -> None:
        """Accept the connections of a socket that listens, until cancelled."""
        loop = asyncio.get_running_loop()
        while True:
            try:
                connection, address = await loop.sock_accept(listener)
            except ConnectionError:  # it is gone already
                continue
            except OSError as error:  # there is no descriptor left
                _log.error("no connection can be accepted: %s", error.strerror)
                await asyncio.sleep(_RETRY_SECONDS)
                continue
            if self.brings_reviews(str(address[0])):
                await self._held.put(connection)
            else:
                self._let_in(connection)
            await asyncio.sleep(0)

    async def let_in_held(self) -> None:
        """Let in the connections that are held, until cancelled."""
        try:
            while True:
                connection = await self._held.get()
                try:
                    await self._turn()
                except asyncio.CancelledError:
                    connection.close()
                    raise
                self._let_in(connection)
        finally:
            while not self._held.empty():
                self._held.get_nowait().close()
            for task in self._connecting:
                task.cancel()

    async def _turn(self) -> None:
        """Wait until a connection that is held may be let in."""
        await asyncio.sleep(0)
        last = self._taken() + _TURNS_EACH
        while self._taken() < last and any(each.waiting for each in self.turns):  # noqa: ASYNC110 - each step ends a turn
            await asyncio.sleep(0)

    def _taken(self) -> int:
        return sum(turns.taken for turns in self.turns)

    def _let_in(self, connection: socket.socket) -> None:
        task = asyncio.get_running_loop().create_task(self._connect(connection))
        self._connecting.add(task)
        task.add_done_callback(self._connecting.discard)

    async def _connect(self, connection: socket.socket) -> None:
        """Make a connection, TLS included, unless the peer fails to."""
        try:
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            await asyncio.get_running_loop().connect_accepted_socket(
                self.protocol,
                connection,
                ssl=self.tls,
                ssl_handshake_timeout=HANDSHAKE_SECONDS if self.tls else None,
            )
        except OSError as error:
            connection.close()
            _log.debug("no connection: %s", error)


async def listening_sockets(host: str, port: int) -> list[socket.socket]:
    if host == EVERY_ADDRESS:
        return [_listener_everywhere(port)]
    found = await asyncio.get_running_loop().getaddrinfo(
        host or None, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
    )
    listeners: list[socket.socket] = []
    try:
        for family, _, _, _, address in dict.fromkeys(found):
            host_address = (str(address[0]), int(address[1]))
            listener = socket.create_server(host_address, family=family, backlog=_BACKLOG)
            listeners.append(listener)
            listener.settimeout(0)
    except OSError:
        for listener in listeners:
            listener.close()
        raise
    return listeners


def _listener_everywhere(port: int) -> socket.socket:
    if socket.has_dualstack_ipv6():
        listener = socket.create_server(
            (EVERY_ADDRESS, port), family=socket.AF_INET6, backlog=_BACKLOG, dualstack_ipv6=True
        )
    else:
        listener = socket.create_server(("0.0.0.0", port), backlog=_BACKLOG)  # noqa: S104 - as asked
    listener.settimeout(0)
    return listener


KEEP_ALIVE_SECONDS: Final = 180.0
"""How long a connection stays after a request: twice as long as an API server keeps it, so that
none is closed while a review is on its way."""

_FIRST_REQUEST_SECONDS: Final = 5.0
_LINGERING_SECONDS: Final = 1.0
_LOG_EVERY_SECONDS: Final = 10.0
_MOST_DESCRIPTORS: Final = 8_192
_OTHER_DESCRIPTORS: Final = 64
"""Of watches, files and other listeners, and of connections whose handshake is under way."""


def raise_descriptor_limit() -> None:
    """Let the process have as many descriptors as it may, within reason."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != resource.RLIM_INFINITY and soft < _MOST_DESCRIPTORS:
        most = _MOST_DESCRIPTORS if hard == resource.RLIM_INFINITY else min(hard, _MOST_DESCRIPTORS)
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))


_MOST_API_SERVER_CONNECTIONS: Final = 1024
"""An API server needs a few; more are of a peer that opens them in bulk."""


def most_connections(wanted: int = _MOST_API_SERVER_CONNECTIONS) -> int:
    """Return how many connections there are descriptors for, at most as many as wanted."""
    descriptors, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if descriptors == resource.RLIM_INFINITY:
        return wanted
    return max(1, min(wanted, descriptors - _OTHER_DESCRIPTORS))


@dataclass(eq=False)
class Connections:
    """The open connections of a listener.

    Beyond the limit a connection takes the place of the oldest that has brought no review; where
    there is none, of the one that was used least recently among those of the peer with most. So
    connections that API servers use are the last to go.
    """

    most: int
    _: KW_ONLY
    # longest time from a handshake to the headers of a request
    first_request_seconds: float = _FIRST_REQUEST_SECONDS
    # called with the reason for each connection that is closed here
    count_closed: Callable[[str], None] = lambda _reason: None
    clock: Callable[[], float] = time.monotonic

    def __post_init__(self) -> None:
        self._unproven: dict[Connection, None] = {}  # no review yet; the oldest first
        self._proven: dict[str, dict[Connection, None]] = {}  # by peer; least recently used first
        self._logged_at = -_LOG_EVERY_SECONDS
        self._unlogged = 0

    def __len__(self) -> int:
        return len(self._unproven) + sum(map(len, self._proven.values()))

    def opened(self, connection: Connection) -> None:
        """Count a connection; where there are too many, another one is closed, or this one."""
        self._unproven[connection] = None
        if len(self) > self.most:
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
        self._unproven.pop(connection, None)
        of_peer = self._proven.get(connection.peer)
        if of_peer is not None:
            of_peer.pop(connection, None)
            if not of_peer:
                del self._proven[connection.peer]

    def given_up(self, connection: Connection, reason: str) -> None:
        """Count a connection that is closed for a reason; some are logged."""
        self.count_closed(reason)
        self._unlogged += 1
        if self.clock() - self._logged_at < _LOG_EVERY_SECONDS:
            return
        _log.warning(
            "%s closed since the last such line, the latest from %s: %s",
            counted(self._unlogged, "connection"),
            connection.peer or "an unknown address",
            reason,
        )
        self._logged_at, self._unlogged = self.clock(), 0

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
    """One connection: aiohttp's, within limits, and without its words about malformed requests."""

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
        self._stop_waiting()
        self._connections.closed(self)
        super().connection_lost(exc)

    async def finish_response(
        self, request: web.BaseRequest, resp: web.StreamResponse, start_time: float | None
    ) -> tuple[web.StreamResponse, bool]:
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


ANY_ADDRESS = frozenset({"0.0.0.0", EVERY_ADDRESS})  # noqa: S104 - recognised, not bound
_DRAIN_POLL_SECONDS = 0.05
_QUIET_SECONDS = 0.5  # without connections: a handshake may be under way, which nothing shows
_MOST_CONNECTIONS = 128  # of people, Prometheus and probes
_SHUTDOWN_SECONDS = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class RunningServer:
    url: str  # of reviews; of probes, too, for those who may connect
    paths: tuple[str, ...]  # of reviews, without a slash
    probe_url: str  # of probes
    metrics_url: str  # of metrics and debug pages
    dashboard_url: str  # of the dashboard; "" for none
    ca_pem: bytes  # authority that callers must trust; empty with a given certificate
    health: Health  # readiness and state
    cluster: Cluster  # the cluster that reviews are decided on
    reviews: web.Server  # the HTTP server behind `url`
    # ends the leadership of this process, so that another one need not wait for it
    hand_over: Callable[[], Awaitable[None]]
    # fills the caches of the policies in force, once the cluster is synced
    warm_up: Callable[[], Awaitable[float]]

    def greeting(self) -> str:
        """Text for the person who started the server."""
        status = self.health.report()
        lines = [
            f"policies  {status.policies.loaded}, over {counted(status.view.nodes, 'node')}",
            *self._reviews(),
            f"probes    {self.probe_url}/livez and {self.probe_url}/readyz",
            f"metrics   {self.metrics_url}/metrics",
            f"decisions {self.metrics_url}/debug/decisions",
        ]
        if self.dashboard_url:
            lines.append(f"dashboard {self.dashboard_url}")
        if self.ca_pem:
            lines += [
                "self-signed authority (in base64, the `caBundle` of a webhook configuration):",
                self.ca_pem.decode().rstrip(),
                f"save it as ca.pem and try: curl --cacert ca.pem {self.probe_url}/readyz",
            ]
        return "\n".join(lines)

    def _reviews(self) -> Iterator[str]:
        if "mutate" in self.paths:
            yield f"reviews   {self.url}/mutate and {self.url}/validate"
        if "bind" in self.paths:
            yield f"bindings  {self.url}/bind"

    async def drain(self, seconds: float, *, delay_seconds: float = 0.0) -> None:
        """Hand over, become not ready, and serve until all connections are closed or time is up."""
        longest = delay_seconds + seconds
        _log.info("ending: not ready any more, serving on for at most %s s", longest)
        self.health.draining = True
        await self.hand_over()
        loop = asyncio.get_running_loop()
        until = loop.time() + longest
        await asyncio.sleep(delay_seconds)
        quiet_since = loop.time()
        while loop.time() < min(until, quiet_since + _QUIET_SECONDS):
            await asyncio.sleep(_DRAIN_POLL_SECONDS)
            if self.reviews.connections:
                quiet_since = loop.time()


async def listen(
    stack: AsyncExitStack,
    app: web.Application,
    host: str,
    port: int,
    tls: SSLContext | None = None,
    connections: Connections | None = None,
    turns: Sequence[ReviewQueue] = (),
) -> tuple[web.Server, str]:
    """Serve an application until the stack unwinds; returns its server and its local URL."""
    runner = web.AppRunner(app, access_log=None, shutdown_timeout=_SHUTDOWN_SECONDS)
    stack.push_async_callback(runner.cleanup)
    await runner.setup()
    server = runner.server
    if server is None:
        raise AssertionError("setup makes the server")
    if connections is None:
        connections = Connections(_MOST_CONNECTIONS)
    loop = asyncio.get_running_loop()
    new_connection = partial(Connection, server, connections, loop=loop)
    acceptor = Acceptor(new_connection, tls, connections.has_review_of, turns)
    try:
        listeners = await listening_sockets(host, port)
    except OSError as error:
        problem = f"cannot be listened on: {error.strerror or error}"
        raise SettingsError([Diagnostic(file=f"{host}:{port}", message=problem)]) from error
    in_background(stack, acceptor.let_in_held())
    for listener in listeners:
        stack.callback(listener.close)
        in_background(stack, acceptor.accept(listener))
    name = "localhost" if host in ANY_ADDRESS else host
    shown = f"[{name}]" if ":" in name else name
    scheme = "https" if tls else "http"
    return server, f"{scheme}://{shown}:{listeners[0].getsockname()[1]}"
