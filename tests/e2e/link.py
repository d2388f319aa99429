"""The way of one replica to the API server, on which a test can hold things up."""

from __future__ import annotations

import asyncio
import json
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from http import HTTPStatus
from pathlib import Path

import aiohttp
from aiohttp import web

from tests.e2e.cluster import Json
from tests.e2e.control_plane import ControlPlane
from tests.e2e.serving import LOCAL, serving

Hook = Callable[[web.Request], Awaitable[None]]

_Piece = tuple[float, bytes]  # when it may go on

_LEFT_OUT = ("Host", "Transfer-Encoding", "Content-Length", "Content-Encoding", "Connection")


class Link:
    """Passes requests on to the API server as one of its users, and the answers back.

    Attributes:
        watch_delay_seconds: how much later than sent the events of a watch arrive; may only grow.
        open: closed, requests are taken and not answered; open watches go on.
        before: called with each request before it goes on.
        after: called with each request that is answered, before the answer goes back.
        kubeconfig: for whoever shall use it.
    """

    def __init__(self, session: aiohttp.ClientSession, url: str) -> None:
        self.watch_delay_seconds = 0.0
        self.open = asyncio.Event()
        self.open.set()
        self.before: Hook = _pass
        self.after: Hook = _pass
        self.kubeconfig = Path()
        self._session = session
        self._url = url
        self._carrying: set[asyncio.Task[object]] = set()

    async def carry(self, request: web.Request) -> web.StreamResponse:
        """Answer one request as the API server does."""
        task = asyncio.current_task()
        assert task is not None
        self._carrying.add(task)
        try:
            return await self._carry(request)
        finally:
            self._carrying.discard(task)

    async def end(self) -> None:
        """Give up what is still carried; its connections are released when this returns.

        The server lets go of the handlers of aborted connections without ending them.
        """
        carrying = list(self._carrying)
        for task in carrying:
            task.cancel()
        await asyncio.gather(*carrying, return_exceptions=True)

    async def _carry(self, request: web.Request) -> web.StreamResponse:
        await self.open.wait()
        await self.before(request)
        if request.transport is None:  # whoever asked has gone meanwhile
            return web.Response(status=HTTPStatus.SERVICE_UNAVAILABLE)
        headers = {name: value for name, value in request.headers.items() if name not in _LEFT_OUT}
        async with self._session.request(
            request.method,
            f"{self._url}{request.path_qs}",
            headers=headers,
            data=await request.read(),
        ) as answer:
            kept = {name: value for name, value in answer.headers.items() if name not in _LEFT_OUT}
            if "watch" not in request.query:
                body = await answer.read()
                await self.after(request)
                return web.Response(status=answer.status, headers=kept, body=body)
            response = web.StreamResponse(status=answer.status, headers=kept)
            await response.prepare(request)
            await self._stream(answer, response)
            return response

    async def _stream(self, answer: aiohttp.ClientResponse, response: web.StreamResponse) -> None:
        """Pass the events of a watch on, each in its time."""
        pieces: asyncio.Queue[_Piece | None] = asyncio.Queue()
        clock = asyncio.get_running_loop().time

        async def read() -> None:
            with suppress(aiohttp.ClientError):  # the watch was cut: so is what we pass on
                async for piece in answer.content.iter_any():
                    pieces.put_nowait((clock() + self.watch_delay_seconds, piece))
            pieces.put_nowait(None)

        reading = asyncio.create_task(read())
        try:
            with suppress(ConnectionResetError):  # whoever watched has gone
                while (next_one := await pieces.get()) is not None:
                    due, piece = next_one
                    await asyncio.sleep(max(0.0, due - clock()))
                    await response.write(piece)
        finally:
            reading.cancel()


async def _pass(_: web.Request) -> None:
    """Let a request go on."""


@asynccontextmanager
async def linked(control_plane: ControlPlane, kubeconfig: Path) -> AsyncIterator[Link]:
    """Yield a link that whoever uses it goes as the user of a kubeconfig."""
    content = _content(kubeconfig)
    user = content["users"][0]["user"]
    context = ssl.create_default_context(cafile=control_plane.authority.certificate)
    context.load_cert_chain(user["client-certificate"], user["client-key"])
    connector = aiohttp.TCPConnector(ssl=context, limit=0)
    endless = aiohttp.ClientTimeout(total=None)
    async with aiohttp.ClientSession(
        connector=connector, timeout=endless, auto_decompress=False
    ) as session:
        link = Link(session, control_plane.url)
        app = web.Application(client_max_size=2**24)
        app.router.add_route("*", "/{path:.*}", link.carry)
        try:
            async with serving(app, control_plane.authority) as port:
                content["clusters"][0]["cluster"]["server"] = f"https://{LOCAL}:{port}"
                link.kubeconfig = kubeconfig.with_suffix(".linked")
                link.kubeconfig.write_text(json.dumps(content), encoding="utf-8")
                yield link
        finally:
            await link.end()


def _content(kubeconfig: Path) -> Json:
    """Return what a kubeconfig of the control plane says."""
    content: Json = json.loads(kubeconfig.read_text(encoding="utf-8"))
    return content
