"""An API server in memory, on which a test decides what becomes of each write."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Any

import msgspec

from tests.fake_api_server.evictions import evict
from tests.fake_api_server.resources import RESOURCES, Key, Target, resource_named, target_of
from tests.fake_api_server.statuses import ApiFault
from tests.fake_api_server.store import Change, Object, Store
from tests.fake_api_server.writes import Writer
from webhook.cluster.client.connection import NO_CONTACT, ApiError, Connection, Query

PODS, NODES = resource_named("pods"), resource_named("nodes")
_KINDS = (PODS, NODES)


class Fate(Enum):
    """What becomes of a write of a leader."""

    DONE = "done"
    LOST = "lost"
    UNANSWERED = "done, but not answered"
    LATE = "it arrives later"
    REFUSED = "refused by somebody's admission"
    CONFLICT = "in conflict with another write"
    BUSY = "the API server is too busy"
    ENDS_BEFORE = "its sender ends before"
    ENDS_AFTER = "its sender ends after"


_REFUSALS = {
    Fate.REFUSED: ApiError(403, "Forbidden", "denied the request: not now"),
    Fate.CONFLICT: ApiError(409, "Conflict", "the object has been modified"),
    Fate.BUSY: ApiError(429, "TooManyRequests", "too many requests"),
    Fate.LOST: ApiError(NO_CONTACT, "", "the connection broke"),
}


@dataclass(eq=False)
class Call:
    """A write that was sent; its answer may never come."""

    sender: MemoryConnection
    target: Target
    method: str
    body: bytes
    content_type: str
    answer: asyncio.Future[bytes]
    dry_run: bool = False

    @property
    def is_eviction(self) -> bool:
        """Whether it asks for the end of a pod."""
        return self.target.subresource == "eviction"


@dataclass
class MemoryServer:
    """Pods and nodes, all that ever happened to them, and the writes that are under way.

    Attributes:
        changes: of each resource, in order.
        fates: of the next writes; each is done once there are none.
        late: writes that are under way.
        before_write: looks at each write when it is sent.
        on_failure: looks at each that is not done and answered at once.
        judge: of a pod as it is and as it would be; raises `ApiFault` to refuse the write.
    """

    before_write: Callable[[Call], None]
    on_failure: Callable[[Call], None]
    judge: Callable[[Object, Object], None] = lambda _old, _new: None
    changes: dict[str, list[Change]] = field(default_factory=dict)
    fates: deque[Fate] = field(default_factory=deque)
    late: list[Call] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.store = Store(RESOURCES, 1)
        self.writer = Writer(self.store)
        for kind in RESOURCES:
            log = self.changes[kind.full_name] = []
            self.store.of(kind).listeners.add(log.append)

    def pods(self) -> dict[str, Object]:
        """Return copies of all pods by name."""
        return {key.name: msgspec.json.decode(raw) for key, raw in self.raw("pods").items()}

    def nodes(self) -> dict[str, Object]:
        """Return copies of all nodes by name."""
        return {key.name: msgspec.json.decode(raw) for key, raw in self.raw("nodes").items()}

    def create(self, obj: Object) -> None:
        """Store an object as it is."""
        kind = next(kind for kind in RESOURCES if kind.kind == obj["kind"])
        self.writer.create(kind, obj)

    def patch_pod(
        self,
        name: str,
        patch: Object,
        subresource: str = "",
        *,
        judge: Callable[[Object, Object], None] | None = None,
    ) -> None:
        """Change a pod as somebody else, judged or not."""
        target = Target(PODS, self._namespace(name), name, subresource)
        if judge is not None:
            content_type = "application/merge-patch+json"
            new = self.writer.patch(target, patch, content_type, dry_run=True)
            judge(self.pods()[name], new)
        self.writer.patch(target, patch, "application/merge-patch+json", dry_run=False)

    def delete(self, kind: str, name: str) -> None:
        """Delete a pod or a node."""
        resource = resource_named(kind)
        namespace = self._namespace(name) if resource.namespaced else ""
        self.writer.delete(Target(resource, namespace, name), {})

    def _namespace(self, pod_name: str) -> str:
        return next(key.namespace for key in self.raw("pods") if key.name == pod_name)

    def receive(self, call: Call) -> None:
        """Do with a write what is meant to become of it."""
        self.before_write(call)
        fate = self.fates.popleft() if self.fates else Fate.DONE
        if fate is not Fate.DONE:
            self.on_failure(call)
        match fate:
            case Fate.DONE:
                self.carry_out(call)
            case Fate.UNANSWERED:
                self.carry_out(call, _REFUSALS[Fate.LOST])
            case Fate.LATE:
                self.late.append(call)
            case Fate.ENDS_BEFORE:
                call.sender.has_ended = True
            case Fate.ENDS_AFTER:
                self.carry_out(call)
                call.sender.has_ended = True
            case _:
                call.answer.set_exception(_REFUSALS[fate])

    def carry_out(self, call: Call, answer: ApiError | None = None) -> None:
        """Do what a write asks for, and answer it, or with an error instead."""
        try:
            done = self._done(call)
        except ApiFault as fault:
            status = fault.body
            answer = answer or ApiError(fault.code, status["reason"], status["message"])
            done = b""
            self.on_failure(call)
        if call.answer.done():
            return  # its sender waits no longer
        if answer is None:
            call.answer.set_result(done)
        else:
            call.answer.set_exception(answer)

    def _done(self, call: Call) -> bytes:
        target = call.target
        if call.method == "GET":
            stored = self.store.read(target.resource, target.key)
            if stored is None:
                raise target.missing()
            return msgspec.json.encode(stored)
        body = msgspec.json.decode(call.body)
        if call.is_eviction:
            evicted = evict(self.store, self.writer, target, body, dry_run=call.dry_run)
            return msgspec.json.encode(evicted)
        if call.method == "POST":
            return msgspec.json.encode(self.writer.create_sent(target, body, dry_run=False))
        return msgspec.json.encode(self._patch(target, body, call.content_type))

    def _patch(self, target: Target, patch: Any, content_type: str) -> Object:  # noqa: ANN401 (JSON)
        if target.resource is PODS and not target.subresource:
            new = self.writer.patch(target, patch, content_type, dry_run=True)
            old = self.store.read(PODS, target.key)
            if old is not None:
                self.judge(old, new)
        return self.writer.patch(target, patch, content_type, dry_run=False)

    def raw(self, kind: str) -> dict[Key, bytes]:
        """Return all objects of a resource as bare JSON."""
        return self.store.of(resource_named(kind)).objects


class MemoryConnection(Connection):
    """The connection of one process to a server in memory.

    Attributes:
        has_ended: whether its process has: nothing that it sends arrives any more.
    """

    def __init__(self, server: MemoryServer) -> None:  # no session is needed
        self._server = server
        self.has_ended = False

    async def write(
        self,
        method: str,
        path: str,
        body: bytes,
        *,
        content_type: str = "application/json",
        query: Query = (),
    ) -> bytes:
        """Send a request; see `MemoryServer.receive`."""
        target = target_of(path, RESOURCES)
        if target is None:
            raise ApiError(404, "NotFound", f"there is no {path}")
        answer: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()
        is_dry_run = ("dryRun", "All") in query
        call = Call(self, target, method, body, content_type, answer, is_dry_run)
        if not self.has_ended:
            if method == "PATCH" or call.is_eviction:
                self._server.receive(call)
            else:
                self._server.carry_out(call)
        return await answer


def sent_patch(call: Call) -> Any:  # noqa: ANN401 (JSON)
    """Return the patch that a write sends."""
    return msgspec.json.decode(call.body)


def watched(changes: Sequence[Change]) -> dict[Key, Object]:
    """Return the objects that are left after some changes."""
    objects: dict[Key, Object] = {}
    for change in changes:
        if change.after is None:
            objects.pop(change.key, None)
        else:
            objects[change.key] = msgspec.json.decode(change.after)
    return objects
