"""Writes of held pods: nominations, conditions, and the release itself.

A nomination is written by the subresource `pods/status`, which ignores the spec, but not
annotations; the gate goes by another patch, which ignores the status. So a pod for which room is
reserved takes two writes, and any other one.
Each awaits its answer, and the watches of others keep that order: the scheduler sees the
nomination before the gate goes. A pod is never replaced (PUT): that drops fields we do not know.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime
from enum import StrEnum
from http import HTTPStatus
from typing import Final, TypeAlias

import msgspec

from engine.errors import PatchError
from engine.model.hold import RECLAIM_PLAN_ANNOTATION, RESERVED_AT_ANNOTATION, WAIT_ANNOTATION
from webhook.cluster.client.connection import NO_CONTACT, ApiError, Connection
from webhook.controllers.release.paced_connection import PacedConnection
from webhook.controllers.release.release_patch import (
    NO_ANNOTATIONS,
    Operation,
    release_patch,
    stale_nomination_patch,
    uid_of,
)
from webhook.controllers.release.unbound_releases import Nomination
from webhook.controllers.release.write_error import (
    UnclearError,
    WriteError,
    WriteFailure,
)
from webhook.placement.held_pods import HeldPod

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


class PodWriter:
    """Writes held pods; any number of calls may be made at a time, some are in flight.

    Every method raises a `WriteError`, and says by its `failure` what to do. All may be repeated:
    a write that was made but not answered is made again, or found made.

    Args:
        connection: to the API server, of its own: renewals of the Lease must not wait behind it.
        may_write: whether this replica leads at this very moment.
        clock: seconds that only go forward.
        now: the time of day.
        count_write: called with each write, and what became of it.
        observe_hold: called with the seconds from a pod's creation to its release.
    """

    def __init__(
        self,
        connection: Connection,
        *,
        may_write: Callable[[], bool],
        clock: Callable[[], float] = time.monotonic,
        now: Callable[[], datetime] = lambda: datetime.now(UTC),
        count_write: Callable[[WriteKind, WriteFailure | None], None] = lambda _kind, _failure: (
            None
        ),
        observe_hold: Callable[[float], None] = lambda _seconds: None,
    ) -> None:
        self._paced = PacedConnection(connection, may_write=may_write, clock=clock)
        self._now = now
        self._count_write = count_write
        self._observe_hold = observe_hold

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

    async def withdraw_stale(self, nomination: Nomination) -> None:
        """Take the nomination of a pod back that was released and is not bound.

        The pod is read before, and written in that version alone. A pod for which the scheduler
        evicts others keeps its nomination: then that is the scheduler's own.
        """
        with self._counted(WriteKind.WITHDRAW):
            pod = f"/api/v1/namespaces/{nomination.namespace}/pods/{nomination.name}"
            raw = await self._paced.request("GET", pod, b"", _JSON, is_large=False)
            with _patch_errors_as_changed():
                patch = stale_nomination_patch(raw, nomination.uid, nomination.node_name)
            if patch is None:
                return
            body = msgspec.json.encode(patch)
            try:
                await self._paced.request(
                    *("PATCH", f"{pod}/status", body, _STRATEGIC_MERGE_PATCH),
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
        moment = f"{self._now().astimezone(UTC):%Y-%m-%dT%H:%M:%S.%fZ}"
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
            self._observe_hold((self._now() - held.pod.created).total_seconds())

    async def _release(
        self, held: HeldPod, annotations: Mapping[str, str], *, is_repeated: bool
    ) -> None:
        raw = b"" if is_repeated else held.raw
        patch = _release_patch(raw or await self._stored(held), held.pod.uid, annotations)
        try:
            await self._send(held, _JSON_PATCH, patch, is_own=is_repeated)
        except UnclearError as refusal:
            stored = await self._stored(held)
            again = _release_patch(stored, held.pod.uid, annotations)
            if again == patch:
                failure = refusal.failure_where_it_applies
                if failure is not WriteFailure.REFUSED or not annotations:
                    raise WriteError(failure, refusal) from refusal
                again = _release_patch(stored, held.pod.uid)
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
            _release_patch(await self._stored(held), held.pod.uid)  # fails if it is not held
            raise WriteError(refusal.failure_where_it_applies, refusal) from refusal

    async def _stored(self, held: HeldPod) -> bytes:
        """Return the pod as it is stored now."""
        is_large = not held.raw
        raw = await self._paced.request("GET", _path(held), b"", _JSON, is_large=is_large)
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
        path, data = f"{_path(held)}{subresource}", msgspec.json.encode(body)
        await self._paced.request(
            "PATCH", path, data, content_type, is_large=not held.raw, is_own=is_own
        )

    @contextmanager
    def _counted(self, kind: WriteKind) -> Iterator[None]:
        try:
            yield
        except WriteError as error:
            self._count_write(kind, error.failure)
            raise
        self._count_write(kind, None)


async def all_of(writes: Iterable[Awaitable[None]]) -> None:
    """Make writes at a time, to their ends.

    Raises:
        WriteError: of the first that failed.
    """
    for error in await asyncio.gather(*writes, return_exceptions=True):
        if error is not None:
            raise error


def _path(held: HeldPod) -> str:
    return f"/api/v1/namespaces/{held.pod.namespace}/pods/{held.pod.name}"


def _release_patch(
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
