"""HTTP: from a request to what the store, the lists and the watches make of it."""

from __future__ import annotations

import asyncio
import gzip
from collections.abc import Callable
from typing import Any

import msgspec
import yaml
from aiohttp import web

from tests.fake_api_server.discovery import discovered
from tests.fake_api_server.evictions import end_pod, evict
from tests.fake_api_server.faults import CUT_CONNECTION, Faults
from tests.fake_api_server.lists import Lists
from tests.fake_api_server.resources import Target, target_of
from tests.fake_api_server.statuses import ApiFault
from tests.fake_api_server.store import Object, Store, complete_json
from tests.fake_api_server.watches import Watch, says_yes
from tests.fake_api_server.writes import APPLY_PATCH, Writer

_COMPRESSED_FROM = 128 * 1024  # bytes; smaller answers are never compressed
_JSON = "application/json"

Play = Callable[[Any], object]
"""Answers a request from its body; may raise an `ApiFault`."""


class Answers:
    """Answers requests; `watches` holds the open streams and the connections they go out on."""

    def __init__(
        self, store: Store, writer: Writer, lists: Lists, faults: Faults, notify: Callable[[], None]
    ) -> None:
        self.watches: dict[Watch, asyncio.Transport] = {}
        self.played: dict[tuple[str, str], Play] = {}
        self._store = store
        self._writer = writer
        self._lists = lists
        self._faults = faults
        self._notify = notify

    async def answer(self, request: web.Request) -> web.StreamResponse:
        """Answer one request, whatever it asks for."""
        try:
            await self._faults.before_answer(
                "WATCH" if _watches(request) else request.method,
                request.path,
                request.headers.get("Authorization", ""),
            )
            play = self.played.get((request.method, request.path))
            if play is not None:
                answer = play(_decoded(await request.read()))
                return await self._send(request, 200, msgspec.json.encode(answer))
            target = target_of(request.path, self._store.resources)
            if target is None:
                return self._about_itself(request)
            if _watches(request):
                return await self._watch(request, target)
            status, body = await self._result(request, target)
            return await self._send(request, status, body)
        except ApiFault as fault:
            if fault.code == CUT_CONNECTION:
                _transport(request).abort()
            body = msgspec.json.encode(fault.body)
            return web.Response(
                status=fault.code or 500, body=body, content_type=_JSON, headers=fault.headers
            )

    def _about_itself(self, request: web.Request) -> web.Response:
        if request.path in {"/healthz", "/livez", "/readyz"}:
            return web.Response(text="ok")
        document = discovered(request.path, self._store.resources)
        if document is None:
            return web.Response(status=404, text="404 page not found\n")
        return web.Response(body=msgspec.json.encode(document), content_type=_JSON)

    async def _result(self, request: web.Request, target: Target) -> tuple[int, bytes]:
        """Return the status and body of anything but a watch."""
        method = request.method
        if method == "GET" and target.name:
            body = self._store.of(target.resource).objects.get(target.key)
            if body is None:
                raise target.missing()
            return 200, complete_json(target.resource, body)
        if method == "GET":
            return 200, self._lists.page(target, request.query)
        allowed = {"PUT", "PATCH", "DELETE"} if target.name else {"POST"}
        if target.subresource in target.resource.actions:
            allowed = {"POST"}
        placed = bool(target.namespace) is target.resource.namespaced
        if method not in allowed or not placed or target.resource.read_only:
            raise ApiFault(405, "the server does not allow this method on the requested resource")
        status, obj = await self._write(request, target)
        return status, msgspec.json.encode(obj)

    async def _write(self, request: web.Request, target: Target) -> tuple[int, Object]:
        content = await request.read()
        dry_run = request.query.get("dryRun") == "All"
        if request.content_type == APPLY_PATCH:
            if not request.query.get("fieldManager"):
                raise ApiFault(400, "fieldManager is required for apply patch")
            body = _from_yaml(content)
        else:
            body = _decoded(content)
        if target.subresource == "eviction":
            return 201, evict(self._store, self._writer, target, body, dry_run=dry_run)
        if request.method == "POST":
            return 201, self._writer.create_sent(target, body, dry_run=dry_run)
        if request.method == "PUT":
            return 200, self._writer.replace(target, body, dry_run=dry_run)
        if request.method == "DELETE" and content:  # a real one reads no query then
            dry_run = isinstance(body, dict) and body.get("dryRun") == ["All"]
        if request.method == "DELETE" and target.resource.plural == "pods":
            return 200, end_pod(self._store, self._writer, target, body, dry_run=dry_run)
        if request.method == "DELETE":
            return 200, self._writer.delete(target, body, dry_run=dry_run)
        return 200, self._writer.patch(target, body, request.content_type, dry_run=dry_run)

    async def _send(self, request: web.Request, status: int, body: bytes) -> web.StreamResponse:
        headers = {"Content-Type": _JSON}
        accepted = request.headers.get("Accept-Encoding", "")
        if "gzip" in accepted and len(body) >= _COMPRESSED_FROM:
            headers["Content-Encoding"] = "gzip"
            body = gzip.compress(body, 1)
        if self._faults.takes_body_cut():
            response = web.StreamResponse(
                status=status, headers={**headers, "Content-Length": str(len(body))}
            )
            await response.prepare(request)
            await response.write(body[: len(body) // 2])
            _transport(request).close()  # flushes what was written; `abort` would drop it
            return response
        return web.Response(status=status, body=body, headers=headers)

    async def _watch(self, request: web.Request, target: Target) -> web.StreamResponse:
        if target.resource.read_only:
            raise ApiFault(405, "the server does not allow this method on the requested resource")
        query = request.query
        if says_yes(query, "sendInitialEvents") and self._faults.refuse_watch_list:
            raise ApiFault(self._faults.refuse_watch_list, "sendInitialEvents is forbidden")
        marks_end = not self._faults.unmarked_watch_list
        try:
            watch = Watch(self._store, target, query, marks_end=marks_end)
        except ApiFault as fault:
            if fault.code != 410 or not self._faults.gone_in_stream:
                raise
            event = {"type": "ERROR", "object": fault.body}
            return await self._send(request, 200, msgspec.json.encode(event) + b"\n")
        self.watches[watch] = _transport(request)
        try:
            return await self._stream(request, watch)
        finally:
            watch.end()
            del self.watches[watch]
            self._notify()

    async def _stream(self, request: web.Request, watch: Watch) -> web.StreamResponse:
        response = web.StreamResponse(headers={"Content-Type": _JSON})
        await response.prepare(request)
        self._notify()
        async for frame in watch.frames():
            await self._faults.running.wait()
            await response.write(frame)
        if watch.torn:
            _transport(request).close()
        return response


def _watches(request: web.Request) -> bool:
    return request.method == "GET" and says_yes(request.query, "watch")


def _decoded(content: bytes) -> object:
    try:
        return msgspec.json.decode(content or b"{}", type=object)
    except msgspec.DecodeError as malformed:
        raise ApiFault(400, f"the body is not JSON: {malformed}") from malformed


def _from_yaml(content: bytes) -> object:
    try:
        return yaml.safe_load(content)
    except yaml.YAMLError as malformed:
        raise ApiFault(400, f"the body is not YAML: {malformed}") from malformed


def _transport(request: web.Request) -> asyncio.Transport:
    if request.transport is None:
        raise ConnectionResetError("the client has gone")
    return request.transport
