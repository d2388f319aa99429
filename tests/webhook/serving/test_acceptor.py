from __future__ import annotations

import asyncio
import logging
import resource
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from ssl import SSLContext

import pytest

from tests.patience import PATIENCE_SECONDS
from webhook.serving.acceptor import Acceptor, listening_sockets
from webhook.serving.tls import LiveCertificate, SelfSigned

STEPS = 50  # of the event loop: many times as many as an acceptance takes


class Queue:
    """Reviews that wait for their turn."""

    def __init__(self, waiting: int) -> None:
        self.waiting = waiting
        self.taken = 0


class Peers:
    """Those that connect, and the connections that were made of it."""

    def __init__(self, port: int) -> None:
        self.made: list[asyncio.Transport] = []
        self._port = port
        self.sockets: list[socket.socket] = []

    def connect(self, text: bytes = b"") -> socket.socket:
        """Connect, which ends when the connection is in the backlog."""
        peer = socket.create_connection(("127.0.0.1", self._port))
        peer.sendall(text)
        self.sockets.append(peer)
        return peer

    async def until_made(self, count: int) -> None:
        async with asyncio.timeout(PATIENCE_SECONDS):
            while len(self.made) < count:  # noqa: ASYNC110 - what it waits for has no event
                await asyncio.sleep(0.001)

    def close(self) -> None:
        for transport in self.made:
            transport.close()
        for peer in self.sockets:
            peer.close()


class Protocol(asyncio.Protocol):
    def __init__(self, made: list[asyncio.Transport]) -> None:
        self._made = made

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._made.append(transport)


@asynccontextmanager
async def accepting(
    queue: Queue, tls: SSLContext | None = None, *, known: bool = True
) -> AsyncIterator[Peers]:
    """Accept connections; of a peer that is known reviews have come."""
    (listener,) = await listening_sockets("127.0.0.1", 0)
    peers = Peers(listener.getsockname()[1])
    acceptor = Acceptor(lambda: Protocol(peers.made), tls, lambda _: known, [queue])
    tasks = [
        asyncio.create_task(work) for work in (acceptor.accept(listener), acceptor.let_in_held())
    ]
    yield peers
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    listener.close()
    peers.close()
    await asyncio.sleep(0)


async def step() -> None:
    for _ in range(STEPS):
        await asyncio.sleep(0)


async def test_where_no_review_waits_connections_are_accepted_at_once() -> None:
    async with accepting(Queue(0)) as peers:
        for _ in range(3):
            peers.connect()
        await peers.until_made(3)


async def test_while_reviews_wait_a_further_connection_is_let_in_after_sixteen_turns() -> None:
    queue = Queue(1)
    async with accepting(queue) as peers:
        for _ in range(3):
            peers.connect()
        await step()
        queue.taken = 15
        await step()
        assert not peers.made
        for turns, connections in ((16, 1), (31, 1), (32, 2)):
            queue.taken = turns
            await step()
            await peers.until_made(connections)
            assert len(peers.made) == connections


async def test_a_peer_without_reviews_is_let_in_at_once_whoever_waits() -> None:
    async with accepting(Queue(9), known=False) as peers:
        for _ in range(3):
            peers.connect()
        await peers.until_made(3)


async def test_connections_that_are_held_at_the_end_are_closed() -> None:
    acceptor = Acceptor(lambda: Protocol([]), None, lambda _: True, [Queue(1)])
    (listener,) = await listening_sockets("127.0.0.1", 0)
    tasks = [
        asyncio.create_task(work) for work in (acceptor.accept(listener), acceptor.let_in_held())
    ]
    peers = [socket.create_connection(listener.getsockname()) for _ in range(2)]
    await step()
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    for peer in peers:
        peer.settimeout(PATIENCE_SECONDS)
        assert peer.recv(1) == b""
        peer.close()
    listener.close()


async def test_held_connections_are_let_in_as_soon_as_no_review_waits_any_more() -> None:
    queue = Queue(1)
    async with accepting(queue) as peers:
        for _ in range(3):
            peers.connect()
        await step()
        assert not peers.made
        queue.waiting = 0
        await peers.until_made(3)


async def test_a_peer_that_speaks_no_tls_keeps_nobody_out() -> None:
    tls = LiveCertificate(
        SelfSigned(now=datetime.now(UTC)), client_ca=None, now=lambda: datetime.now(UTC)
    ).current.context
    async with accepting(Queue(0), tls) as peers:
        stranger, silent = peers.connect(b"GET / HTTP/1.1\r\n\r\n"), peers.connect()
        gone = peers.connect()
        gone.close()
        stranger.settimeout(0)
        async with asyncio.timeout(PATIENCE_SECONDS):
            while await asyncio.get_running_loop().sock_recv(stranger, 1_000):
                pass  # an alert, and then the end
        assert silent.fileno() > 0
        assert not peers.made


async def test_without_descriptors_it_says_so_and_goes_on(
    caplog: pytest.LogCaptureFixture,
) -> None:
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    async with accepting(Queue(0)) as peers:
        last = peers.connect()
        with caplog.at_level(logging.ERROR):
            # The lowest free descriptor is one above the last, or below it.
            resource.setrlimit(resource.RLIMIT_NOFILE, (3, before[1]))
            try:
                async with asyncio.timeout(PATIENCE_SECONDS):
                    while not caplog.records:  # noqa: ASYNC110 - nor has a line of the log
                        await asyncio.sleep(0.001)
            finally:
                resource.setrlimit(resource.RLIMIT_NOFILE, before)
        assert "no connection can be accepted" in caplog.text
        await peers.until_made(1)
        assert last.fileno() > 0


async def test_a_port_that_is_taken_is_an_error_and_leaves_no_socket_open() -> None:
    (listener,) = await listening_sockets("127.0.0.1", 0)
    with listener, pytest.raises(OSError, match="in use"):
        await listening_sockets("127.0.0.1", listener.getsockname()[1])
