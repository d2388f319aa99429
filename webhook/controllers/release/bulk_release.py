"""Release of many held pods at once, by whoever has the right: nothing else of ours need run."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Iterator
from datetime import datetime
from functools import partial
from typing import Final

import msgspec

from engine.model import api
from engine.model.hold import HOLD_GATE, RELEASE_BY_ANNOTATION, is_held_for_gang, is_queued
from engine.model.pod import Pod
from engine.model.pod_shape import shape_of
from engine.model.time import SECOND, Micros, date, micros
from engine.release import HeldPod, WriteFailure
from webhook.cluster.client.connection import Connection, Query
from webhook.cluster.client.lists import list_kind
from webhook.cluster.objects import UNREADABLE, readable_part
from webhook.controllers.release.pod_writer import PodWriter, WriteError

_UNBOUND: Final[Query] = (("fieldSelector", "spec.nodeName="),)
"""A held pod has no node, and most pods have one."""

_NO_SHAPE: Final = shape_of(api.Pod())


class _Metadata(msgspec.Struct, rename="camel", gc=False):
    name: str = ""
    namespace: str = ""
    uid: str = ""
    resource_version: str = ""
    creation_timestamp: datetime | None = None
    annotations: dict[str, str] | None = None


class _Gate(msgspec.Struct, gc=False):
    name: str = ""


class _Spec(msgspec.Struct, rename="camel", gc=False):
    scheduling_gates: list[_Gate] | None = None


class _Pod(msgspec.Struct, gc=False):
    metadata: _Metadata = msgspec.field(default_factory=_Metadata)
    spec: _Spec = msgspec.field(default_factory=_Spec)


_decode: Final = msgspec.json.Decoder(_Pod).decode


async def list_holds(
    connection: Connection, *, namespace: str, hold_seconds: int, now: Micros
) -> dict[str, HeldPod]:
    """Return the pods with our gate, maybe among others, by uid.

    Of many there is no more in memory than a release needs: who they are, and as `raw` their uid
    and gates.
    """
    decode = partial(_hold_in, hold_seconds=hold_seconds, now=now)
    holds = await list_kind(connection, "Pod", namespace, query=_UNBOUND, decode=decode)
    return {hold.pod.uid: hold for hold in holds or ()}


def release_by_of(
    annotations: dict[str, str] | None, created: datetime, hold_seconds: int
) -> Micros:
    """Return the moment by which a held pod is to be released.

    Its annotation is the pod's own, and whoever may patch the pod may write it: it counts up to the
    bound of a hold, and one that is missing or cannot be read does not count.
    """
    bound = Micros(micros(created) + hold_seconds * SECOND)
    try:
        noted = micros(datetime.fromisoformat((annotations or {})[RELEASE_BY_ANNOTATION]))
    except (KeyError, ValueError, OverflowError):
        return bound
    return min(noted, bound)


def _hold_in(raw: msgspec.Raw, hold_seconds: int, now: Micros) -> HeldPod | None:
    """Return a pod of a list, None if it does not have our gate."""
    try:
        wire = _decode(raw)
    except UNREADABLE:
        wire = readable_part(raw, _Pod)
    gates = [gate.name for gate in wire.spec.scheduling_gates or ()]
    if HOLD_GATE not in gates:
        return None
    meta = wire.metadata
    created = meta.creation_timestamp or date(now)
    waits_for_quota = is_queued(gates, meta.annotations or {})
    kept = {"metadata": {"uid": meta.uid}, "spec": {"schedulingGates": wire.spec.scheduling_gates}}
    return HeldPod(
        pod=Pod(namespace=meta.namespace, name=meta.name, uid=meta.uid, shape=_NO_SHAPE),
        version=api.version_number(meta.resource_version),
        raw=msgspec.json.encode(kept),
        release_by=release_by_of(meta.annotations, created, hold_seconds),
        seen_at=now,
        is_queued=waits_for_quota,
        is_held_for_gang=is_held_for_gang(gates, meta.annotations or {}),
    )


_WORKERS: Final = 50
_MOST_ATTEMPTS: Final = 5
_DONE: Final = frozenset({WriteFailure.GONE, WriteFailure.CHANGED})
"""Failures of a pod that somebody else has deleted or released."""


async def release_holds(
    writer: PodWriter,
    holds: Iterable[HeldPod],
    *,
    progress: Callable[[], None] = lambda: None,
    sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
) -> dict[str, str]:
    """Remove our gate from pods; return why it could not be, by uid.

    One that fails does not keep the others waiting.
    """
    failures: dict[str, str] = {}
    waiting = iter(holds)
    async with asyncio.TaskGroup() as workers:
        for _ in range(_WORKERS):
            workers.create_task(_release_waiting(writer, waiting, failures, progress, sleep))
    return failures


async def _release_waiting(
    writer: PodWriter,
    waiting: Iterator[HeldPod],
    failures: dict[str, str],
    progress: Callable[[], None],
    sleep: Callable[[float], Awaitable[None]],
) -> None:
    for hold in waiting:
        failure = await _release(writer, hold, sleep)
        if failure:
            failures[hold.pod.uid] = failure
        progress()


async def _release(
    writer: PodWriter, hold: HeldPod, sleep: Callable[[float], Awaitable[None]]
) -> str:
    """Release a pod; return why it could not be, "" if it is."""
    attempts = 0
    while True:
        attempts += 1
        try:
            await writer.release(hold)
        except WriteError as error:
            if error.failure in _DONE:
                return ""
            if error.failure is WriteFailure.REFUSED or attempts == _MOST_ATTEMPTS:
                return error.message
            await sleep(writer.pause_seconds)
        else:
            return ""
