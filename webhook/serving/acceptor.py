"""Acceptance of connections, paced by the reviews that wait."""

from __future__ import annotations

import asyncio
import logging
import socket
from collections.abc import Callable, Sequence
from ssl import SSLContext
from typing import Final, Protocol

HANDSHAKE_SECONDS: Final = 5.0
EVERY_ADDRESS: Final = "::"
"""What stands for each address of this machine, of IPv4 as well."""

_BACKLOG: Final = 1024
_TURNS_EACH: Final = 16  # so handshakes take about a tenth of the processor
_MOST_HELD: Final = 1024  # beyond them the backlog waits, too
_RETRY_SECONDS: Final = 1.0

_log = logging.getLogger(__name__)


class ReviewQueue(Protocol):
    """Reviews that are decided in turn.

    Attributes:
        waiting: how many wait for their turn, or have it; none of them for anything else.
        taken: how many turns have ended, or were not needed.
    """

    waiting: int
    taken: int


class Acceptor:
    """Accepts connections, further ones of a peer in turn with its reviews.

    A TLS handshake takes as much of a processor as a review or more. An API server speaks HTTP/1.1
    to webhooks: it opens a connection for each review that finds none idle, sends it on whichever
    is free first, and closes what it has too many of. So when reviews begin to wait, more
    connections come, their handshakes make others wait, and a moment's delay would become an
    overload that lasts. Therefore, while reviews wait, a further connection of a peer whose reviews
    come by others is held, and one is let in after every few turns of reviews. A peer without such
    connections is let in at once: another API server, or a probe.

    Args:
        protocol: makes the protocol of each connection.
        tls: None for plain connections.
        brings_reviews: whether reviews come from an address by open connections.
        turns: of the reviews that come by these connections.
    """

    def __init__(
        self,
        protocol: Callable[[], asyncio.Protocol],
        tls: SSLContext | None,
        brings_reviews: Callable[[str], bool],
        turns: Sequence[ReviewQueue] = (),
    ) -> None:
        self._protocol = protocol
        self._tls = tls
        self._brings_reviews = brings_reviews
        self._turns = turns
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
            if self._brings_reviews(str(address[0])):
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
        while self._taken() < last and self._reviews_wait():  # noqa: ASYNC110 - each step ends a turn
            await asyncio.sleep(0)

    def _reviews_wait(self) -> bool:
        return any(turns.waiting for turns in self._turns)

    def _taken(self) -> int:
        return sum(turns.taken for turns in self._turns)

    def _let_in(self, connection: socket.socket) -> None:
        task = asyncio.get_running_loop().create_task(self._connect(connection))
        self._connecting.add(task)
        task.add_done_callback(self._connecting.discard)

    async def _connect(self, connection: socket.socket) -> None:
        """Make a connection, TLS included, unless the peer fails to."""
        try:
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            await asyncio.get_running_loop().connect_accepted_socket(
                self._protocol,
                connection,
                ssl=self._tls,
                ssl_handshake_timeout=HANDSHAKE_SECONDS if self._tls else None,
            )
        except OSError as error:
            connection.close()
            _log.debug("no connection: %s", error)


async def listening_sockets(host: str, port: int) -> list[socket.socket]:
    """Return a socket that listens for each address of a host.

    Args:
        host: a name or an address; `::` for all of this machine, of both families: one socket takes
            them, or one of IPv4 where this machine has no IPv6.
        port: 0 takes a free one for each.

    Raises:
        OSError: one of them cannot be listened on.
    """
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
