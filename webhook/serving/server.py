"""A server that listens: its addresses, and its end without losing a review."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass
from functools import partial
from ssl import SSLContext

from aiohttp import web

from engine.errors import Diagnostic
from engine.model.count_text import counted
from webhook.background import in_background
from webhook.cluster import Cluster
from webhook.serving.acceptor import EVERY_ADDRESS, Acceptor, ReviewQueue, listening_sockets
from webhook.serving.connections import Connection, Connections
from webhook.serving.health import Health
from webhook.settings import SettingsError

ANY_ADDRESS = frozenset({"0.0.0.0", EVERY_ADDRESS})  # noqa: S104 - recognised, not bound
_DRAIN_POLL_SECONDS = 0.05
_QUIET_SECONDS = 0.5  # without connections: a handshake may be under way, which nothing shows
_MOST_CONNECTIONS = 128  # of people, Prometheus and probes
_SHUTDOWN_SECONDS = 1.0

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class RunningServer:
    """A webhook that listens.

    Attributes:
        paths: of reviews, without a slash.
        url: of reviews; of probes, too, for those who may connect.
        probe_url: of probes.
        metrics_url: of metrics and debug pages.
        dashboard_url: of the dashboard; "" for none.
        ca_pem: authority that callers must trust; empty with a given certificate.
        health: readiness and state.
        cluster: the cluster that reviews are decided on.
        reviews: the HTTP server behind `url`.
        hand_over: ends the leadership of this process, so that another one need not wait for it.
        warm_up: fills the caches of the policies in force, once the cluster is synced.
    """

    url: str
    paths: tuple[str, ...]
    probe_url: str
    metrics_url: str
    dashboard_url: str
    ca_pem: bytes
    health: Health
    cluster: Cluster
    reviews: web.Server
    hand_over: Callable[[], Awaitable[None]]
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
        """Hand over, become not ready, and serve on until all connections are closed or time is up.

        Args:
            seconds: longest wait for open connections, after the delay.
            delay_seconds: time to serve on in any case: even without open connections, callers that
                have not noticed the termination yet may still connect.
        """
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
    """Serve an application until the stack unwinds; returns its server and its local URL.

    Args:
        stack: unwinds at the end.
        app: the application.
        host: address to listen on.
        port: port to listen on; 0 takes a free one.
        tls: None for plain HTTP.
        connections: the limits of its connections; those of a small listener if not given.
        turns: of the reviews that come by its connections.

    Raises:
        SettingsError: the port cannot be listened on.
    """
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
