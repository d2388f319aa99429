"""HTTP/1.1 as an API server speaks it to a webhook, with as little work as can be.

As Go's `net/http` does: each review that finds no idle connection has one made, and goes out on
whichever is free first, that one or another; a few idle ones are kept. An API server handles only
so many requests at a time, so that many reviews are under way; others wait for a seat, and their
timeout has not begun.

The client shares the machine with the server it measures, so it does without a library: requests
are texts made beforehand, and of an answer only the status and the length are read.
"""

from __future__ import annotations

import asyncio
import ssl
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import lru_cache
from typing import cast

from tests.bench.load.messages import Target, Window

TIMEOUT_SECONDS = 1.0
"""From the moment a review is called for, as in the chart."""

_MOST_IDLE = 25
"""Connections an API server keeps for later; more are closed (`idleConnsPerHost` of client-go)."""

_HOST = "127.0.0.1"
_END_OF_HEAD = b"\r\n\r\n"
_LENGTH = b"\r\nContent-Length: "
_PATCHED = b'"patch":"'
_OK = 200

clock = time.perf_counter


@dataclass(slots=True, eq=False)
class Sent:
    """A review under way.

    Attributes:
        due: when it was to be sent, by `clock`.
        text: the request; empty once there is nothing left to do for it.
        began: when there was a seat for it.
        by: what it went out on.
    """

    due: float
    text: bytes
    began: float = 0.0
    by: Connection | None = None


class Connection(asyncio.Protocol):
    """One connection: a request at a time.

    Attributes:
        answered: how many answers came by it.
    """

    def __init__(self, pool: Pool) -> None:
        self.answered = 0
        self._pool = pool
        self._transport: asyncio.Transport | None = None
        self._sent: Sent | None = None
        self._text = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)  # that of a stream has both ways

    def send(self, sent: Sent) -> None:
        """Send a request."""
        if self._transport is None:
            raise AssertionError("nothing is sent before a connection is made")
        self._sent = sent
        sent.by = self
        self._transport.write(sent.text)

    def close(self) -> None:
        """End in good order."""
        if self._transport is not None:
            self._transport.close()

    def break_off(self) -> None:
        """End at once, whatever is under way."""
        self._sent = None
        if self._transport is not None:
            self._transport.abort()

    def data_received(self, data: bytes) -> None:
        text = self._text = self._text + data if self._text else data
        head_end = text.find(_END_OF_HEAD)
        if head_end < 0:
            return
        at = text.find(_LENGTH, 0, head_end) + len(_LENGTH)
        length = int(text[at : text.find(b"\r", at)])
        if len(text) < head_end + len(_END_OF_HEAD) + length:
            return
        self._text = b""
        self.answered += 1
        sent, self._sent = self._sent, None
        if sent is not None:
            self._pool.answered(self, sent, int(text[9:12]), is_advised=_PATCHED in text)

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002 - of the protocol
        sent, self._sent = self._sent, None
        self._pool.lost(self, sent)


@dataclass(slots=True, eq=False, kw_only=True)
class Pool:
    """Connections to one server, made where none is idle; a few are kept.

    Attributes:
        most: connections at a time; beyond it reviews wait.
        seats: reviews at a time; beyond it they are not called for yet.
        reviews_each: answers after which a connection is closed; 0 for never.
        count: what came of reviews; taken by whoever tells it.
        when_idle: asked for the next request by a connection with nothing to do.
    """

    target: Target
    most: int
    seats: int
    reviews_each: int = 0
    when_idle: Callable[[], Sent | None] = lambda: None
    count: Window = field(default_factory=Window)
    _idle: list[Connection] = field(default_factory=list)
    _waiting: deque[Sent] = field(default_factory=deque)
    _queued: deque[Sent] = field(default_factory=deque)  # without a seat
    _under_way: deque[Sent] = field(default_factory=deque)  # in the order they began
    _taken: int = 0  # seats
    _open: set[Connection] = field(default_factory=set)
    _dials: set[asyncio.Task[None]] = field(default_factory=set)

    @property
    def busy(self) -> bool:
        """Whether anything is under way."""
        return bool(self._taken or self._queued)

    def submit(self, sent: Sent) -> None:
        """Send a request as soon as there is a seat for it."""
        if self._taken < self.seats:
            self._begin(sent)
        else:
            self._queued.append(sent)

    def _begin(self, sent: Sent) -> None:
        """Send a request, by the connection used last of those idle, or the first one to be."""
        self._seat(sent)
        if self._idle:
            self._idle.pop().send(sent)
            return
        self._waiting.append(sent)
        if self._room():
            self.dial()

    def _seat(self, sent: Sent) -> None:
        sent.began = clock()
        self._taken += 1
        self._under_way.append(sent)

    def _unseat(self, sent: Sent) -> None:
        """End a request; its seat is given away by `_fill_seats`."""
        sent.text = b""
        self._taken -= 1

    def _fill_seats(self) -> None:
        while self._queued and self._taken < self.seats:
            self._begin(self._queued.popleft())

    def dial(self) -> None:
        """Make a connection."""
        task = asyncio.create_task(self._dial())
        self._dials.add(task)
        task.add_done_callback(self._dials.discard)

    def answered(self, by: Connection, sent: Sent, status: int, *, is_advised: bool) -> None:
        """Take note of an answer, and give the connection something to do."""
        now = clock()
        self._unseat(sent)
        if now - sent.began > TIMEOUT_SECONDS:
            self.count.timed_out += 1
        elif status != _OK:
            self._failed(f"status {status}")
        else:
            self.count.latencies.append(round((now - sent.due) * 1e6))
            self.count.advised += is_advised
        if self.reviews_each and by.answered >= self.reviews_each:
            self._open.discard(by)
            by.close()
            if self._waiting:
                self.dial()
        else:
            self._employ(by)
        self._fill_seats()

    def lost(self, connection: Connection, sent: Sent | None) -> None:
        """Take note of a connection that is gone, and with it the request it carried."""
        self._open.discard(connection)
        if connection in self._idle:
            self._idle.remove(connection)
        if sent is not None and sent.text:
            self._unseat(sent)
            self._failed("connection lost")
            self._fill_seats()

    def give_up_late_ones(self) -> None:
        """Break off what takes longer than an API server waits."""
        latest = clock() - TIMEOUT_SECONDS
        under_way = self._under_way
        while under_way and (not under_way[0].text or under_way[0].began < latest):
            sent = under_way.popleft()
            if not sent.text:
                continue
            self._unseat(sent)
            self.count.timed_out += 1
            if sent.by is not None:
                self._open.discard(sent.by)
                sent.by.break_off()
        self._fill_seats()

    def close(self) -> None:
        """Close all connections, and give up those that are still being made."""
        for dial in self._dials:
            dial.cancel()
        for connection in tuple(self._open):
            connection.close()

    def _room(self) -> bool:
        return len(self._open) + len(self._dials) < self.most

    async def _dial(self) -> None:
        context, name = None, None
        if self.target.ca_file:
            context, name = _trusting(self.target.ca_file), "localhost"
        loop = asyncio.get_running_loop()
        try:
            _, connection = await loop.create_connection(
                lambda: Connection(self), _HOST, self.target.port, ssl=context, server_hostname=name
            )
        except OSError as error:
            self._not_connected(f"no connection: {error.strerror or error}")
            return
        self.count.connected += 1
        self._open.add(connection)
        self._employ(connection)

    def _not_connected(self, why: str) -> None:
        """Let the request fail that has waited longest."""
        while self._waiting:
            sent = self._waiting.popleft()
            if sent.text:
                self._unseat(sent)
                self._failed(why)
                self._fill_seats()
                return

    def _employ(self, connection: Connection) -> None:
        """Let a connection send what waits, or else wait itself."""
        while self._waiting:
            sent = self._waiting.popleft()
            if sent.text:
                connection.send(sent)
                return
        sent_next = self.when_idle()
        if sent_next is None and len(self._idle) < _MOST_IDLE:
            self._idle.append(connection)
        elif sent_next is None:
            self._open.discard(connection)
            connection.close()
        else:
            self._seat(sent_next)
            connection.send(sent_next)

    def _failed(self, what: str) -> None:
        self.count.failed[what] = self.count.failed.get(what, 0) + 1


@lru_cache
def _trusting(ca_file: str) -> ssl.SSLContext:
    """Return the settings of a client that trusts an authority."""
    return ssl.create_default_context(cafile=ca_file)
