"""The HTTP applications: reviews, with probes; probes alone; metrics and debug pages."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Awaitable, Callable, Iterable
from typing import Protocol

import msgspec
from aiohttp import web

from engine.report import OutcomeReport
from webhook.admission.handler import ReviewHandler
from webhook.metrics import Metrics
from webhook.placement.explanations import Explanations
from webhook.serving.authorization import Authorize
from webhook.serving.client_names import AllowedClients
from webhook.serving.health import Health
from webhook.serving.held_queue import HeldQueueReporter
from webhook.serving.metrics_page import metrics_page

_LIMIT = re.compile("[0-9]{0,6}")


def build_app(
    *,
    handlers: Iterable[ReviewHandler],
    health: Health,
    max_body_bytes: int,
    clients: AllowedClients | None = None,
) -> web.Application:
    """Application for the API server, and for a kubelet that needs no client certificate.

    Args:
        handlers: of reviews.
        health: for the probes.
        max_body_bytes: largest body of a review.
        clients: who may send reviews; None for everybody.
    """
    app = build_probe_app(health, client_max_size=max_body_bytes)
    for handler in handlers:
        handle = clients.guard(handler.path, handler.handle) if clients else handler.handle
        app.router.add_post(f"/{handler.path}", handle)
    return app


def build_probe_app(health: Health, *, client_max_size: int = 1024) -> web.Application:
    """Application with probes alone."""

    async def livez(_: web.Request) -> web.Response:
        return web.Response(text="ok\n")

    async def readyz(_: web.Request) -> web.Response:
        return _json(health.report(), status=200 if health.ready() else 503)

    async def statusz(_: web.Request) -> web.Response:
        # For people and `stowplan doctor`: the API server's proxy keeps no body of a 503.
        return _json(health.report())

    async def set_headers(_: web.Request, response: web.StreamResponse) -> None:
        """Name the server; while draining, close connections, since callers would not retry."""
        response.headers["Server"] = "stowplan"
        if health.draining:
            response.headers["Connection"] = "close"
            response.force_close()

    app = web.Application(client_max_size=client_max_size)
    app.router.add_get("/livez", livez)
    app.router.add_get("/readyz", readyz)
    app.router.add_get("/statusz", statusz)
    app.on_response_prepare.append(set_headers)
    return app


def build_monitoring_app(
    *,
    metrics: Metrics,
    explanations: Explanations,
    queue: HeldQueueReporter | None,
    outcome: Callable[[], Awaitable[OutcomeReport]] | None,
    authorize: Authorize | None,
) -> web.Application:
    """Application for people and Prometheus.

    Args:
        metrics: for Prometheus.
        explanations: for people.
        queue: of held pods, for people; None where none is held.
        outcome: what became of decisions, for people; None where nobody judges it.
        authorize: who may read debug pages; None for nobody.
    """
    app = web.Application()
    app.router.add_get("/metrics", metrics_page(metrics.registry))
    if authorize is not None:
        app.router.add_get("/debug/decisions", _decisions_page(explanations, authorize))
        if queue is not None:
            app.router.add_get("/debug/queue", _page(queue.report, authorize))
        if outcome is not None:
            app.router.add_get("/debug/outcome", _outcome_page(outcome, authorize))
    return app


class _Contents(Protocol):
    """What a debug page shows."""

    def __call__(self, *, pod: str, limit: int | None) -> object:
        """Return it, of the pods whose key contains a text, at most so many of them."""


def _page(
    contents: _Contents, authorize: Authorize
) -> Callable[[web.Request], Awaitable[web.Response]]:
    """Return the handler of a debug page."""

    async def page(request: web.Request) -> web.Response:
        await authorize(request)
        pod, limit = _asked_for(request)
        return _json(contents(pod=pod, limit=limit))

    return page


def _decisions_page(
    explanations: Explanations, authorize: Authorize
) -> Callable[[web.Request], Awaitable[web.Response]]:
    async def page(request: web.Request) -> web.Response:
        await authorize(request)
        pod, limit = _asked_for(request)
        found = []
        for explanation in explanations.latest(pod=pod, limit=limit):
            found.append(explanation)
            await asyncio.sleep(0)  # reviews come in between
        return _json(found)

    return page


def _asked_for(request: web.Request) -> tuple[str, int | None]:
    """Return a part of the keys of pods, and the most of them, None for all.

    Raises:
        web.HTTPBadRequest: the limit is not a number.
    """
    limit = request.query.get("limit", "")
    if not _LIMIT.fullmatch(limit):
        raise web.HTTPBadRequest(text="`limit` is a number\n")
    return request.query.get("pod", ""), int(limit) if limit else None


def _outcome_page(
    outcome: Callable[[], Awaitable[OutcomeReport]], authorize: Authorize
) -> Callable[[web.Request], Awaitable[web.Response]]:
    async def page(request: web.Request) -> web.Response:
        await authorize(request)
        return _json(await outcome())

    return page


def _json(value: object, *, status: int = 200) -> web.Response:
    body = msgspec.json.format(msgspec.json.encode(value))
    return web.Response(body=body, status=status, content_type="application/json")
