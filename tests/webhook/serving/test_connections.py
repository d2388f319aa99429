from __future__ import annotations

import asyncio
import logging
import resource
from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager, suppress

import pytest
from aiohttp import web

from tests.patience import PATIENCE_SECONDS
from webhook.serving.connections import Connection, Connections, most_connections
from webhook.serving.server import listen

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
