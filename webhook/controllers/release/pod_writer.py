"""Writes of held pods: nominations, conditions, and the release itself.

A nomination is written by the subresource `pods/status`, which ignores the spec, but not
annotations; the gate goes by another patch, which ignores the status. So a pod for which room is
reserved takes two writes, and any other one.
Each awaits its answer, and the watches of others keep that order: the scheduler sees the
nomination before the gate goes. A pod is never replaced (PUT): that drops fields we do not know.
Writes are as fast as their rate allows, and are sent only while this replica leads.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import KW_ONLY, dataclass
from datetime import UTC, datetime
from enum import StrEnum
from http import HTTPStatus
from types import MappingProxyType
from typing import Any, Final, NotRequired, TypeAlias, TypedDict

import jsonpointer
import msgspec
from aiolimiter import AsyncLimiter

from engine.errors import PatchError
from engine.model.hold import (
    HOLD_GATE,
    RECLAIM_PLAN_ANNOTATION,
    RESERVED_AT_ANNOTATION,
    WAIT_ANNOTATION,
)
from engine.model.pod import Pod
from engine.quota import is_exceeded
from engine.release import HeldPod, WriteFailure
from webhook.cluster.client.connection import NO_CONTACT, ApiError, Connection, Query
from webhook.cluster.objects import UNREADABLE
from webhook.cluster.timing import Backoff

_DENIALS: Final = ("denied the request", "denied request")
_BUDGET: Final = "disruption budget"
_MANY_BUDGETS: Final = "more than one PodDisruptionBudget"
_WEBHOOK_FAILED: Final = "failed calling webhook"
_TRY_AGAIN: Final = frozenset(
    {
        NO_CONTACT,
        HTTPStatus.UNAUTHORIZED,
        HTTPStatus.REQUEST_TIMEOUT,
        HTTPStatus.TOO_MANY_REQUESTS,
    }
)


class WriteError(ApiError):
    """A write of a held pod failed."""

    def __init__(self, failure: WriteFailure, error: ApiError) -> None:
        super().__init__(error.status, error.reason, error.message, error.retry_after_seconds)
        self.failure = failure  # what became of it


class UnclearError(ApiError):
    """A write of a held pod failed, and only the pod itself can tell why.

    A 409 or 422 is of somebody's admission, of another pod of the same name (the uid differs), of a
    `test` that failed, or of an object that would be too large; so may a 5xx be.
    """

    @property
    def failure_where_it_applies(self) -> WriteFailure:
        """What became of a write that would apply to the pod as it is.

        Of a 422 or a 5xx the pod itself is left; a 409 comes of many writes at a time.
        """
        is_conflict = self.status == HTTPStatus.CONFLICT
        return WriteFailure.CHANGED if is_conflict else WriteFailure.REFUSED


def write_error_of(error: ApiError, *, is_own: bool) -> WriteError | UnclearError:
    failure = _failure_of(error)
    if is_own and error.status >= HTTPStatus.INTERNAL_SERVER_ERROR:
        failure = failure if failure is WriteFailure.REFUSED else None
    if failure is None:
        return UnclearError(error.status, error.reason, error.message, error.retry_after_seconds)
    return WriteError(failure, error)


def _failure_of(error: ApiError) -> WriteFailure | None:
    status, message = error.status, error.message
    if status == HTTPStatus.NOT_FOUND:
        return WriteFailure.GONE
    if status == HTTPStatus.FORBIDDEN and is_exceeded(message):
        return WriteFailure.OVER_QUOTA
    if _WEBHOOK_FAILED in message or any(denial in message for denial in _DENIALS):
        return WriteFailure.REFUSED
    if _MANY_BUDGETS in message or (status == HTTPStatus.TOO_MANY_REQUESTS and _BUDGET in message):
        return WriteFailure.BLOCKED
    if status in _TRY_AGAIN or status >= HTTPStatus.INTERNAL_SERVER_ERROR:
        return WriteFailure.UNREACHABLE
    if status in {HTTPStatus.CONFLICT, HTTPStatus.UNPROCESSABLE_ENTITY}:
        return None
    return WriteFailure.REFUSED


_PER_SECOND: Final = 300  # a service account's share of an API server is 245 at a time
_BURST: Final = 500
_MOST_IN_FLIGHT: Final = 50
_MOST_LARGE_IN_FLIGHT: Final = 2
_SLOW_POD_SECONDS: Final = 60.0
_FIRST_PAUSE_SECONDS, _LONGEST_PAUSE_SECONDS = 0.5, 15.0


@dataclass(eq=False)
class PacedConnection:
    """A connection with a rate, a number of requests in flight, and a pause after failures.

    Large pods have a lane of their own: an API server may take half a minute for a patch of one
    with thousands of tolerations, which anybody may create.
    """

    connection: Connection
    _: KW_ONLY
    may_write: Callable[[], bool]
    clock: Callable[[], float] = time.monotonic
    call_seconds: float = 10.0

    def __post_init__(self) -> None:
        self._limiter = AsyncLimiter(_BURST, _BURST / _PER_SECOND)
        self._in_flight = asyncio.Semaphore(_MOST_IN_FLIGHT)
        self._large_in_flight = asyncio.Semaphore(_MOST_LARGE_IN_FLIGHT)
        self._backoff = Backoff(_FIRST_PAUSE_SECONDS, _LONGEST_PAUSE_SECONDS)
        self._pause_until = float("-inf")
        self._newest_answered = float("-inf")  # when the newest answered request was sent

    @property
    def pause_seconds(self) -> float:
        """Seconds to wait before the next request; 0 unless the API server was out of reach."""
        return max(self._pause_until - self.clock(), 0.0)

    async def request(
        self,
        method: str,
        path: str,
        body: bytes = b"",
        content_type: str = "",
        *,
        is_large: bool,
        is_own: bool = False,
        query: Query = (),
    ) -> bytes:
        """Send one request as soon as rate and number in flight allow; return the answer."""
        async with self._large_in_flight if is_large else self._in_flight:
            await self._limiter.acquire()
            if not self.may_write():
                error = ApiError(NO_CONTACT, "", "this replica does not lead")
                raise WriteError(WriteFailure.NOT_LEADING, error)
            sent_at = self.clock()
            try:
                async with asyncio.timeout(self.call_seconds):
                    answer = await self.connection.write(
                        method, path, body, content_type=content_type, query=query
                    )
            except TimeoutError as error:
                raise self._timed_out(sent_at, is_large=is_large) from error
            except ApiError as error:
                raise self._failed(error, sent_at, is_own=is_own) from error
        self._answered(sent_at)
        return answer

    def _timed_out(self, sent_at: float, *, is_large: bool) -> WriteError:
        """Return the error of a request without an answer.

        It is the pod's own where the pod is large, or later requests were answered meanwhile.
        """
        if is_large or self._newest_answered >= sent_at + self.call_seconds / 2:
            message = f"the API server takes more than {self.call_seconds:g} s for this pod"
            slow = ApiError(NO_CONTACT, "", message, _SLOW_POD_SECONDS)
            return WriteError(WriteFailure.REFUSED, slow)
        return self._unreachable(ApiError(NO_CONTACT, "", "no answer in time"))

    def _failed(
        self, error: ApiError, sent_at: float, *, is_own: bool
    ) -> WriteError | UnclearError:
        failed = write_error_of(error, is_own=is_own)
        if isinstance(failed, WriteError) and failed.failure is WriteFailure.UNREACHABLE:
            return self._unreachable(error)
        self._answered(sent_at)
        return failed

    def _unreachable(self, error: ApiError) -> WriteError:
        if not self.pause_seconds:  # of many that fail at a time the first counts
            self._pause_until = self.clock() + self._backoff.next(error.retry_after_seconds)
        return WriteError(WriteFailure.UNREACHABLE, error)

    def _answered(self, sent_at: float) -> None:
        self._newest_answered = max(self._newest_answered, sent_at)
        self._pause_until = float("-inf")
        self._backoff.reset()


Operation: TypeAlias = Mapping[str, Any]
"""An operation of RFC 6902."""

NO_ANNOTATIONS: Final[Mapping[str, str]] = MappingProxyType({})
"""Nothing to annotate."""

_ANNOTATIONS: Final = "/metadata/annotations"
_TRIED_IN_VAIN: Final = ("PodScheduled", "False", "Unschedulable")


class _Metadata(TypedDict, total=False):
    uid: str
    resourceVersion: str
    annotations: dict[str, str] | None


class _Spec(TypedDict, total=False):
    nodeName: str
    preemptionPolicy: str | None
    schedulingGates: list[dict[str, str]] | None


class _Condition(TypedDict, total=False):
    type: str
    status: str
    reason: str


class _Status(TypedDict, total=False):
    nominatedNodeName: str
    conditions: list[_Condition] | None


class _Document(TypedDict):
    """The part of a pod that a patch of ours reads or touches; the rest is skipped."""

    metadata: _Metadata
    spec: _Spec
    status: NotRequired[_Status]


_document_of: Final = msgspec.json.Decoder(_Document).decode


def release_patch(
    raw: bytes,
    uid: str,
    annotations: Mapping[str, str] = NO_ANNOTATIONS,
) -> tuple[Operation, ...]:
    """Return the operations that remove our gate and annotate a pod.

    They apply to the pod with this uid alone, where our gate still is at its place, and where
    nobody changed meanwhile what they replace.
    """
    document = _document(raw)
    if document["metadata"].get("uid") != uid:
        raise PatchError("another pod has its name")
    unchanged = [_test("/metadata/uid", uid)]
    if annotations and not document["metadata"].get("annotations"):
        unchanged.append(_test(_ANNOTATIONS, None))  # holds where there are none
    gate = _without_gate(document["spec"])
    return (*unchanged, *gate, *_annotating(document["metadata"], annotations))


def unfollowed_nomination_patch(raw: bytes, uid: str, node_name: str) -> Mapping[str, Any] | None:
    """Return the merge patch of a pod's status that withdraws its nomination, None to leave it.

    It applies to this version of the pod alone. It is left to a pod that is bound, or nominated to
    another node, and to one that the scheduler has tried in vain and may evict others for: a cycle
    that fails takes a nomination back, but for the one by which the scheduler keeps the room of its
    victims. A pod with `preemptionPolicy: Never` keeps any, and so it is never the scheduler's.
    """
    document = _document(raw)
    metadata, spec, status = document["metadata"], document["spec"], document.get("status", {})
    if metadata.get("uid") != uid or spec.get("nodeName"):
        return None
    if status.get("nominatedNodeName") != node_name:
        return None
    if _was_tried(status) and spec.get("preemptionPolicy") != "Never":
        return None
    unchanged = {"uid": uid, "resourceVersion": metadata.get("resourceVersion", "")}
    return {"metadata": unchanged, "status": {"nominatedNodeName": None}}


def is_tried_in_vain(raw: bytes) -> bool:
    """Return whether the scheduler has said of a pod that no node takes it; not if unreadable."""
    try:
        return _was_tried(_document_of(raw).get("status", {}))
    except UNREADABLE:
        return False


def _was_tried(status: _Status) -> bool:
    return any(
        (each.get("type"), each.get("status"), each.get("reason")) == _TRIED_IN_VAIN
        for each in status.get("conditions") or ()
    )


def uid_of(raw: bytes) -> str:
    return _document(raw)["metadata"].get("uid", "")


def _document(raw: bytes) -> _Document:
    try:
        return _document_of(raw)
    except UNREADABLE as error:
        raise PatchError(f"the pod cannot be read: {error}") from error


def _without_gate(spec: _Spec) -> tuple[Operation, Operation]:
    gates = [gate.get("name", "") for gate in spec.get("schedulingGates") or ()]
    if HOLD_GATE not in gates:
        raise PatchError("the pod is not held any more")
    path = f"/spec/schedulingGates/{gates.index(HOLD_GATE)}"
    return _test(f"{path}/name", HOLD_GATE), {"op": "remove", "path": path}


def _annotating(metadata: _Metadata, annotations: Mapping[str, str]) -> list[Operation]:
    if not annotations:
        return []
    if not metadata.get("annotations"):
        return [{"op": "add", "path": _ANNOTATIONS, "value": dict(annotations)}]
    return [
        {"op": "add", "path": f"{_ANNOTATIONS}/{jsonpointer.escape(name)}", "value": value}
        for name, value in annotations.items()
    ]


def _test(path: str, value: object) -> Operation:
    return {"op": "test", "path": path, "value": value}


Condition: TypeAlias = Mapping[str, str]
"""A condition of a pod as it is written: type, status, reason, message, lastTransitionTime."""

_JSON: Final = "application/json"
_JSON_PATCH: Final = "application/json-patch+json"
_MERGE_PATCH: Final = "application/merge-patch+json"
_STRATEGIC_MERGE_PATCH: Final = "application/strategic-merge-patch+json"


class WriteKind(StrEnum):
    """The kinds of writes, as metrics name them."""

    NOMINATE = "nominate"
    WITHDRAW = "withdraw"
    CONDITION = "condition"
    TOUCH = "touch"
    NOTE_PLAN = "note-plan"
    RELEASE = "release"


@dataclass(eq=False)
class PodWriter:
    """Writes held pods; any number of calls may be made at a time, some are in flight.

    Every method raises a `WriteError`, and says by its `failure` what to do. All may be repeated:
    a write that was made but not answered is made again, or found made.
    """

    # to the API server, of its own: renewals of the Lease must not wait behind it
    connection: Connection
    _: KW_ONLY
    may_write: Callable[[], bool]  # whether this replica leads at this very moment
    clock: Callable[[], float] = time.monotonic  # seconds that only go forward
    now: Callable[[], datetime] = lambda: datetime.now(UTC)  # the time of day
    # called with each write, and what became of it
    count_write: Callable[[WriteKind, WriteFailure | None], None] = lambda _kind, _failure: None
    # called with the seconds from a pod's creation to its release
    observe_hold: Callable[[float], None] = lambda _seconds: None

    def __post_init__(self) -> None:
        self._paced = PacedConnection(self.connection, may_write=self.may_write, clock=self.clock)

    @property
    def pause_seconds(self) -> float:
        """Seconds to wait before the next write; 0 unless the API server was out of reach."""
        return self._paced.pause_seconds

    async def nominate(
        self, held: HeldPod, node_name: str, condition: Condition | None = None
    ) -> None:
        """Set the nominated node, and a condition of ours, in one write."""
        with self._counted(WriteKind.NOMINATE):
            status = {"nominatedNodeName": node_name}
            await self._patch_status(held, status, condition, is_own=False)

    async def withdraw(self, held: HeldPod, condition: Condition | None = None) -> None:
        """Take a nomination back, and set a condition of ours, in one write."""
        with self._counted(WriteKind.WITHDRAW):
            await self._patch_status(held, {"nominatedNodeName": None}, condition)

    async def withdraw_unfollowed(self, pod: Pod, node_name: str) -> None:
        """Take the nomination of a pod back that was released and is not bound.

        The pod is read before, and written in that version alone. A pod for which the scheduler
        evicts others keeps its nomination: then that is the scheduler's own.
        """
        with self._counted(WriteKind.WITHDRAW):
            path = _path(pod)
            raw = await self._paced.request("GET", path, b"", _JSON, is_large=False)
            with _patch_errors_as_changed():
                patch = unfollowed_nomination_patch(raw, pod.uid, node_name)
            if patch is None:
                return
            body = msgspec.json.encode(patch)
            try:
                await self._paced.request(
                    *("PATCH", f"{path}/status", body, _STRATEGIC_MERGE_PATCH),
                    is_large=False,
                    is_own=True,
                )
            except UnclearError as error:
                raise WriteError(error.failure_where_it_applies, error) from error

    async def set_condition(self, held: HeldPod, condition: Condition) -> None:
        """Set a condition of ours; others stay."""
        with self._counted(WriteKind.CONDITION):
            await self._patch_status(held, {}, condition)

    async def touch(self, held: HeldPod) -> None:
        """Change an annotation, so that a scheduler that was restarted notes the nomination again.

        A scheduler before 1.37 forgets those of gated pods until the pod is updated, and a write
        that changes nothing is no update.
        """
        moment = f"{self.now().astimezone(UTC):%Y-%m-%dT%H:%M:%S.%fZ}"
        metadata = {"uid": held.pod.uid, "annotations": {RESERVED_AT_ANNOTATION: moment}}
        with self._counted(WriteKind.TOUCH):
            await self._patch_held(held, _MERGE_PATCH, {"metadata": metadata})

    async def note_plan(self, held: HeldPod, text: str | None) -> None:
        """Annotate a pod with whom is evicted for it; None takes that back."""
        metadata = {"uid": held.pod.uid, "annotations": {RECLAIM_PLAN_ANNOTATION: text}}
        with self._counted(WriteKind.NOTE_PLAN):
            await self._patch_held(held, _MERGE_PATCH, {"metadata": metadata})

    async def release(
        self,
        held: HeldPod,
        annotations: Mapping[str, str] = NO_ANNOTATIONS,
        *,
        is_repeated: bool = False,
    ) -> None:
        """Remove our gate, and annotate the pod in the same write.

        The gate alone goes where the pod has no room for annotations: whoever created it may have
        filled it up.

        Args:
            held: with our gate, maybe among others.
            annotations: to add.
            is_repeated: whether this has failed before: the API server is asked for the pod first,
                and where it answers, a failure is that of the pod alone.
        """
        with self._counted(WriteKind.RELEASE):
            await self._release(held, annotations, is_repeated=is_repeated)
        if held.pod.created is not None:
            self.observe_hold((self.now() - held.pod.created).total_seconds())

    async def _release(
        self, held: HeldPod, annotations: Mapping[str, str], *, is_repeated: bool
    ) -> None:
        raw = b"" if is_repeated else held.raw
        patch = _release_patch_of(raw or await self._stored(held), held.pod.uid, annotations)
        try:
            await self._send(held, _JSON_PATCH, patch, is_own=is_repeated)
        except UnclearError as refusal:
            stored = await self._stored(held)
            again = _release_patch_of(stored, held.pod.uid, annotations)
            if again == patch:
                failure = refusal.failure_where_it_applies
                if failure is not WriteFailure.REFUSED or not annotations:
                    raise WriteError(failure, refusal) from refusal
                again = _release_patch_of(stored, held.pod.uid)
            await self._patch_held(held, _JSON_PATCH, again)

    async def _patch_status(
        self,
        held: HeldPod,
        status: Mapping[str, object],
        condition: Condition | None,
        *,
        is_own: bool = True,
    ) -> None:
        metadata: dict[str, object] = {"uid": held.pod.uid}
        conditions: dict[str, object] = {}
        if condition is not None:
            conditions["conditions"] = [condition]
            metadata["annotations"] = {WAIT_ANNOTATION: _wait_in(condition)}
        body = {"metadata": metadata, "status": {**status, **conditions}}
        await self._patch_held(held, _STRATEGIC_MERGE_PATCH, body, "/status", is_own=is_own)

    async def _patch_held(
        self,
        held: HeldPod,
        content_type: str,
        body: object,
        subresource: str = "",
        *,
        is_own: bool = True,
    ) -> None:
        """Patch a pod that is held; one that is not held any more has changed."""
        try:
            await self._send(held, content_type, body, subresource, is_own=is_own)
        except UnclearError as refusal:
            _release_patch_of(await self._stored(held), held.pod.uid)  # fails if it is not held
            raise WriteError(refusal.failure_where_it_applies, refusal) from refusal

    async def _stored(self, held: HeldPod) -> bytes:
        """Return the pod as it is stored now."""
        is_large = not held.raw
        raw = await self._paced.request("GET", _path(held.pod), b"", _JSON, is_large=is_large)
        with _patch_errors_as_changed():
            uid = uid_of(raw)
        if uid != held.pod.uid:
            error = ApiError(HTTPStatus.NOT_FOUND, "NotFound", "another pod has its name")
            raise WriteError(WriteFailure.GONE, error)
        return raw

    async def _send(
        self,
        held: HeldPod,
        content_type: str,
        body: object,
        subresource: str = "",
        *,
        is_own: bool,
    ) -> None:
        path, data = f"{_path(held.pod)}{subresource}", msgspec.json.encode(body)
        await self._paced.request(
            "PATCH", path, data, content_type, is_large=not held.raw, is_own=is_own
        )

    @contextmanager
    def _counted(self, kind: WriteKind) -> Iterator[None]:
        try:
            yield
        except WriteError as error:
            self.count_write(kind, error.failure)
            raise
        self.count_write(kind, None)


async def all_of(writes: Iterable[Awaitable[None]]) -> None:
    """Make writes at a time, to their ends."""
    for error in await asyncio.gather(*writes, return_exceptions=True):
        if error is not None:
            raise error


def _path(pod: Pod) -> str:
    return f"/api/v1/namespaces/{pod.namespace}/pods/{pod.name}"


def _release_patch_of(
    raw: bytes, uid: str, annotations: Mapping[str, str] = NO_ANNOTATIONS
) -> tuple[Operation, ...]:
    with _patch_errors_as_changed():
        return release_patch(raw, uid, annotations)


@contextmanager
def _patch_errors_as_changed() -> Iterator[None]:
    try:
        yield
    except PatchError as error:
        raise WriteError(WriteFailure.CHANGED, ApiError(NO_CONTACT, "", str(error))) from error


def _wait_in(condition: Condition) -> str | None:
    """Return a condition that is true as an annotation; None, which removes it, for another."""
    if condition["status"] != "True":
        return None
    return ": ".join(filter(None, (condition.get("reason"), condition.get("message"))))
