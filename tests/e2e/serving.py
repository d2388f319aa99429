"""Small HTTPS servers of the tests, with a certificate the cluster trusts."""

from __future__ import annotations

import ssl
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

from aiohttp import web

from tests.e2e.certificates import Authority

LOCAL = "127.0.0.1"


@asynccontextmanager
async def serving(
    app: web.Application, authority: Authority, hosts: Sequence[str] = (LOCAL,)
) -> AsyncIterator[int]:
    """Serve an application on this machine, under some names; yield its port."""
    pair = authority.issue("server", hosts=hosts)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(pair.certificate, pair.key)
    runner = web.AppRunner(app, access_log=None, shutdown_timeout=1)
    await runner.setup()
    try:
        await web.TCPSite(runner, LOCAL, 0, ssl_context=context).start()
        address: tuple[str, int] = runner.addresses[0]
        yield address[1]
    finally:
        for connection in runner.server.connections if runner.server else ():
            if connection.transport is not None:
                connection.transport.abort()  # the API server keeps its connections for long
        await runner.cleanup()
