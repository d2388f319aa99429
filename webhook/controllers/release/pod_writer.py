"""Writes of held pods: nominations, conditions, and the release itself.

A nomination is written by the subresource `pods/status`, which ignores what stands beside the
status; the gate goes by another patch, which ignores the status. So a placed pod takes two writes.
Each awaits its answer, and the watches of others keep that order: the scheduler sees the
nomination before the gate goes. A pod is never replaced (PUT): that drops fields we do not know.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from http import HTTPStatus
from typing import Final, TypeAlias

import msgspec
from aiolimiter import AsyncLimiter

from engine.errors import PatchError
from engine.model.hold import RESERVED_AT_ANNOTATION
from webhook.cluster.client.connection import NO_CONTACT, ApiError, Connection
from webhook.cluster.timing import Backoff
from webhook.controllers.release.release_patch import (
    NO_ANNOTATIONS,
    Operation,
    release_patch,
    uid_of,
)
from webhook.controllers.release.write_error import (
    UnclearError,
    WriteError,
    WriteFailure,
    write_error_of,
)
from webhook.placement.held_pods import HeldPod

Condition: TypeAlias = Mapping[str, str]
"""A condition of a pod as it is written: type, status, reason, message, lastTransitionTime."""

_JSON: Final = "application/json"
_JSON_PATCH: Final = "application/json-patch+json"
_MERGE_PATCH: Final = "application/merge-patch+json"
_STRATEGIC_MERGE_PATCH: Final = "application/strategic-merge-patch+json"

_PER_SECOND: Final = (
    300  # requests; what Kueue settled on, far below the seats of a service account
)
_BURST: Final = 500
_MOST_IN_FLIGHT: Final = 50
_CALL_SECONDS: Final = 10.0
_FIRST_PAUSE_SECONDS, _LONGEST_PAUSE_SECONDS = 0.5, 15.0


def write_limiter() -> AsyncLimiter:
    """Return the rate of all writes of one controller: 300 in a second, 500 in a burst."""
    return AsyncLimiter(_BURST, _BURST / _PER_SECOND)


class PodWriter:
    """Writes held pods; any number of calls may be made at a time, some are in flight.

    Every method raises a `WriteError`, and says by its `failure` what to do. All may be repeated:
    a write that was made but not answered is made again, or found made.

    Args:
        connection: to the API server, of its own: renewals of the Lease must not wait behind it.
        may_write: whether this replica leads at this very moment.
        limiter: rate of all requests; that of `write_limiter` if not given.
        clock: seconds that only go forward.
        now: the time of day, for people to read.
    """

    def __init__(
        self,
        connection: Connection,
        *,
        may_write: Callable[[], bool],
        limiter: AsyncLimiter | None = None,
        clock: Callable[[], float] = time.monotonic,
        now: Callable[[], datetime] = lambda: datetime.now(UTC),
    ) -> None:
        self._connection = connection
        self._may_write = may_write
        self._limiter = limiter or write_limiter()
        self._in_flight = asyncio.Semaphore(_MOST_IN_FLIGHT)
        self._clock = clock
        self._now = now
        self._backoff = Backoff(_FIRST_PAUSE_SECONDS, _LONGEST_PAUSE_SECONDS)
        self._pause_until = 0.0

    @property
    def pause_seconds(self) -> float:
        """Seconds to wait before the next write; 0 unless the API server was out of reach."""
        return max(self._pause_until - self._clock(), 0.0)

    async def nominate(
        self, held: HeldPod, node_name: str, condition: Condition | None = None
    ) -> None:
        """Set the nominated node, and a condition of ours, in one write."""
        await self._patch_status(held, {"nominatedNodeName": node_name or None}, condition)

    async def withdraw(self, held: HeldPod, condition: Condition | None = None) -> None:
        """Take a nomination back, and set a condition of ours, in one write."""
        await self.nominate(held, "", condition)

    async def set_condition(self, held: HeldPod, condition: Condition) -> None:
        """Set a condition of ours; others stay."""
        await self._patch_status(held, {}, condition)

    async def touch(self, held: HeldPod) -> None:
        """Change an annotation, so that a scheduler that was restarted notes the nomination again.

        A scheduler before 1.37 forgets those of gated pods until the pod is updated, and a write
        that changes nothing is no update.
        """
        moment = f"{self._now().astimezone(UTC):%Y-%m-%dT%H:%M:%S.%fZ}"
        metadata = {"uid": held.pod.uid, "annotations": {RESERVED_AT_ANNOTATION: moment}}
        await self._patch_held(held, _MERGE_PATCH, {"metadata": metadata})

    async def release(
        self,
        held: HeldPod,
        operations: Sequence[Operation] = (),
        annotations: Mapping[str, str] = NO_ANNOTATIONS,
    ) -> None:
        """Remove our gate, and change and annotate the pod in the same write.

        Args:
            held: with our gate, maybe among others.
            operations: of RFC 6902, made for the pod as it is in `held.raw`.
            annotations: to add.
        """
        raw = held.raw or await self._stored(held)
        patch = _release_patch(raw, held.pod.uid, operations, annotations)
        try:
            await self._send(held, _JSON_PATCH, patch)
        except UnclearError as refusal:
            stored = await self._stored(held)
            again = _release_patch(stored, held.pod.uid, operations, annotations)
            if again == patch:
                raise WriteError(refusal.failure_where_it_applies, refusal) from refusal
            if operations:
                raise WriteError(WriteFailure.CHANGED, refusal) from refusal
            await self._patch_held(held, _JSON_PATCH, again)

    async def _patch_status(
        self, held: HeldPod, status: Mapping[str, object], condition: Condition | None
    ) -> None:
        conditions = {} if condition is None else {"conditions": [condition]}
        body = {"metadata": {"uid": held.pod.uid}, "status": {**status, **conditions}}
        await self._patch_held(held, _STRATEGIC_MERGE_PATCH, body, "/status")

    async def _patch_held(
        self, held: HeldPod, content_type: str, body: object, subresource: str = ""
    ) -> None:
        """Patch a pod that is held; one that is not held any more has changed."""
        try:
            await self._send(held, content_type, body, subresource)
        except UnclearError as refusal:
            _release_patch(await self._stored(held), held.pod.uid)  # fails if it is not held
            raise WriteError(refusal.failure_where_it_applies, refusal) from refusal

    async def _stored(self, held: HeldPod) -> bytes:
        """Return the pod as it is stored now."""
        raw = await self._request("GET", _path(held))
        with _patch_errors_as_changed():
            uid = uid_of(raw)
        if uid != held.pod.uid:
            error = ApiError(HTTPStatus.NOT_FOUND, "NotFound", "another pod has its name")
            raise WriteError(WriteFailure.GONE, error)
        return raw

    async def _send(
        self, held: HeldPod, content_type: str, body: object, subresource: str = ""
    ) -> None:
        path, data = f"{_path(held)}{subresource}", msgspec.json.encode(body)
        await self._request("PATCH", path, data, content_type)

    async def _request(
        self, method: str, path: str, body: bytes = b"", content_type: str = _JSON
    ) -> bytes:
        """Send one request as soon as rate and number in flight allow; return the answer.

        Raises:
            WriteError: it failed.
            UnclearError: it failed, and the pod itself tells why.
        """
        async with self._in_flight:
            await self._limiter.acquire()
            if not self._may_write():
                error = ApiError(NO_CONTACT, "", "this replica does not lead")
                raise WriteError(WriteFailure.NOT_LEADING, error)
            try:
                async with asyncio.timeout(_CALL_SECONDS):
                    answer = await self._connection.write(
                        method, path, body, content_type=content_type
                    )
            except TimeoutError as error:
                failed = ApiError(NO_CONTACT, "", "no answer in time")
                raise self._failed(failed) from error
            except ApiError as error:
                raise self._failed(error) from error
        self._reached()
        return answer

    def _failed(self, error: ApiError) -> WriteError | UnclearError:
        """Return the error with what became of the write; a server out of reach has a pause."""
        failed = write_error_of(error)
        is_unreachable = (
            isinstance(failed, WriteError) and failed.failure is WriteFailure.UNREACHABLE
        )
        if not is_unreachable:
            self._reached()
        elif not self.pause_seconds:  # of many that fail at a time the first counts
            self._pause_until = self._clock() + self._backoff.next(error.retry_after_seconds)
        return failed

    def _reached(self) -> None:
        self._pause_until = 0.0
        self._backoff.reset()


def _path(held: HeldPod) -> str:
    return f"/api/v1/namespaces/{held.pod.namespace}/pods/{held.pod.name}"


def _release_patch(
    raw: bytes,
    uid: str,
    operations: Sequence[Operation] = (),
    annotations: Mapping[str, str] = NO_ANNOTATIONS,
) -> tuple[Operation, ...]:
    with _patch_errors_as_changed():
        return release_patch(raw, uid, operations, annotations)


@contextmanager
def _patch_errors_as_changed() -> Iterator[None]:
    try:
        yield
    except PatchError as error:
        raise WriteError(WriteFailure.CHANGED, ApiError(NO_CONTACT, "", str(error))) from error
