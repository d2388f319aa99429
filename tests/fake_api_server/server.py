"""The server as a test holds it: direct writes, waiting, faults, and a log of requests."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import NamedTuple

from aiohttp import web

from tests.fake_api_server.answers import Answers, Play
from tests.fake_api_server.faults import Faults
from tests.fake_api_server.kubeconfig import tls_pair, write_kubeconfig
from tests.fake_api_server.lists import Lists
from tests.fake_api_server.resources import RESOURCES, Key, Resource, Target, resource_named
from tests.fake_api_server.statuses import ApiFault
from tests.fake_api_server.store import Object, Store, complete, parts_of
from tests.fake_api_server.watches import Watch
from tests.fake_api_server.writes import Writer
from tests.patience import PATIENCE_SECONDS

_HISTORY_LIMIT = 50_000  # changes per resource
_SHUTDOWN_SECONDS = 0.01  # aiohttp takes 0 for ever
_WITHOUT = ("elasticquotas.scheduling.sigs.k8s.io",)


class Request(NamedTuple):
    """A request that arrived, whatever was answered."""

    method: str
    path: str
    query: dict[str, str]


class FakeApiServer:
    """A running server. Writes made here are seen by clients at once, as any other writer's.

    Attributes:
        url: where it listens.
        faults: plain settings, such as `faults.gone_in_stream`.
        requests: all that arrived, in order.
        ca_pem: the authority to trust; empty without TLS.
    """

    def __init__(self, *, without: Iterable[str], history_limit: int) -> None:
        absent = {resource_named(name) for name in without}
        self.url = ""
        self.ca_pem = b""
        self.faults = Faults()
        self.requests: list[Request] = []
        self._store = Store((r for r in RESOURCES if r not in absent), history_limit)
        self._writer = Writer(self._store)
        self._lists = Lists(self._store)
        self._answers = Answers(self._store, self._writer, self._lists, self.faults, self._notify)
        self._happened = asyncio.Event()

    # Objects

    def create(self, obj: Object) -> Object:
        """Store an object with the status, uid and creationTimestamp it brings; return it stored.

        Raises:
            ApiFault: 409 it exists, 422 it has no name or no namespace.
        """
        return self._writer.create(self._resource_of(obj), obj)

    def put_pod(self, text: bytes) -> None:
        """Store a pod of any size as it is, in place of one of its name, at next to no cost."""
        obj = parts_of(text)
        key = Key(obj["metadata"]["namespace"], obj["metadata"]["name"])
        self._store.put(resource_named("pods", self._store.resources), key, obj)

    def remove_pod(self, namespace: str, name: str) -> None:
        """Delete a pod of any size that exists, at next to no cost."""
        pods = resource_named("pods", self._store.resources)
        self._store.remove(pods, Key(namespace, name))

    def replace(self, obj: Object) -> Object:
        """Replace an object whole, status included; a resourceVersion in it must be the stored one.

        Raises:
            ApiFault: 404, 409.
        """
        return self._writer.overwrite(self._resource_of(obj), obj)

    def delete(self, resource: str, namespace: str, name: str) -> None:
        """Delete an object; `namespace` is empty for a cluster's own.

        Raises:
            ApiFault: 404.
        """
        target = Target(resource_named(resource, self._store.resources), namespace, name)
        self._writer.delete(target, {})

    def objects(self, resource: str) -> dict[tuple[str, str], Object]:
        """Return copies of all objects of a resource by namespace and name.

        Args:
            resource: its plural or kind; with the group where that is ambiguous
                (`nodes.metrics.k8s.io`).
        """
        found = resource_named(resource, self._store.resources)
        stored = self._store.of(found).objects.items()
        return {(key.namespace, key.name): complete(found, body) for key, body in stored}

    def read(self, resource: str, namespace: str, name: str) -> Object:
        """Return a copy of one object; `namespace` is empty for a cluster's own.

        Raises:
            LookupError: there is none.
        """
        found = resource_named(resource, self._store.resources)
        stored = self._store.read(found, Key(namespace, name))
        if stored is None:
            raise LookupError(f"there is no `{name}` among {resource}")
        return stored

    @property
    def version(self) -> int:
        """The resourceVersion of the last write."""
        return self._store.version

    def install(self, resource: str) -> None:
        """Add an optional API, by plural, kind, or full name."""
        self._store.install(resource_named(resource))

    def uninstall(self, resource: str) -> None:
        """Remove an API with its objects; its watches end."""
        found = resource_named(resource, self._store.resources)
        for watch in self._watches_of(found.full_name):
            watch.end()
        self._store.uninstall(found)

    def play(self, method: str, path: str, answer: Play) -> None:
        """Answer such requests by the test: for what keeps nothing, as reviews and proxies."""
        self._answers.played[method, path] = answer

    # Waiting

    async def until(self, condition: Callable[[], bool]) -> None:
        """Wait for a condition, looked at when a request arrives or ends and a watch opens or ends.

        Raises:
            TimeoutError: it does not come true in time.
        """
        async with asyncio.timeout(PATIENCE_SECONDS):
            while not condition():
                await self._happened.wait()

    def watches(self, resource: str = "") -> int:
        """Return how many watches are open, of one resource or of all."""
        return len(self._watches_of(resource))

    # Faults

    def compact(self) -> None:
        """Drop the history: watches and pages from older versions are told 410."""
        self._store.compact()

    def expire_continue(self) -> None:
        """Refuse all `continue` tokens given out so far with 410."""
        self._lists.expire_tokens()

    def pause(self) -> None:
        """Answer nothing and keep streams silent; what happens meanwhile is not lost."""
        self.faults.running.clear()

    def resume(self) -> None:
        """End a pause."""
        self.faults.running.set()

    def fail_next(
        self,
        count: int,
        status: int,
        *,
        headers: Mapping[str, str] | None = None,
        method: str = "",
        path_prefix: str = "",
        message: str = "failed by the test",
    ) -> None:
        """Refuse the next requests of a method and path (empty: any); status 0 cuts the connection.

        The method of a watch is WATCH here. A 429 gets `Retry-After: 1` unless `headers` say
        otherwise.
        """
        self.faults.fail(count, status, headers or {}, method, path_prefix, message)

    def delay(self, seconds: float, path_prefix: str = "") -> None:
        """Answer such requests later; 0 ends it."""
        self.faults.delay(seconds, path_prefix)

    def recover(self) -> None:
        """End every failure, delay and pause."""
        self.faults.recover()

    def cut_watches(self, resource: str = "", *, mid_event: bool = False) -> None:
        """Break the connections of watches, of one resource or of all.

        Args:
            resource: whose; empty means all.
            mid_event: half a line arrives before the break.
        """
        for watch in self._watches_of(resource):
            if mid_event:
                watch.tear()
            else:
                self._answers.watches[watch].abort()

    def cut_next_bodies(self, count: int = 1) -> None:
        """Break off the next answers that are neither watches nor refusals halfway."""
        self.faults.bodies_to_cut = count

    def end_watches(self, resource: str = "") -> None:
        """End watches in good order, as their timeoutSeconds would: a bookmark, then the end."""
        for watch in self._watches_of(resource):
            watch.finish()

    def send_bookmarks(self, resource: str = "") -> None:
        """Send a bookmark of the newest version to every watch that accepts one."""
        for watch in self._watches_of(resource):
            watch.bookmark()

    def send_in_stream_error(self, status: int, resource: str = "") -> None:
        """Send watches an ERROR event with a Status of that code, and end them."""
        for watch in self._watches_of(resource):
            watch.fail(ApiFault(status, "failed by the test"))

    # Ways in

    @property
    def token(self) -> str | None:
        """The bearer token clients must show, or else get 401; None lets everyone in."""
        return self.faults.token

    @token.setter
    def token(self, token: str | None) -> None:
        self.faults.token = token

    @property
    def refuse_watch_list(self) -> int:
        """The status watch lists are refused with, as older servers do; 0 serves them."""
        return self.faults.refuse_watch_list

    @refuse_watch_list.setter
    def refuse_watch_list(self, status: int) -> None:
        self.faults.refuse_watch_list = 422 if status is True else int(status)

    def kubeconfig(self, directory: Path, *, token_file: Path | None = None) -> Path:
        """Write a kubeconfig and return its path; its user shows `token`, or that of a file."""
        path = directory / "kubeconfig"
        token = self.token or "a-token"
        write_kubeconfig(path, url=self.url, token=token, ca_pem=self.ca_pem, token_file=token_file)
        return path

    async def answer(self, request: web.Request) -> web.StreamResponse:
        """Log a request and answer it."""
        self.requests.append(Request(request.method, request.path, dict(request.query)))
        self._notify()
        try:
            return await self._answers.answer(request)
        finally:
            self._notify()

    def _notify(self) -> None:
        self._happened.set()
        self._happened = asyncio.Event()

    def _resource_of(self, obj: Object) -> Resource:
        for resource in self._store.resources:
            if (resource.api_version, resource.kind) == (obj["apiVersion"], obj["kind"]):
                return resource
        raise LookupError(f"`{obj['kind']}` of `{obj['apiVersion']}` is not installed")

    def _watches_of(self, name: str) -> list[Watch]:
        if not name:
            return list(self._answers.watches)
        resource = resource_named(name, self._store.resources)
        return [watch for watch in self._answers.watches if watch.target.resource == resource]


@asynccontextmanager
async def fake_api_server(
    *, tls: bool = False, without: Iterable[str] = _WITHOUT, history_limit: int = _HISTORY_LIMIT
) -> AsyncIterator[FakeApiServer]:
    """Run a server on a free port of the loopback address.

    Args:
        tls: serve https, with a pair of its own.
        without: APIs that are absent at first, by plural, kind, or full name.
        history_limit: so many changes are remembered per resource.
    """
    server = FakeApiServer(without=without, history_limit=history_limit)
    context = None
    if tls:
        context, server.ca_pem = tls_pair()
    app = web.Application(client_max_size=64 * 1024 * 1024)
    app.router.add_route("*", "/{path:.*}", server.answer)
    runner = web.AppRunner(
        app, handler_cancellation=True, access_log=None, shutdown_timeout=_SHUTDOWN_SECONDS
    )
    await runner.setup()
    try:
        site = web.TCPSite(runner, "127.0.0.1", 0, ssl_context=context)
        await site.start()
        host, port = runner.addresses[0][:2]
        server.url = f"{'https' if tls else 'http'}://{host}:{port}"
        yield server
    finally:
        server.recover()
        server.end_watches()
        await runner.cleanup()
