"""List and watch of one kind, for ever: an applier follows what the API server holds.

A list is streamed where the API server can (a watch that begins with the existing objects), and
read in pages elsewhere. Through any failure the known objects stay; a new list deletes at its end
those that it did not show. No Python client does this for raw bytes: theirs decode every object
into a model, and give up where a list or a watch fails.
Source: kubernetes.io, "Kubernetes API Concepts".
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import partial
from http import HTTPStatus
from typing import Any, Final, TypeVar

import msgspec

from engine.model.api import version_number
from engine.model.caches import PartitionedDict
from webhook.background import one_at_a_time
from webhook.cluster.client.connection import NO_CONTACT, ApiError, Connection, Query
from webhook.cluster.client.envelopes import event_of, meta_of, page_of, status_of
from webhook.cluster.object_file import JsonObject
from webhook.cluster.objects import UNREADABLE, decode_errors, readable_part
from webhook.cluster.timing import DEFAULT_CONFIG, Backoff, Clock, ReflectorConfig
from webhook.cluster.watch.event_applier import KindApplier
from webhook.cluster.watch.source_status import SourceStatus


class KnownObjects:
    """Keys of objects, `namespace/name`; those that a list does not show are gone.

    There may be millions, and others wait meanwhile: so no step goes over all of them, or copies
    them.
    """

    def __init__(self) -> None:
        self.shown = 0  # how many objects the list has shown so far
        self._list = 0  # the number of the current one
        self._shown_by: PartitionedDict[int] = PartitionedDict()  # the last list that showed each
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def begin_list(self) -> None:
        """Take all objects for not shown."""
        self._list += 1
        self.shown = 0

    def show(self, key: str, intern: Callable[[str], str]) -> None:
        part = self._shown_by.part(key)
        last = part.get(key)
        if last == self._list:
            return
        if last is None:
            self._count += 1
            key = intern(key)
        self.shown += 1
        part[key] = self._list

    def discard(self, key: str) -> None:
        last = self._shown_by.part(key).pop(key, None)
        if last is not None:
            self._count -= 1
            self.shown -= last == self._list

    def unshown(self) -> Iterator[list[str]]:
        """Yield the objects that the list has not shown; after each of some parts of all.

        Those that were yielded may be discarded meanwhile.
        """
        for part in self._shown_by.parts:
            yield [key for key, last in part.items() if last != self._list]


_PATH: Final = "/apis"


class _Group(msgspec.Struct, frozen=True):
    name: str


class _Groups(msgspec.Struct, frozen=True):
    groups: list[_Group] | None = None


class ApiGroups:
    """Tells whether a group is served; one request in a while, whoever asks and how often."""

    def __init__(self, connection: Connection, every_seconds: float) -> None:
        self._connection = connection
        self._every_seconds = every_seconds
        self._names: frozenset[str] = frozenset()
        self._until = float("-inf")
        self._lock = asyncio.Lock()

    async def has(self, name: str) -> bool:
        async with self._lock:
            now = asyncio.get_running_loop().time()
            if now >= self._until:
                answer = msgspec.json.decode(await self._connection.get(_PATH), type=_Groups)
                self._names = frozenset(group.name for group in answer.groups or ())
                self._until = now + self._every_seconds
        return name in self._names


_T = TypeVar("_T")

_MOST_INLINE_BYTES = 64 * 1024  # of an object; reviews must not wait for a larger one to be decoded
_TURN_BYTES = 32 * 1024  # of objects, some 0.5 ms: an answer needs several turns during a list
_DELETED_BYTES = 1024  # a deletion takes as long as so much of an object
_MOST_REPORTED = 1_000
_STREAMED_LIST: Query = (("sendInitialEvents", "true"), ("resourceVersionMatch", "NotOlderThan"))
_STREAMING_REFUSED = (HTTPStatus.BAD_REQUEST, HTTPStatus.UNPROCESSABLE_ENTITY)
_CAUSES = {
    NO_CONTACT: "no contact with the API server",
    HTTPStatus.UNAUTHORIZED: "the API server does not accept our credentials",
    HTTPStatus.FORBIDDEN: "we lack the permission to list and watch them",
}

_log = logging.getLogger(__name__)


class Reflector:
    """Applies what the API server holds of one kind."""

    def __init__(
        self,
        connection: Connection,
        applier: KindApplier,
        clock: Clock,
        config: ReflectorConfig = DEFAULT_CONFIG,
        groups: ApiGroups | None = None,
    ) -> None:
        kind = applier.kind
        # how up to date it is
        self.status = SourceStatus(name=kind.name, domain=kind.domain, required=kind.required)
        self._connection = connection
        self._kind = kind
        self._path = kind.path
        self._applier = applier
        self._clock = clock
        self._config = config
        self._groups = groups
        self._backoff = Backoff(
            config.first_retry_seconds, config.longest_retry_seconds, clock.jitter
        )
        self._decode = msgspec.json.Decoder(kind.wire).decode
        self._decode_large = kind.decode_large or self._decode
        self._streams_lists = True
        self._was_too_old = False  # by the last failure
        self._version = ""  # resourceVersion to watch from; empty where a list is needed
        self._known = KnownObjects()
        self._reported: set[str] = set()  # as unreadable
        self._turn_bytes = 0  # of objects applied since others had a turn

    async def run(self) -> None:
        """List, watch, and begin again where needed; until cancelled."""
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
                while self._is_absent and not await self._may_be_served():
                    await self._clock.sleep(self._config.look_again_seconds)

    @property
    def _is_absent(self) -> bool:
        return self.status.last_contact is not None and not self.status.present

    async def _may_be_served(self) -> bool:
        """Whether an absent kind is worth a look: its group is served by now, or nobody knows."""
        if self._groups is None:
            return True
        try:
            return await self._groups.has(self._kind.group)
        except (ApiError, *UNREADABLE):
            return True

    # Lists.

    async def _list_by_stream(self) -> None:
        """Read a list at the start of a watch, then go on with that watch."""
        self._known.begin_list()
        try:
            async with asyncio.timeout(self._config.streamed_list_seconds) as deadline:
                await self._watch(_STREAMED_LIST, deadline)
        except TimeoutError:
            self._stream_no_more("the end of the initial events did not come in time")
        except ApiError as error:
            if self._version or error.status not in _STREAMING_REFUSED:
                raise
            self._stream_no_more(error.message)

    def _stream_no_more(self, why: str) -> None:
        _log.info("%s will be listed in pages: %s", self._kind.name, why)
        self._streams_lists = False

    async def _list_in_pages(self) -> None:
        self._known.begin_list()
        first = [("limit", str(self._config.page_size)), *self._selection()]
        query = first
        while True:
            page = await _decoded(page_of, await self._connection.get(self._path, query))
            self._contacted()
            for raw in page.items or ():
                await self._apply_object(raw)
                await self._take_turns(len(raw))
            if not page.metadata.token:
                await self._end_list(page.metadata.resource_version)
                return
            query = [*first, ("continue", page.metadata.token)]

    async def _end_list(self, version: str) -> None:
        """Delete what the list did not show; changes are watched from its version on."""
        await self._delete_unshown()
        self.status.relists += self.status.synced
        self.status.synced = True
        self.status.version = version_number(version)
        self._version = version
        _log.info("%s: %d listed", self._kind.name, len(self._known))

    async def _delete_unshown(self) -> None:
        for keys in self._known.unshown():
            for key in keys:
                self._delete(key)
                await self._take_turns(_DELETED_BYTES)
            await asyncio.sleep(0)

    # Watches.

    async def _watch(self, initial: Query = (), deadline: asyncio.Timeout | None = None) -> None:
        """Apply events until the API server ends the watch."""
        last, config = None, self._config
        more_time_at = config.streamed_list_objects
        watch = self._connection.watch(
            self._path,
            self._watch_query(initial),
            read_timeout_seconds=config.silence_seconds,
        )
        try:
            async with watch as lines:
                self._contacted()
                async for line in lines:
                    event = await _decoded(event_of, line)
                    if event.type == "ERROR":
                        raise await self._refused(event.object)
                    self._contacted()
                    last = event.object
                    if event.type != "BOOKMARK":
                        await self._apply_event(event.type, event.object)
                        await self._take_turns(len(line))
                        if deadline is not None and self._known.shown >= more_time_at:
                            more_time_at += config.streamed_list_objects
                            now = asyncio.get_running_loop().time()
                            deadline.reschedule(now + config.streamed_list_seconds)
                    elif deadline is not None and meta_of(last).ends_initial_events:
                        deadline.reschedule(None)
                        deadline = None
                        await self._end_list(meta_of(last).resource_version)
        finally:
            # Initial events are unordered; after them, the last object has the newest version.
            if self._version and last is not None:
                self._version = meta_of(last).resource_version or self._version
        if last is None:
            raise ApiError(NO_CONTACT, "", "a watch ended before its first event")

    def _watch_query(self, initial: Query) -> Query:
        seconds = int(self._config.watch_seconds * (1 + self._clock.jitter()))
        return [
            ("watch", "true"),
            ("allowWatchBookmarks", "true"),
            ("timeoutSeconds", str(seconds)),
            *self._selection(),
            *(initial or [("resourceVersion", self._version)]),
        ]

    def _selection(self) -> Query:
        selector = self._kind.field_selector
        return [("fieldSelector", selector)] if selector else []

    async def _apply_event(self, kind: str, raw: msgspec.Raw) -> None:
        if kind == "DELETED":
            meta = meta_of(raw)
            self._delete(meta.key)
            version = meta.resource_version
        else:
            version = await self._apply_object(raw)
        if self._version:
            self.status.version = version_number(version) or self.status.version
            self.status.events += 1
            self._backoff.reset()

    async def _refused(self, raw: msgspec.Raw) -> ApiError:
        """Return the error of an ERROR event; most would recur at this resourceVersion."""
        status = await _decoded(status_of, raw)
        if status.code != HTTPStatus.TOO_MANY_REQUESTS:
            self._version = ""
        return ApiError(status.code, status.reason, status.message, status.retry_after_seconds)

    # Objects.

    async def _apply_object(self, raw: msgspec.Raw) -> str:
        """Apply an object, or the part of it that counts; return its resourceVersion."""
        try:
            if len(raw) <= _MOST_INLINE_BYTES:
                wire, apply = self._prepare(raw, self._decode)
            else:
                prepare = partial(self._prepare, raw, self._decode_large)
                wire, apply = await asyncio.to_thread(one_at_a_time, prepare)
            apply()
            key = f"{wire.metadata.namespace}/{wire.metadata.name}"
            version: str = wire.metadata.resource_version
        except UNREADABLE as error:
            meta = meta_of(raw)
            key, version = meta.key, meta.resource_version
            self._report(key, raw, error)
            if self._kind.counts_in_part:
                with suppress(*UNREADABLE):
                    self._applier.apply(readable_part(raw, self._kind.wire))
        self._known.show(key, self._applier.intern)
        self.status.objects = len(self._known)
        return version

    def _prepare(
        self, raw: msgspec.Raw, decode: Callable[[msgspec.Raw], Any]
    ) -> tuple[Any, Callable[[], None]]:
        """Decode an object, and return what applies it too; touches no state."""
        wire: Any = decode(raw)
        prepare = self._applier.prepare
        return wire, partial(self._applier.apply, wire) if prepare is None else prepare(wire, raw)

    def _delete(self, key: str) -> None:
        namespace, _, name = key.partition("/")
        self._applier.delete(namespace, name)
        self._known.discard(key)
        self.status.objects = len(self._known)

    def _report(self, key: str, raw: msgspec.Raw, error: ValueError | RecursionError) -> None:
        """Log the mistakes in an object, once."""
        self.status.skipped += 1
        if key in self._reported or len(self._reported) >= _MOST_REPORTED:
            return
        self._reported.add(key)
        kind = self._kind
        found = JsonObject(kind.name, (), kind.group, kind.kind, len(raw), raw)
        consequence = "counts without that" if kind.counts_in_part else "is left out"
        for problem in decode_errors(found, kind.wire, error, consequence=consequence):
            _log.warning("cannot be read: %s", problem)

    async def _take_turns(self, size: int) -> None:
        """Let other tasks run after every few objects."""
        self._turn_bytes += size
        if self._turn_bytes >= _TURN_BYTES:
            self._turn_bytes = 0
            await asyncio.sleep(0)

    # Status.

    def _contacted(self) -> None:
        status = self.status
        status.last_contact = self._clock.now()
        status.present = True
        if status.last_error:
            _log.info("%s: in contact again", status.name)
            status.last_error = ""

    async def _failed(self, error: ApiError) -> float:
        """Record a failure; return the seconds to wait before the next attempt."""
        if error.status == HTTPStatus.NOT_FOUND and not self._kind.required:
            await self._drop_all()
            return self._config.look_again_seconds
        too_old = _is_too_old(error)
        if too_old:
            self._version = ""
            if not self._was_too_old:
                self._backoff.reset()  # an outage is over: catch up without further delay
        self._was_too_old = too_old
        cause = _CAUSES.get(error.status)
        message = f"{cause}: {error.message}" if cause else error.message
        if message != self.status.last_error:
            _log.warning("%s: %s", self._kind.name, message)
        self.status.last_error = message
        return self._backoff.next(error.retry_after_seconds)

    async def _drop_all(self) -> None:
        """Delete all objects: the API server has no such resource for now."""
        status = self.status
        if status.present or status.last_contact is None:
            _log.info("%s: no such API for now", self._kind.name)
        self._known.begin_list()
        await self._delete_unshown()
        self._version = ""
        self._backoff.reset()
        status.present = status.synced = False
        status.last_contact = self._clock.now()
        status.last_error = ""


def _is_too_old(error: ApiError) -> bool:
    """Whether the API server does not know our resourceVersion, so that a new list is needed.

    It compacted that version away (410), was restored from a backup and will not reach it (504 with
    a reason, which no proxy gives), or cannot parse it (400).
    """
    never_reached = error.status == HTTPStatus.GATEWAY_TIMEOUT and error.reason == "Timeout"
    return never_reached or error.status in (HTTPStatus.GONE, HTTPStatus.BAD_REQUEST)


async def _decoded(decode: Callable[[bytes | msgspec.Raw], _T], data: bytes | msgspec.Raw) -> _T:
    """Return a decoded envelope; after an unreadable one the rest of a stream is lost.

    A large one is decoded in a thread: where it nests deeply, that takes long.
    """
    try:
        if len(data) <= _MOST_INLINE_BYTES:
            return decode(data)
        return await asyncio.to_thread(one_at_a_time, partial(decode, data))
    except UNREADABLE as error:
        raise ApiError(NO_CONTACT, "", f"an answer that cannot be read: {error}") from error
