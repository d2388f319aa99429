"""Whether a leader releases held pods, as somebody sees who takes no part in its election."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime
from http import HTTPStatus
from typing import Final

import msgspec

from engine.model.hold import RELEASING_ANNOTATION
from webhook.cluster.client.connection import NO_CONTACT, ApiError, Connection
from webhook.controllers.leader_election import LeaseTimes, steady_clock

STALE_SECONDS: Final = 60.0
"""A leader that has not renewed its Lease for so long releases nothing any more."""

_POLL_SECONDS: Final = 2.0
_TERM_SECONDS: Final = float(LeaseTimes().duration_seconds)


class _Metadata(msgspec.Struct, rename="camel"):
    resource_version: str = ""
    annotations: dict[str, str] | None = None


class _Spec(msgspec.Struct, rename="camel"):
    holder_identity: str | None = None
    renew_time: datetime | None = None


class _Lease(msgspec.Struct):
    metadata: _Metadata = msgspec.field(default_factory=_Metadata)
    spec: _Spec = msgspec.field(default_factory=_Spec)

    @property
    def is_of_a_releasing_holder(self) -> bool:
        is_releasing = (self.metadata.annotations or {}).get(RELEASING_ANNOTATION) == "true"
        return is_releasing and bool(self.spec.holder_identity)


async def releasing_holder(
    connection: Connection,
    namespace: str,
    name: str,
    *,
    clock: Callable[[], float] = steady_clock,
    now: Callable[[], datetime] = lambda: datetime.now(UTC),
    sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
) -> str:
    """Return the holder of a Lease who renews it and releases pods, "" if nobody does.

    A renewal that is seen counts, whatever any clock says, which takes seconds. That there is none
    is known after a minute without one; or after a term of the Lease without one, if the last was
    a minute ago by our clock. So it takes a minute at most.

    Args:
        connection: to the API server.
        namespace: of the Lease.
        name: of the Lease.
        clock: seconds that only go forward.
        now: the time of day.
        sleep: waits for some seconds.

    Raises:
        ApiError: the Lease cannot be read.
    """
    last = await _read(connection, namespace, name)
    started = clock()
    while last is not None:
        renewed_at = last.spec.renew_time
        is_old = renewed_at is None or (now() - renewed_at).total_seconds() >= STALE_SECONDS
        if clock() - started >= (_TERM_SECONDS if is_old else STALE_SECONDS):
            break
        await sleep(_POLL_SECONDS)
        before, last = last, await _read(connection, namespace, name)
        if last is not None and last != before and last.is_of_a_releasing_holder:
            return last.spec.holder_identity or ""
    return ""


async def _read(connection: Connection, namespace: str, name: str) -> _Lease | None:
    path = f"/apis/coordination.k8s.io/v1/namespaces/{namespace}/leases/{name}"
    try:
        return msgspec.json.decode(await connection.get(path), type=_Lease)
    except ApiError as error:
        if error.status == HTTPStatus.NOT_FOUND:
            return None
        raise
    except msgspec.DecodeError as error:
        raise ApiError(NO_CONTACT, "", f"the Lease cannot be read: {error}") from error
