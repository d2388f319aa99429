from __future__ import annotations

import asyncio
import json
import logging
import resource
import socket
from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path
from ssl import SSLContext

import pytest
from aiohttp import web
from yarl import URL

from tests.patience import PATIENCE_SECONDS
from tests.webhook.conftest import Start
from webhook.serving.server import (
    Acceptor,
    Connection,
    Connections,
    listen,
    listening_sockets,
    most_connections,
)
from webhook.serving.tls import LiveCertificate, SelfSigned
from webhook.settings import SettingsError

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


LONG = 60.0
REVIEW = b"POST /review HTTP/1.1\r\nHost: x\r\nContent-Length: 0\r\n\r\n"


class Listening:
    """A listener, and connections to it from addresses of this machine."""

    def __init__(self, connections: Connections, port: int, closed: Counter[str]) -> None:
        self.connections = connections
        self.closed = closed
        self.writers: list[asyncio.StreamWriter] = []
        self._port = port

    async def connect(self, text: bytes = b"", peer: str = "127.0.0.1") -> asyncio.StreamReader:
        """Open a connection, send some text, and wait for the answer to a review."""
        accepted = self._accepted()
        reader, writer = await asyncio.open_connection(
            "127.0.0.1", self._port, local_addr=(peer, 0)
        )
        self.writers.append(writer)
        await until(lambda: self._accepted() > accepted)
        writer.write(text)
        if text == REVIEW:
            await reader.readuntil(b"\r\n\r\n")
        return reader

    def _accepted(self) -> int:
        return len(self.connections) + self.closed.total()


@asynccontextmanager
async def listening(
    most: int = 99,
    *,
    first_request_seconds: float = LONG,
    clock: Callable[[], float] = lambda: 0.0,
) -> AsyncIterator[Listening]:
    """Listen; while a request to `/late` is handled, the time for the first request is up."""
    closed: Counter[str] = Counter()
    connections = Connections(
        most,
        first_request_seconds=first_request_seconds,
        count_closed=lambda reason: closed.update([reason]),
        clock=clock,
    )

    async def late(request: web.Request) -> web.Response:
        assert isinstance(request.protocol, Connection)
        request.protocol.close_if_idle()
        return web.Response()

    async def review(_: web.Request) -> web.Response:
        return web.Response()

    app = web.Application()
    app.router.add_post("/late", late)
    app.router.add_post("/review", review)
    async with AsyncExitStack() as stack:
        _, url = await listen(stack, app, "127.0.0.1", 0, connections=connections)
        listener = Listening(connections, int(url.rsplit(":", 1)[1]), closed)
        stack.push_async_callback(close, listener.writers)
        yield listener


async def is_closed(reader: asyncio.StreamReader) -> None:
    """Wait until the listener has closed a connection, in whichever way."""
    with suppress(ConnectionResetError):
        assert await reader.read() == b""


async def close(writers: list[asyncio.StreamWriter]) -> None:
    for writer in writers:
        writer.close()
        with suppress(ConnectionResetError):
            await writer.wait_closed()


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(PATIENCE_SECONDS):
        while not condition():  # noqa: ASYNC110 - what it waits for has no event
            await asyncio.sleep(0.001)


@pytest.mark.parametrize("text", [b"", b"POST /rev", b"POST /review HTTP/1.1\r\nHost: x\r\n"])
async def test_without_a_request_a_connection_is_closed(text: bytes) -> None:
    async with listening(first_request_seconds=0.01) as at:
        reader = await at.connect(text)
        await is_closed(reader)
        assert at.closed == {"no request in time": 1}
        await until(lambda: len(at.connections) == 0)


async def test_a_connection_whose_request_is_being_handled_is_not_cut() -> None:
    async with listening() as at:
        reader = await at.connect(REVIEW.replace(b"/review", b"/late"))
        assert (await reader.readline()) == b"HTTP/1.1 200 OK\r\n"
        assert len(at.connections) == 1
        assert not at.closed


async def test_beyond_the_limit_the_oldest_without_a_review_goes_first() -> None:
    async with listening(3) as at:
        await at.connect(REVIEW)
        oldest = await at.connect()
        await at.connect()
        newcomer = await at.connect(REVIEW)
        await is_closed(oldest)
        assert at.closed == {"too many connections": 1}
        assert not newcomer.at_eof()
        assert len(at.connections) == 3


async def test_a_peer_has_reviews_as_long_as_a_connection_that_brought_one_is_open() -> None:
    async with listening() as at:
        await at.connect()
        assert not at.connections.has_review_of("127.0.0.1")
        await at.connect(REVIEW)
        assert at.connections.has_review_of("127.0.0.1")
        assert not at.connections.has_review_of("127.0.0.2")
        at.writers[1].close()
        await until(lambda: not at.connections.has_review_of("127.0.0.1"))


async def test_where_all_have_brought_reviews_the_peer_with_most_loses_the_least_used() -> None:
    async with listening(3) as at:
        one = await at.connect(REVIEW)
        two = await at.connect(REVIEW)
        await at.connect(REVIEW)
        await at.connect(REVIEW, peer="127.0.0.2")
        await is_closed(one)
        assert not two.at_eof()
        assert at.closed == {"too many connections": 1}


async def test_the_peer_with_most_gets_no_more_at_the_cost_of_others() -> None:
    async with listening(2) as at:
        readers = [await at.connect(REVIEW) for _ in range(2)]
        refused = await at.connect()
        await is_closed(refused)
        assert not any(reader.at_eof() for reader in readers)


@pytest.mark.parametrize(
    "text",
    [
        b"\x16\x03\x01\r\n\r\n",
        b"GET / HTTP/9\r\n\r\n",
        b"POST / HTTP/1.1\r\nContent-Length: x\r\n\r\n",
    ],
)
async def test_a_malformed_request_is_a_400_that_says_nothing_of_us(
    text: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    async with listening() as at:
        answer = (await (await at.connect(text)).read()).decode()
        assert answer.split()[1] == "400"
        assert "Server: stowplan\r\n" in answer
        assert "aiohttp" not in answer
        assert "Python" not in answer
        assert at.closed == {"malformed request": 1}
        assert not any(record.exc_info for record in caplog.records)


async def test_of_many_closed_connections_the_log_says_little(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.WARNING)
    times = [0.0]
    async with listening(clock=lambda: times[-1]) as at:
        for moment in (0.0, 1.0, 9.0, 10.0):
            times.append(moment)
            await at.connect(b"\r\x00\r\n\r\n")
            await until(lambda: len(at.connections) == 0)
        since = "closed since the last such line, the latest from 127.0.0.1"
        assert [record.getMessage() for record in caplog.records] == [
            f"1 connection {since}: malformed request",
            f"3 connections {since}: malformed request",
        ]


def test_no_more_connections_are_taken_than_there_are_descriptors_for() -> None:
    descriptors, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    assert most_connections(10) == 10
    if descriptors != resource.RLIM_INFINITY:
        assert most_connections(2 * descriptors) == descriptors - 64


SERVER_REVIEW = json.loads(
    (Path(__file__).parents[1] / "reviews" / "generate_name.json").read_text()
)["review"]


async def test_the_greeting_says_where_and_how_to_call(start: Start) -> None:
    async with start() as caller:
        greeting = caller.server.greeting()
        assert "policies  2, over 3 nodes" in greeting
        for url in (
            f"{caller.server.url}/mutate",
            f"{caller.server.url}/validate",
            f"{caller.server.url}/readyz",
            f"{caller.server.metrics_url}/metrics",
        ):
            assert url in greeting
        assert caller.server.ca_pem.decode().strip() in greeting


def _has_ipv6_loopback() -> bool:
    try:
        socket.create_server(("::1", 0), family=socket.AF_INET6).close()
    except OSError:
        return False
    return True


@pytest.mark.parametrize(
    ("host", "address", "peer"),
    [("::", "127.0.0.1", "127.0.0.1"), ("::", "[::1]", "::1"), ("::1", "[::1]", "::1")],
)
async def test_it_is_called_over_either_family(
    start: Start, host: str, address: str, peer: str
) -> None:
    if "::1" in {host, peer} and not _has_ipv6_loopback():
        pytest.skip("this machine has no ::1")
    async with start(host=host, metrics_host=host) as caller:
        reviews, metrics = URL(caller.server.url), URL(caller.server.metrics_url)
        async with caller.session.get(f"http://{address}:{metrics.port}/metrics") as answer:
            assert answer.status == 200
        url = f"https://{address}:{reviews.port}/mutate"
        async with caller.session.post(url, json=SERVER_REVIEW) as answer:
            assert (answer.status, (await answer.json())["response"]["allowed"]) == (200, True)
        assert {getattr(each, "peer", "") for each in caller.server.reviews.connections} == {peer}


async def test_a_machine_without_ipv6_is_served_over_ipv4(
    start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(socket, "has_dualstack_ipv6", lambda: False)
    async with start(host="::") as caller:
        port = URL(caller.server.url).port
        async with caller.session.get(f"https://127.0.0.1:{port}/readyz") as answer:
            assert answer.status == 200


async def test_while_draining_it_serves_on_but_wants_no_more(start: Start) -> None:
    async with start() as caller:
        await caller.post(
            "/mutate", SERVER_REVIEW
        )  # leaves a connection open, as the API server does
        draining = asyncio.create_task(caller.server.drain(30.0))
        await asyncio.sleep(0)
        async with caller.session.get(f"{caller.server.url}/readyz") as response:
            assert response.status == 503
            assert response.headers["Connection"] == "close"
        async with caller.session.post(
            f"{caller.server.url}/mutate", json=SERVER_REVIEW
        ) as response:
            assert response.status == 200
            assert response.headers["Connection"] == "close"
        await draining  # ends by itself: every connection was closed by its last answer


async def test_it_leaves_callers_time_to_learn_that_it_ends_though_nobody_is_connected(
    start: Start,
) -> None:
    async with start() as caller:
        draining = asyncio.create_task(caller.server.drain(0.0, delay_seconds=60.0))
        while not caller.server.health.draining:  # noqa: ASYNC110 - it says so at once
            await asyncio.sleep(0)
        async with caller.session.post(
            f"{caller.server.url}/mutate", json=SERVER_REVIEW
        ) as response:
            assert response.status == 200
        assert not draining.done()
        draining.cancel()


async def test_draining_ends_in_time_even_if_a_connection_stays_open(start: Start) -> None:
    async with start() as caller:
        await caller.post("/mutate", SERVER_REVIEW)
        async with asyncio.timeout(PATIENCE_SECONDS):
            await caller.server.drain(0.01)
        assert caller.server.reviews.connections


async def test_a_port_that_is_taken_is_named(start: Start) -> None:
    async with start() as caller:
        port = caller.server.url.rsplit(":", 1)[1]
        with pytest.raises(SettingsError, match=rf"127\.0\.0\.1:{port}: cannot be listened on"):
            async with start(port=int(port)):
                pass
