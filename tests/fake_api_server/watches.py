"""WATCH: one stream of events, from a version on, or from the present objects on."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator, Mapping

import msgspec

from tests.fake_api_server.resources import Key, Target
from tests.fake_api_server.selectors import selector_of
from tests.fake_api_server.statuses import ApiFault
from tests.fake_api_server.store import Change, Store, complete_json, restamped

INITIAL_EVENTS_END = "k8s.io/initial-events-end"


class Watch:
    """A watch as one client asked for it.

    Attributes:
        target: the collection; with a name, one object of it.
        torn: the stream ended in the middle of an event, so its connection must break.
    """

    def __init__(
        self, store: Store, target: Target, query: Mapping[str, str], *, marks_end: bool
    ) -> None:
        """Begin to listen; events queue up until they are read.

        Args:
            store: where the objects are.
            target: what is watched.
            query: of the request.
            marks_end: a bookmark ends the initial events of a watch list.

        Raises:
            ApiFault: 400 or 422 for a query that makes no sense, 410 for a version whose history
                is gone, 504 for one that does not exist yet.
        """
        self.target = target
        self.torn = False
        self._wants_bookmarks = says_yes(query, "allowWatchBookmarks")
        self._store = store
        self._collection = store.of(target.resource)
        self._selected = selector_of(
            target.resource, query.get("fieldSelector", ""), query.get("labelSelector", "")
        )
        self._queue: asyncio.Queue[bytes | None] = asyncio.Queue()
        seconds = _seconds(query)
        self._backlog = self._begin(query, marks_end=marks_end)
        self._collection.listeners.add(self._hear)
        loop = asyncio.get_running_loop()
        self._timer = loop.call_later(seconds, self.finish) if seconds else None

    def bookmark(self) -> None:
        """Tell the client how far it has come, if it wants to know."""
        if self._wants_bookmarks:
            self._queue.put_nowait(self._bookmark({}))

    def fail(self, fault: ApiFault) -> None:
        """Send an ERROR event; a real server ends the stream after it, and so does this one."""
        self._queue.put_nowait(_frame("ERROR", msgspec.json.encode(fault.body)))
        self.end()

    def tear(self) -> None:
        """End the stream in the middle of an event."""
        self.torn = True
        self._queue.put_nowait(b'{"type":"MODIFIED","object":{"metadata":{"na')
        self.end()

    def finish(self) -> None:
        """End the stream as `timeoutSeconds` does: a last bookmark, then the end."""
        self.bookmark()
        self.end()

    def end(self) -> None:
        """Close the stream in good order, after what is queued."""
        if self._timer:
            self._timer.cancel()
        self._collection.listeners.discard(self._hear)
        self._queue.put_nowait(None)

    async def frames(self) -> AsyncIterator[bytes]:
        """Yield a line per event until the watch ends; whoever stops earlier calls `end`."""
        for initial in self._backlog:
            yield initial
        while (frame := await self._queue.get()) is not None:
            yield frame

    def _begin(self, query: Mapping[str, str], *, marks_end: bool) -> Iterator[bytes]:
        asked = query.get("resourceVersion", "")
        if asked and not asked.isdecimal():
            raise ApiFault(400, f"invalid resource version `{asked}`")
        self._store.check_not_future(int(asked or "0"))
        match = query.get("resourceVersionMatch", "")
        if says_yes(query, "sendInitialEvents"):
            if match != "NotOlderThan":
                raise ApiFault(422, "sendInitialEvents needs resourceVersionMatch=NotOlderThan")
            return self._present(marks_end=marks_end)
        if match:
            raise ApiFault(422, "resourceVersionMatch is forbidden for watch")
        if asked in {"", "0"}:
            return self._present(marks_end=False)
        return self._replay(self._collection.since(int(asked)))

    def _present(self, *, marks_end: bool) -> Iterator[bytes]:
        """Return the objects of this moment as ADDED events."""
        objects = sorted(self._collection.objects.items())
        bodies = [body for key, body in objects if self._covers(key)]
        end = self._bookmark({INITIAL_EVENTS_END: "true"})

        def frames() -> Iterator[bytes]:
            for body in bodies:
                if self._sees(body):
                    yield self._event("ADDED", body)
            if marks_end and self._wants_bookmarks:
                yield end

        return frames()

    def _replay(self, changes: list[Change]) -> Iterator[bytes]:
        return (frame for change in changes if (frame := self._frame_of(change)))

    def _hear(self, change: Change) -> None:
        if frame := self._frame_of(change):
            self._queue.put_nowait(frame)

    def _frame_of(self, change: Change) -> bytes | None:
        """Return what this client sees of a change: an object may enter or leave its selection."""
        if not self._covers(change.key):
            return None
        after = change.after if change.after and self._sees(change.after) else None
        before = change.before if change.before and self._sees(change.before) else None
        if after:
            return self._event("MODIFIED" if before else "ADDED", after)
        return self._event("DELETED", restamped(before, change.version)) if before else None

    def _covers(self, key: Key) -> bool:
        return self.target.namespace in {"", key.namespace} and self.target.name in {"", key.name}

    def _sees(self, body: bytes) -> bool:
        return self._selected is None or self._selected(body)

    def _event(self, kind: str, body: bytes) -> bytes:
        return _frame(kind, complete_json(self.target.resource, body))

    def _bookmark(self, annotations: Mapping[str, str]) -> bytes:
        metadata = {
            "resourceVersion": str(self._store.version),
            "creationTimestamp": None,
            **({"annotations": annotations} if annotations else {}),
        }
        return self._event("BOOKMARK", msgspec.json.encode({"metadata": metadata}))


def says_yes(query: Mapping[str, str], name: str) -> bool:
    """Return whether a query switches something on, as Go reads booleans from URLs."""
    return query.get(name, "false").lower() not in {"false", "0"}


def _seconds(query: Mapping[str, str]) -> int:
    text = query.get("timeoutSeconds") or "0"
    if not text.isdecimal():
        raise ApiFault(400, f"timeoutSeconds `{text}` is not a whole number")
    return int(text)


def _frame(kind: str, obj: bytes) -> bytes:
    return b'{"type":"%b","object":%b}\n' % (kind.encode(), obj)
