"""A recording of a live cluster: what rules can read of it, by GET alone.

Each kind is as it was at one moment, the kinds at moments of their own. What is read goes to the
file page by page; only the usage of pods, which the API gives in one piece, is in memory at once.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import Any, TypeAlias

import msgspec

from engine.errors import Diagnostic, StowplanError
from engine.model import api
from engine.model.pod import TERMINAL_PHASES
from webhook.cluster.client.backoff import Backoff
from webhook.cluster.client.connection import NO_CONTACT, ApiError, Connection, Query
from webhook.cluster.client.envelopes import Page, page_of
from webhook.cluster.decode_errors import UNREADABLE, decode_errors
from webhook.cluster.files.json_objects import JsonObject
from webhook.cluster.files.object_file import ObjectFile
from webhook.cluster.objects import ObjectError
from webhook.cluster.snapshot.anonymous import Anonymizer
from webhook.cluster.snapshot.redact import kept
from webhook.cluster.usage.metrics_api import NODES_PATH, PODS_PATH
from webhook.cluster.watch.event_applier import READERS
from webhook.cluster.watch.timing import USUAL, ReflectorConfig
from webhook.cluster.watch.watched_kinds import WATCHED, Watched

Progress: TypeAlias = Callable[[str, int, int | None], None]
"""Called with the name of a kind, how many were read, and how many there are if that is known."""

_MOST_ATTEMPTS = 5  # some eight seconds of waiting
_MOST_PROBLEMS = 20  # of one kind
_NEEDED = frozenset({"nodes", "pods"})
_PASSING = frozenset(
    {
        NO_CONTACT,
        HTTPStatus.TOO_MANY_REQUESTS,
        HTTPStatus.INTERNAL_SERVER_ERROR,
        HTTPStatus.BAD_GATEWAY,
        HTTPStatus.SERVICE_UNAVAILABLE,
        HTTPStatus.GATEWAY_TIMEOUT,
    }
)
"""Statuses of what may go well a moment later."""

_KINDS = (
    *WATCHED,
    Watched(
        name="nodes.metrics.k8s.io", path=NODES_PATH, group="metrics.k8s.io", kind="NodeMetrics"
    ),
    Watched(name="pods.metrics.k8s.io", path=PODS_PATH, group="metrics.k8s.io", kind="PodMetrics"),
)


@dataclass(slots=True, kw_only=True)
class KindResult:
    """What became of one kind.

    Attributes:
        name: what people call it, as `kubectl get` takes it.
        objects: how many were written.
        finished: how many pods were left out because they have finished.
        unreadable: how many could not be read.
        problems: what is wrong with the first of those.
        error: why there is nothing of it; None where it was read to its end.
    """

    name: str
    objects: int = 0
    finished: int = 0
    unreadable: int = 0
    problems: list[Diagnostic] = field(default_factory=list)
    error: ApiError | None = None


class SnapshotError(StowplanError):
    """A kind could not be read that no recording can do without.

    Attributes:
        kind: its name.
        error: what the API server says.
    """

    def __init__(self, kind: str, error: ApiError) -> None:
        super().__init__(f"{kind}: {error.message}")
        self.kind = kind
        self.error = error


async def take_snapshot(
    connection: Connection,
    file: ObjectFile,
    *,
    anonymizer: Anonymizer | None = None,
    progress: Progress | None = None,
    pace: ReflectorConfig = USUAL,
    sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
) -> Sequence[KindResult]:
    """Write what there is of every kind; returns what became of each.

    Args:
        connection: to the API server; only read from.
        file: where objects go.
        anonymizer: replaces names, if given.
        progress: told how far it is.
        pace: of pages and of attempts after failures.
        sleep: waits for some seconds.

    Raises:
        SnapshotError: nodes or pods cannot be read, or nothing can.
    """
    taker = _Taker(connection, file, anonymizer, progress or (lambda *_: None), pace, sleep)
    return [await taker.take(watched) for watched in _KINDS]


class _Taker:
    """Reads kind after kind."""

    def __init__(
        self,
        connection: Connection,
        file: ObjectFile,
        anonymizer: Anonymizer | None,
        progress: Progress,
        pace: ReflectorConfig,
        sleep: Callable[[float], Awaitable[None]],
    ) -> None:
        self._connection = connection
        self._file = file
        self._anonymizer = anonymizer
        self._progress = progress
        self._pace = pace
        self._sleep = sleep
        self._encode = msgspec.json.Encoder().encode
        self._heard = False

    async def take(self, watched: Watched) -> KindResult:
        """Write all objects of a kind, or none of them."""
        begin, attempts = self._file.size, 0
        while True:
            taken = KindResult(name=watched.name)
            attempts += 1
            try:
                await self._list(watched, taken)
            except ApiError as error:
                self._file.back_to(begin)
                # Its pages are of one moment, which the API server forgets after some minutes.
                if error.status == HTTPStatus.GONE and attempts < _MOST_ATTEMPTS:
                    continue
                if watched.name in _NEEDED or error.status == HTTPStatus.UNAUTHORIZED:
                    raise SnapshotError(watched.name, error) from error
                return KindResult(name=watched.name, error=error)
            return taken

    async def _list(self, watched: Watched, taken: KindResult) -> None:
        # Without the selector for unfinished pods: with one, no page says how many are to come.
        first: Query = [("limit", str(self._pace.page_size))]
        query, seen = first, 0
        take = self._taker(watched, taken)
        while True:
            page = await self._page(watched.path, query)
            for raw in page.items or ():
                take(raw)
            seen += len(page.items or ())
            token, rest = page.metadata.token, page.metadata.remaining_item_count
            total = seen if not token else None if rest is None else seen + rest
            self._progress(watched.name, seen, total)
            if not token:
                return
            query = [*first, ("continue", token)]

    async def _page(self, path: str, query: Query) -> Page:
        """Return a page; what may go well a moment later is tried again."""
        backoff = Backoff(self._pace.first_retry_seconds, self._pace.longest_retry_seconds)
        attempts = 0
        while True:
            attempts += 1
            try:
                page = page_of(await self._connection.get(path, query))
            except ApiError as error:
                lost = error.status == NO_CONTACT and not self._heard  # was never there at all
                if error.status not in _PASSING or lost or attempts == _MOST_ATTEMPTS:
                    raise
                await self._sleep(backoff.next(error.retry_after_seconds))
            except UNREADABLE as error:
                raise ApiError(NO_CONTACT, "", "the answer is not a list of objects") from error
            else:
                self._heard = True
                return page

    def _taker(self, watched: Watched, taken: KindResult) -> Callable[[msgspec.Raw], None]:
        """Return what writes an object of a kind, in JSON as the API server sent it."""
        wire = READERS[watched.group, watched.kind].wire
        decode = msgspec.json.Decoder(wire).decode
        api_version = watched.path.removeprefix("/apis/").removeprefix("/api/").rpartition("/")[0]
        head = f'{{"apiVersion":"{api_version}","kind":"{watched.kind}",'.encode()

        def take(raw: msgspec.Raw) -> None:
            try:
                found = _named(decode(raw))
            except UNREADABLE as error:
                _report(taken, watched, wire, raw, error)
                return
            if isinstance(found, api.Pod) and found.status.phase in TERMINAL_PHASES:
                taken.finished += 1
                return
            found = kept(found)
            if self._anonymizer is not None:
                found = self._anonymizer.struct(found)
            self._file.add(head + self._encode(found).removeprefix(b"{"))
            taken.objects += 1

        return take


def _named(wire: Any) -> Any:  # noqa: ANN401 - a wire struct of any kind, which has metadata
    if not wire.metadata.name:
        raise ObjectError(("metadata",), "it has no `name`")
    return wire


def _report(
    taken: KindResult,
    watched: Watched,
    wire: type[msgspec.Struct],
    raw: msgspec.Raw,
    error: ValueError | RecursionError,
) -> None:
    """Take note of an object that cannot be read."""
    taken.unreadable += 1
    found = JsonObject(watched.name, (), watched.group, watched.kind, len(raw), raw)
    room = _MOST_PROBLEMS - len(taken.problems)
    taken.problems += decode_errors(found, wire, error)[:room]
