"""The dashboard over HTTP: pages, their live data, their files, and the sign-in."""

from __future__ import annotations

import asyncio
import gzip
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import suppress
from dataclasses import replace
from functools import cache
from http import HTTPStatus
from typing import Final, TypeAlias

from aiohttp import web

from webhook import pages
from webhook.dashboard.readers import (
    LONGEST_TOKEN,
    Reader,
    Readers,
    SignIn,
    SignInError,
    UnavailableError,
    sharer,
)
from webhook.dashboard.routes import (
    PREFIX,
    SHOWN,
    ForbiddenError,
    MissingError,
    Render,
    pages_for,
)
from webhook.dashboard.source import ClusterSource
from webhook.fairness import CrowdedError, RenderLimiter, Shares

_POLL_SECONDS: Final = 0.25
_SHORTEST_SILENCE_SECONDS: Final = 1.0
_LONGEST_SILENCE_SECONDS: Final = 4.0
"""Ages and guesses of waits change without an event; and a write finds out who has gone."""

_LONGEST_SECONDS: Final = 600.0
"""Of a stream; then the browser connects again, and its reader is authorized again."""

_MOST_STREAMS: Final = 32  # shared by readers

_NONE: Final = -1  # a version of no cluster


class LiveUpdates:
    """Streams with the version of the cluster: when it has changed, at most once in a second."""

    def __init__(self, version: Callable[[], int]) -> None:
        self._version = version
        self._shares = Shares(_MOST_STREAMS)

    async def stream(self, request: web.Request, reader: Reader) -> web.StreamResponse:
        """Send events until the reader leaves, or for ten minutes."""
        who = sharer(reader.name)
        if not self._shares.has_room(who, 1):
            raise web.HTTPServiceUnavailable(text="too many readers at a time\n")
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        self._shares.take(who, 1)
        try:
            await response.prepare(request)
            with suppress(ConnectionResetError):  # the reader has left
                await self._send(response)
        finally:
            self._shares.take(who, -1)
        return response

    async def _send(self, response: web.StreamResponse) -> None:
        loop = asyncio.get_running_loop()
        # The page may be older than its stream: the first event comes whether or not there is news.
        sent, sent_at = _NONE, loop.time()
        until = sent_at + _LONGEST_SECONDS
        while loop.time() < until:
            await asyncio.sleep(_POLL_SECONDS)
            version, silence = self._version(), loop.time() - sent_at
            has_changed = version != sent and silence >= _SHORTEST_SILENCE_SECONDS
            if has_changed or silence >= _LONGEST_SILENCE_SECONDS:
                await response.write(b"data: %d\n\n" % version)
                sent, sent_at = version, loop.time()


_HEADERS: Final = {
    "Content-Security-Policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self';"
        " img-src 'self' data:; base-uri 'none'; form-action 'self'; frame-ancestors 'none'"
    ),
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Server": "stowplan",
}
_NO_STORE: Final = "no-store"
_FOR_EVER: Final = "public, max-age=31536000, immutable"  # names carry a digest
_SCHEME: Final = "Bearer "
_MOST_BODY_BYTES: Final = 2 * LONGEST_TOKEN  # of a form
_QUICK: Final = 6  # of gzip's levels: half the time of the highest, and as small within a percent
_NO_FRAME: Final = pages.Frame(cluster="", pages=())

_Handler: TypeAlias = Callable[[web.Request], Awaitable[web.StreamResponse]]


def build_dashboard(source: ClusterSource, readers: Readers) -> web.Application:
    """Application with the dashboard.

    Args:
        source: of its reports.
        readers: who may read them.
    """
    dashboard = _Dashboard(source, readers)
    app = web.Application(client_max_size=_MOST_BODY_BYTES, middlewares=[dashboard.explain])
    app.on_response_prepare.append(_set_headers)
    app.cleanup_ctx.append(_warmed_up)
    app.router.add_get("/", _to_prefix)
    app.router.add_get(PREFIX, _to_prefix)
    app.router.add_get(f"{PREFIX}/", dashboard.first_page)
    app.router.add_get(f"{PREFIX}/assets/{{name}}", dashboard.asset)
    app.router.add_get(f"{PREFIX}/events", dashboard.events)
    app.router.add_get(f"{PREFIX}/data/{{page}}", dashboard.data)
    app.router.add_post(f"{PREFIX}/sign-in", dashboard.sign_in)
    app.router.add_post(f"{PREFIX}/sign-out", dashboard.sign_out)
    app.router.add_get(f"{PREFIX}/{{page}}", dashboard.page)
    return app


class _Dashboard:
    """The handlers."""

    def __init__(self, source: ClusterSource, readers: Readers) -> None:
        self._source = source
        self._readers = readers
        self._live = LiveUpdates(source.version)
        self._limiter = RenderLimiter()

    async def first_page(self, request: web.Request) -> web.Response:
        reader = await self._reader(request)
        names = await pages_for(self._source, reader)
        response = _redirect(names[0])
        if self._readers.sign_in is SignIn.URL and "token" in request.query:
            _keep(request, response, request.query["token"])
        return response

    async def page(self, request: web.Request) -> web.Response:
        reader = await self._reader(request)
        frame = await self._frame(request, reader)

        async def prepare() -> Callable[[], str]:
            render = await self._show(request, reader)
            return lambda: pages.document(render(), frame)

        return _html(await self._limiter.render(sharer(reader.name), prepare))

    async def data(self, request: web.Request) -> web.Response:
        reader = await self._reader(request)

        async def prepare() -> Callable[[], bytes]:
            render = await self._show(request, reader)
            return lambda: pages.update(render())

        body = await self._limiter.render(sharer(reader.name), prepare)
        return _compressed(web.Response(body=body, content_type="application/json"))

    async def events(self, request: web.Request) -> web.StreamResponse:
        return await self._live.stream(request, await self._reader(request))

    async def asset(self, request: web.Request) -> web.Response:
        """Serve a file that is the same for everybody, signed in or not."""
        name = request.match_info["name"]
        if name not in pages.assets():
            raise MissingError("There is no such file.")
        found = await asyncio.to_thread(_compressed_asset, name)
        headers = {
            "Content-Type": found.content_type,
            "Content-Encoding": "gzip",
            "Cache-Control": _FOR_EVER,
        }
        return web.Response(body=found.body, headers=headers)

    async def sign_in(self, request: web.Request) -> web.Response:
        _require_same_site(request)
        form = await request.post()
        token = str(form.get("token", "")).strip()
        await self._readers.reader(token)
        response = _redirect("./")
        _keep(request, response, token)
        return response

    async def sign_out(self, request: web.Request) -> web.Response:
        _require_same_site(request)
        response = _redirect("./")
        response.del_cookie(_cookie_name(request), secure=request.secure, httponly=True)
        return response

    @web.middleware
    async def explain(self, request: web.Request, handler: _Handler) -> web.StreamResponse:
        """Answer what went wrong with a page that says what to do."""
        try:
            return await handler(request)
        except SignInError as error:
            return self._signed_out(request, str(error))
        except ForbiddenError as error:
            text = f"you need the right to {error}"
            return _message(HTTPStatus.FORBIDDEN, "Not permitted", text)
        except MissingError as error:
            frame = await self._frame_if_permitted(request)
            told = (f"{error} ", error.instead)
            return _message(HTTPStatus.NOT_FOUND, "Not found", told, frame)
        except UnavailableError as error:
            return _message(error.status, "Not now", str(error))
        except CrowdedError as error:
            return _message(HTTPStatus.SERVICE_UNAVAILABLE, "Not now", str(error))

    def _signed_out(self, request: web.Request, problem: str) -> web.Response:
        if self._readers.sign_in is SignIn.FORM:
            # Nobody is blamed who has not tried yet.
            shown = problem if _token_in(request) or request.method == "POST" else ""
            page = pages.sign_in_page(shown)
        else:
            page = pages.message_page("Sign in", problem)
        response = _html(pages.document(page, _NO_FRAME))
        response.set_status(HTTPStatus.UNAUTHORIZED)
        response.headers["WWW-Authenticate"] = "Bearer"
        return response

    async def _reader(self, request: web.Request) -> Reader:
        token = _token_in(request)
        if self._readers.sign_in is SignIn.URL:
            token = request.query.get("token", token)
        return await self._readers.reader(token)

    async def _show(self, request: web.Request, reader: Reader) -> Render:
        name = request.match_info["page"]
        show = SHOWN.get(name)
        if show is None:
            raise MissingError("There is no such page.")
        if missing := self._source.missing:
            return lambda: pages.starting_page(name, missing)
        return await show(self._source, reader, request.query)

    async def _frame_if_permitted(self, request: web.Request) -> pages.Frame:
        """Return the frame of a message: its navigation leads on."""
        try:
            return await self._frame(request, await self._reader(request))
        except (SignInError, UnavailableError):
            return _NO_FRAME

    async def _frame(self, request: web.Request, reader: Reader) -> pages.Frame:
        return pages.Frame(
            pages=await pages_for(self._source, reader),
            namespace=request.query.get("namespace", ""),
            cluster=self._source.name,
            is_live=self._source.is_live,
            user=reader.name,
        )


async def _warmed_up(app: web.Application) -> AsyncIterator[None]:  # noqa: ARG001 - of aiohttp
    """Load templates and files beside the start: the first reader should not wait for them."""
    loading = asyncio.create_task(asyncio.to_thread(_load))
    yield
    await loading


def _load() -> None:
    pages.document(pages.message_page("", ""), _NO_FRAME)
    for name in pages.assets():
        _compressed_asset(name)


async def _to_prefix(request: web.Request) -> web.Response:  # noqa: ARG001 - a handler
    return _redirect(f"{PREFIX[1:]}/")


async def _set_headers(request: web.Request, response: web.StreamResponse) -> None:  # noqa: ARG001 - a signal
    response.headers.update(_HEADERS)
    response.headers.setdefault("Cache-Control", _NO_STORE)


def _redirect(location: str) -> web.Response:
    """Return a redirection to a relative URL: a proxy may have the dashboard below another path."""
    return web.Response(status=HTTPStatus.SEE_OTHER, headers={"Location": location})


def _require_same_site(request: web.Request) -> None:
    """Refuse a form of another site, as far as a browser tells."""
    if request.headers.get("Sec-Fetch-Site", "same-origin") not in {"same-origin", "none"}:
        raise web.HTTPForbidden(text="the form is of another site\n")


def _token_in(request: web.Request) -> str:
    """Return the bearer token of a request, else that of its cookie, "" for none."""
    header = request.headers.get("Authorization", "")
    if header.startswith(_SCHEME):
        return header.removeprefix(_SCHEME).strip()
    return request.cookies.get(_cookie_name(request), "")


def _cookie_name(request: web.Request) -> str:
    """Return a name that is of one origin: else cookies go to all ports of a host."""
    return "__Host-stowplan" if request.secure else f"stowplan-{request.url.port}"


def _keep(request: web.Request, response: web.Response, token: str) -> None:
    """Let the browser keep a token until it is closed; no script can read it."""
    response.set_cookie(
        _cookie_name(request), token, path="/", secure=request.secure, httponly=True, samesite="Lax"
    )


def _message(
    status: HTTPStatus, title: str, text: pages.ui.Inline, frame: pages.Frame = _NO_FRAME
) -> web.Response:
    response = _html(pages.document(pages.message_page(title, text), frame))
    response.set_status(status)
    return response


def _html(text: str) -> web.Response:
    return _compressed(web.Response(text=text, content_type="text/html"))


def _compressed(response: web.Response) -> web.Response:
    response.enable_compression()
    return response


@cache  # of a handful of names
def _compressed_asset(name: str) -> pages.Asset:
    """Return a file as every browser takes it, a third as large."""
    asset = pages.assets()[name]
    return replace(asset, body=gzip.compress(asset.body, _QUICK))
