"""One address for several replicas, as a Service is: connections are spread, bytes pass through."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress

from tests.e2e.serving import LOCAL

_CHUNK = 65_536


class Front:
    """Passes each new connection on to the next target that takes it.

    A target that is not there is passed over; with none there, the caller is turned away at once.

    Attributes:
        targets: ports on this machine; may be changed at any time, for new connections.
        port: where it listens.
    """

    def __init__(self, targets: Sequence[int], to: str = LOCAL) -> None:
        self.targets = list(targets)
        self._to = to
        self.port = 0
        self._turn = 0
        self._carrying: set[asyncio.Task[None]] = set()

    async def accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Carry one connection until either side ends it."""
        task = asyncio.current_task()
        if task is None:
            raise AssertionError("connections are accepted by tasks")
        self._carrying.add(task)
        try:
            with suppress(OSError, asyncio.CancelledError):  # not of ours to judge: we only carry
                await self._carry(reader, writer)
        finally:
            self._carrying.discard(task)
            writer.transport.abort()

    async def end(self) -> None:
        """Break every connection."""
        for task in self._carrying:
            task.cancel()
        while self._carrying:
            await asyncio.gather(*self._carrying)

    async def _carry(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        target = await self._next()
        if target is None:
            return
        answers, questions = target
        ways = [
            asyncio.create_task(_copy(reader, questions)),
            asyncio.create_task(_copy(answers, writer)),
        ]
        try:
            await asyncio.wait(ways, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for way in ways:
                way.cancel()
            await asyncio.gather(*ways, return_exceptions=True)
            questions.transport.abort()

    async def _next(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter] | None:
        for _ in self.targets:
            self._turn += 1
            port = self.targets[self._turn % len(self.targets)]
            with suppress(OSError):
                return await asyncio.open_connection(self._to, port)
        return None


async def _copy(source: asyncio.StreamReader, target: asyncio.StreamWriter) -> None:
    while data := await source.read(_CHUNK):
        target.write(data)
        await target.drain()


@asynccontextmanager
async def fronting(
    targets: Sequence[int], *, address: str = LOCAL, to: str = LOCAL
) -> AsyncIterator[Front]:
    """Yield one address for some ports of another address, both of this machine."""
    front = Front(targets, to)
    server = await asyncio.start_server(front.accept, address, 0)
    front.port = server.sockets[0].getsockname()[1]
    try:
        yield front
    finally:
        server.close()
        await front.end()
