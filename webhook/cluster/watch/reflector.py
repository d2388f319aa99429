"""List and watch of one kind of objects, for ever: what the API server holds, a sink holds.

A list is streamed where the API server can (it is a watch that begins with what there is), and
read in pages where it cannot. Whatever goes wrong, what is known is kept and served; what a new
list does not show is forgotten at its end. Source: kubernetes.io, "Kubernetes API Concepts".
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any, TypeVar

import msgspec

from engine.model.api import version_number
from webhook.cluster.client.backoff import Backoff
from webhook.cluster.client.connection import NO_CONTACT, ApiError, Connection, Query
from webhook.cluster.client.envelopes import event_of, meta_of, page_of, status_of
from webhook.cluster.decode_errors import UNREADABLE, decode_errors
from webhook.cluster.files.json_objects import JsonObject
from webhook.cluster.watch.source_status import SourceStatus
from webhook.cluster.watch.timing import USUAL, Clock, ReflectorConfig
from webhook.cluster.watch.watched_kinds import Watched

_T = TypeVar("_T")

_YIELD_EVERY = 100  # objects, some 3 ms: reviews must not wait for a list
_MOST_REPORTED = 1_000
_STREAM_A_LIST: Query = (("sendInitialEvents", "true"), ("resourceVersionMatch", "NotOlderThan"))
_CANNOT_STREAM = (HTTPStatus.BAD_REQUEST, HTTPStatus.UNPROCESSABLE_ENTITY)
_WHAT_FAILED = {
    NO_CONTACT: "no contact with the API server",
    HTTPStatus.UNAUTHORIZED: "the API server does not accept our credentials",
    HTTPStatus.FORBIDDEN: "we lack the permission to list and watch them",
}

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Sink:
    """Where the objects of a kind go.

    Attributes:
        wire: what they are decoded as.
        take: adds or replaces one; raises `ValueError` if it cannot be used.
        forget: by namespace, empty for none, and name.
        key: returns the string to keep for `namespace/name`: where the sink keeps an equal one,
            that.
    """

    wire: type[msgspec.Struct]
    take: Callable[[Any], None]
    forget: Callable[[str, str], None]
    key: Callable[[str], str] = str


class Reflector:
    """Keeps a sink equal to what the API server holds of one kind.

    Args:
        connection: to the API server.
        watched: what to list and watch.
        sink: where objects go.
        clock: what time is.
        pace: how long to wait for what.

    Attributes:
        status: how well it hears.
    """

    def __init__(
        self,
        connection: Connection,
        watched: Watched,
        sink: Sink,
        clock: Clock,
        pace: ReflectorConfig = USUAL,
    ) -> None:
        self.status = SourceStatus(
            name=watched.name, domain=watched.domain, required=watched.required
        )
        self._connection = connection
        self._watched = watched
        self._sink = sink
        self._clock = clock
        self._pace = pace
        self._backoff = Backoff(pace.first_retry_seconds, pace.longest_retry_seconds, clock.jitter)
        self._decode = msgspec.json.Decoder(sink.wire).decode
        self._streams_lists = True
        self._was_too_old = False  # as the last failure said
        self._version = ""  # how far we have heard; empty where only a list can tell
        self._known: set[str] = set()  # `namespace/name`
        self._unseen: set[str] = set()  # known, but not shown yet by the list that is being read
        self._reported: set[str] = set()  # as unreadable
        self._taken = 0

    async def run(self) -> None:
        """List, watch, and begin again where needed; ends only by being cancelled."""
        self._version = ""
        while True:
            try:
                if self._version:
                    await self._watch()
                elif self._streams_lists:
                    await self._list_by_stream()
                else:
                    await self._list_in_pages()
            except ApiError as error:
                await self._clock.sleep(await self._failed(error))

    # Lists.

    async def _list_by_stream(self) -> None:
        """Read a list at the beginning of a watch, and go on with the watch."""
        self._begin_list()
        try:
            async with asyncio.timeout(self._pace.streamed_list_seconds) as deadline:
                await self._watch(_STREAM_A_LIST, listed=lambda: deadline.reschedule(None))
        except TimeoutError:
            self._stream_no_more("the end of the initial events did not come in time")
        except ApiError as error:
            if self._version or error.status not in _CANNOT_STREAM:
                raise
            self._stream_no_more(error.message)

    def _stream_no_more(self, why: str) -> None:
        _log.info("%s will be listed in pages: %s", self._watched.name, why)
        self._streams_lists = False

    async def _list_in_pages(self) -> None:
        self._begin_list()
        first = [("limit", str(self._pace.page_size)), *self._selection()]
        query = first
        while True:
            page = _decoded(page_of, await self._connection.get(self._watched.path, query))
            self._heard()
            for raw in page.items or ():
                self._take(raw)
                await self._give_way()
            if not page.metadata.token:
                await self._end_list(page.metadata.resource_version)
                return
            query = [*first, ("continue", page.metadata.token)]

    def _begin_list(self) -> None:
        self._unseen = self._known.copy()

    async def _end_list(self, version: str) -> None:
        """Forget what the list did not show; from here on changes are watched."""
        while self._unseen:
            self._forget(self._unseen.pop())
            await self._give_way()
        self.status.relists += self.status.synced
        self.status.synced = True
        self.status.version = version_number(version)
        self._version = version
        _log.info("%s: %d listed", self._watched.name, len(self._known))

    # Watches.

    async def _watch(self, initial: Query = (), listed: Callable[[], None] = lambda: None) -> None:
        """Apply what happens until the API server ends the watch.

        Args:
            initial: what asks for a list first; without it, the watch goes on from where we are.
            listed: called when that list has ended.
        """
        last = None
        watch = self._connection.watch(
            self._watched.path,
            self._watch_query(initial),
            read_timeout_seconds=self._pace.silence_seconds,
        )
        try:
            async with watch as lines:
                self._heard()
                async for line in lines:
                    event = _decoded(event_of, line)
                    if event.type == "ERROR":
                        raise self._refused(event.object)
                    self._heard()
                    last = event.object
                    if event.type != "BOOKMARK":
                        self._apply(event.type, event.object)
                        await self._give_way()
                    elif not self._version and meta_of(last).ends_initial_events:
                        await self._end_list(meta_of(last).resource_version)
                        listed()
        finally:
            # Initial events come in no order; after them, the last object has the newest version.
            if self._version and last is not None:
                self._version = meta_of(last).resource_version or self._version
        if last is None:
            raise ApiError(NO_CONTACT, "", "a watch ended before it said anything")

    def _watch_query(self, initial: Query) -> Query:
        seconds = int(self._pace.watch_seconds * (1 + self._clock.jitter()))
        return [
            ("watch", "true"),
            ("allowWatchBookmarks", "true"),
            ("timeoutSeconds", str(seconds)),
            *self._selection(),
            *(initial or [("resourceVersion", self._version)]),
        ]

    def _selection(self) -> Query:
        selector = self._watched.field_selector
        return [("fieldSelector", selector)] if selector else []

    def _apply(self, kind: str, raw: msgspec.Raw) -> None:
        if kind == "DELETED":
            meta = meta_of(raw)
            self._forget(meta.key)
            version = meta.resource_version
        else:
            version = self._take(raw)
        if self._version:
            self.status.version = version_number(version) or self.status.version
            self.status.events += 1
            self._backoff.reset()

    def _refused(self, raw: msgspec.Raw) -> ApiError:
        """Return what an ERROR says; going on from where we are would most likely repeat it."""
        said = _decoded(status_of, raw)
        if said.code != HTTPStatus.TOO_MANY_REQUESTS:
            self._version = ""
        return ApiError(said.code, said.reason, said.message, said.retry_after_seconds)

    # Objects.

    def _take(self, raw: msgspec.Raw) -> str:
        """Put an object into the sink; one that cannot be read leaves there what was known.

        Returns its resourceVersion.
        """
        try:
            wire: Any = self._decode(raw)
            self._sink.take(wire)
            key = f"{wire.metadata.namespace}/{wire.metadata.name}"
            version: str = wire.metadata.resource_version
        except UNREADABLE as error:
            meta = meta_of(raw)
            key, version = meta.key, meta.resource_version
            self._report(key, raw, error)
        if key not in self._known:
            self._known.add(self._sink.key(key))
        self._unseen.discard(key)
        self.status.objects = len(self._known)
        return version

    def _forget(self, key: str) -> None:
        namespace, _, name = key.partition("/")
        self._sink.forget(namespace, name)
        self._known.discard(key)
        self._unseen.discard(key)
        self.status.objects = len(self._known)

    def _report(self, key: str, raw: msgspec.Raw, error: ValueError | RecursionError) -> None:
        """Say what is wrong with an object, once."""
        self.status.skipped += 1
        if key in self._reported or len(self._reported) >= _MOST_REPORTED:
            return
        self._reported.add(key)
        watched = self._watched
        found = JsonObject(watched.name, (), watched.group, watched.kind, len(raw), raw)
        for problem in decode_errors(found, self._sink.wire, error):
            _log.warning("left out: %s", problem)

    async def _give_way(self) -> None:
        """Let others run now and then."""
        self._taken += 1
        if self._taken % _YIELD_EVERY == 0:
            await asyncio.sleep(0)

    # How it goes.

    def _heard(self) -> None:
        status = self.status
        status.last_contact = self._clock.now()
        status.present = True
        if status.last_error:
            _log.info("%s: heard again", status.name)
            status.last_error = ""

    async def _failed(self, error: ApiError) -> float:
        """Take note of a failure; return how long to wait before the next attempt."""
        if error.status == HTTPStatus.NOT_FOUND and not self._watched.required:
            await self._is_absent()
            return self._pace.look_again_seconds
        too_old = _is_too_old(error)
        if too_old:
            self._version = ""
            if not self._was_too_old:
                self._backoff.reset()  # an outage is over; what was missed shall not wait longer
        self._was_too_old = too_old
        what = _WHAT_FAILED.get(error.status)
        message = f"{what}: {error.message}" if what else error.message
        if message != self.status.last_error:
            _log.warning("%s: %s", self._watched.name, message)
        self.status.last_error = message
        return self._backoff.next(error.retry_after_seconds)

    async def _is_absent(self) -> None:
        """Forget everything: there is no such API, at least not now."""
        status = self.status
        if status.present or status.last_contact is None:
            _log.info("%s: no such API for now", self._watched.name)
        for key in list(self._known):
            self._forget(key)
            await self._give_way()
        self._version = ""
        self._backoff.reset()
        status.present = status.synced = False
        status.last_contact = self._clock.now()
        status.last_error = ""


def _is_too_old(error: ApiError) -> bool:
    """Whether only a new list can help, for the API server does not know the version we are at.

    It has forgotten it (410), or it was restored from a backup and will not reach it (504 with a
    reason, which no proxy gives), or it does not understand it (400).
    """
    never_reached = error.status == HTTPStatus.GATEWAY_TIMEOUT and error.reason == "Timeout"
    return never_reached or error.status in (HTTPStatus.GONE, HTTPStatus.BAD_REQUEST)


def _decoded(decode: Callable[[bytes | msgspec.Raw], _T], data: bytes | msgspec.Raw) -> _T:
    """Return what surrounds objects; where it cannot be read, nothing that follows can."""
    try:
        return decode(data)
    except UNREADABLE as error:
        raise ApiError(NO_CONTACT, "", f"an answer that cannot be read: {error}") from error
