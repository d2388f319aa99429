"""Leader election: at most one of several replicas holds the Lease, and may write.

The Lease is an object of the API server, changed by compare-and-swap on its resourceVersion. No
replica relies on the clock of another: candidates measure, on their own steady clock, for how long
they have observed no renewal, and the leader stops well before any of them can take over.

Calls are few: everybody watches the Lease, the leader renews it by one write, and a candidate
reads it only where the watch shows that it may be free. Without a watch it is read again and again.
"""

from __future__ import annotations

import asyncio
import logging
import random
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from http import HTTPStatus
from typing import Any, TypeAlias

import msgspec

from webhook.cluster.client.connection import ApiError, Connection, find_as, object_changes
from webhook.placement.held_pods import ObservedLease

Duty: TypeAlias = Callable[[], Awaitable[None]]
"""A task of the leader: started when it begins to lead, cancelled when it stops."""

_NEVER = float("-inf")
_DOMAIN = "stowplan.dev/"  # of the annotations that a leader writes
_JITTER = 0.2  # part of a pause, so that replicas that start together spread their requests
_WATCH_AGAIN_SECONDS = 5.0
_STEADY_CLOCK = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)  # counts suspended time too

_FAILURES = (ApiError, TimeoutError, msgspec.DecodeError)  # the last: a proxy answered

_log = logging.getLogger(__name__)


def steady_clock() -> float:
    """Return seconds that only go forward, time during which the machine was suspended included."""
    return time.clock_gettime(_STEADY_CLOCK)


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaseTimes:
    """Durations of the election; the defaults are those of the control plane's own components."""

    duration_seconds: int = 15  # without an observed renewal, after which a candidate takes over
    # after its last renewal, during which the leader acts. The gap to `duration_seconds` allows for
    # the drift of two steady clocks in that time
    deadline_seconds: float = 10
    # pause between attempts to acquire, and after one to renew that failed
    retry_seconds: float = 2

    @property
    def renew_seconds(self) -> float:
        """Pause between two renewals: it leaves time for a second attempt before the deadline."""
        return 0.4 * self.deadline_seconds

    @property
    def attempt_seconds(self) -> float:
        """Timeout of an attempt: likewise."""
        return self.deadline_seconds / 3

    def __post_init__(self) -> None:
        if not 0 < self.retry_seconds < self.deadline_seconds < self.duration_seconds:
            raise ValueError("a lease needs: 0 < retry < deadline < duration")


class LeaseElector:
    """Leader election as one replica takes part in it.

    INVARIANT: at most one elector `is_leader` at any moment. The leader counts its deadline from
    before it sent a renewal, candidates count from after they observed it, and for longer.
    """

    def __init__(
        self,
        connection: Connection,
        *,
        namespace: str,
        name: str,
        identity: str,  # of this process, from `new_identity`: unique for ever
        times: LeaseTimes | None = None,  # durations of the election
        clock: Callable[[], float] = steady_clock,  # seconds on a steady clock, for deadlines
        # the time of day, written for people to read and never compared
        now: Callable[[], datetime] = lambda: datetime.now(UTC),
    ) -> None:
        self.identity = identity
        # whether another replica has led before this one, since this one led last
        self.succeeds = False
        # the annotations that it left when it released the Lease; none where it did not
        self.inherited: Mapping[str, str] = {}
        self._left: dict[str, str] = {}  # for the next leader
        self._connection = connection
        self._collection = f"/apis/coordination.k8s.io/v1/namespaces/{namespace}/leases"
        self._path = f"{self._collection}/{name}"
        self._metadata = {"name": name, "namespace": namespace}
        self._times = times or LeaseTimes()
        self._clock = clock
        self._now = now
        self._leader_until = _NEVER
        self._was_leader = False
        self._has_seen_another = False  # lead, since this one did
        self._failure = ""  # of the latest attempt
        self._last_record: tuple[object, ...] = ()
        self._changed_at = 0.0
        self._observed_duration = self._times.duration_seconds
        self._renewed_at = _NEVER
        self._holder = ""
        self._observed_annotations: Mapping[str, str] = {}
        self._annotations: dict[str, str] = {}
        self._written: dict[str, Any] | None = None  # the Lease as this replica wrote it last
        self._version = 0
        self._is_watching = False
        self._changed = asyncio.Event()  # something that need not wait for the end of a pause
        self._tasks: dict[Duty, asyncio.Future[None]] = {}

    @property
    def is_leader(self) -> bool:
        """Whether this replica may write now; to be read right before every write.

        It turns false by itself when the deadline passes, also in a process that was suspended for
        longer than its lease.
        """
        return self.seconds_left > 0

    @property
    def seconds_left(self) -> float:
        """Seconds for which this replica may write at any rate; 0 or less where it may not."""
        return self._leader_until - self._clock()

    @property
    def observed(self) -> ObservedLease:
        """The Lease as this replica has last seen it, whoever holds it."""
        return ObservedLease(
            holder=self._holder,
            annotations=self._observed_annotations,
            age_seconds=self._clock() - self._renewed_at,
        )

    def annotate(self, key: str, value: str) -> None:
        """Write an annotation of the Lease at once if it is new, and with each renewal.

        For the leader, and for as long as it leads: a later leader writes its own.
        """
        if self._annotations.get(key) != value:
            self._annotations[key] = value
            self._changed.set()

    def leave(self, key: str, value: str) -> None:
        """Leave an annotation for the next leader, if this one releases the Lease."""
        self._left[key] = value

    async def run(self, *duties: Duty) -> None:
        """Take part until cancelled; then end the duties and, after them, release the Lease."""
        watch = asyncio.create_task(self._watch())
        try:
            while True:
                if self._may_be_ours():
                    await self.attempt()
                await self._assign(duties)
                await self._wait()
                await self._assign(duties)
        finally:
            watch.cancel()
            await self._end_duties()
            await self.release()

    async def follow(self) -> None:
        """Observe the Lease until cancelled, without taking part."""
        watch = asyncio.create_task(self._watch())
        try:
            while True:
                if not self._is_watching:
                    await self._look()
                await asyncio.sleep(self._pause())
        finally:
            watch.cancel()

    async def _look(self) -> None:
        """Read the Lease as long as no watch shows it."""
        failure = ""
        try:
            async with asyncio.timeout(self._times.attempt_seconds):
                lease = await self._read()
                if lease is not None:
                    self._observe(lease)
        except _FAILURES as error:
            failure = str(error) or "no answer in time"
        self._log_change(failure)

    async def _watch(self) -> None:
        """Observe each change of the Lease, until cancelled."""
        while True:
            try:
                async with object_changes(self._connection, self._path) as changes:
                    self._is_watching = True
                    if not self.is_leader:
                        self._version = 0  # versions begin again where a backup was restored
                    async for event in changes:
                        self._take(event.type, msgspec.json.decode(event.object))
            except _FAILURES as error:
                _log.debug("lease not watched: %s", error)
            finally:
                self._is_watching = False
            await asyncio.sleep(_WATCH_AGAIN_SECONDS)

    def _take(self, kind: str, lease: dict[str, Any]) -> None:
        """Observe a change; one that is older than what is known tells nothing."""
        if _version(lease) <= self._version:
            return
        before = self._holder
        if kind == "DELETED":
            self._holder, self._version = "", _version(lease)
        elif self._observe(lease) not in {"", self.identity}:
            self._leader_until = _NEVER
        if self._holder != before:
            self._changed.set()

    def _may_be_ours(self) -> bool:
        """Whether an attempt may succeed, as far as the watch shows."""
        if self.is_leader or not self._is_watching or self._holder in {"", self.identity}:
            return True
        return self._clock() - self._changed_at >= self._observed_duration

    async def _wait(self) -> None:
        """Wait until the next attempt is due, or something has changed."""
        with suppress(TimeoutError):
            async with asyncio.timeout(self._pause()):
                await self._changed.wait()
        self._changed.clear()

    async def attempt(self) -> None:
        """Acquire the Lease if it is free, renew it if it is ours; done within the deadline."""
        failure = ""
        try:
            async with asyncio.timeout(self._attempt_seconds()):
                await self._acquire_or_renew()
        except _FAILURES as error:
            failure = str(error) or "no answer in time"
        self._log_change(failure)
        if self._was_leader != self.is_leader:
            self._was_leader = self.is_leader
            _log.info("%s %s", self.identity, "leads" if self.is_leader else "no longer leads")

    def _log_change(self, failure: str) -> None:
        """Log why the Lease is not reached, "" if it is, where that was not so before."""
        if failure == self._failure:
            return
        if failure:
            _log.warning("lease not reached: %s", failure)
        else:
            _log.info("lease reached again")
        self._failure = failure

    async def release(self) -> None:
        """Release the Lease if it is ours, so that another replica need not wait for its end."""
        self._leader_until = _NEVER
        try:
            async with asyncio.timeout(self._attempt_seconds()):
                lease = await self._read()
                if lease and _spec(lease).get("holderIdentity") == self.identity:
                    self._annotations = dict(self._left)
                    await self._write(lease, holderIdentity="", leaseDurationSeconds=1)
        except _FAILURES as error:
            _log.warning("lease not released, it will expire: %s", error or "no answer in time")

    async def _acquire_or_renew(self) -> None:
        if self.is_leader and self._written is not None:
            try:
                await self._take_over(self._written)
            except ApiError as error:
                if error.status not in {HTTPStatus.CONFLICT, HTTPStatus.NOT_FOUND}:
                    raise
                self._written = None  # somebody has changed or deleted it: it is read again
            else:
                return
        lease = await self._read()
        if lease is None or self._may_acquire(lease):
            await self._take_over(lease)

    async def _take_over(self, lease: dict[str, Any] | None) -> None:
        """Write that this replica holds the Lease, over a version of it, and lead from then on."""
        if not self.is_leader:
            self._annotations.clear()
        spec = _spec(lease or {})
        ours = spec.get("holderIdentity") == self.identity
        changes: dict[str, Any] = {
            "holderIdentity": self.identity,
            "leaseDurationSeconds": self._times.duration_seconds,
        }
        if not ours:
            changes["acquireTime"] = self._timestamp()
            changes["leaseTransitions"] = (
                0 if lease is None else int(spec.get("leaseTransitions") or 0) + 1
            )
        if not self.is_leader:
            is_known = lease is not None or self._has_seen_another
            self.succeeds = is_known and not ours
            is_released = not spec.get("holderIdentity")
            self.inherited = _split_annotations(lease)[0] if lease and is_released else {}
            self._left.clear()
        started = self._clock()
        await self._write(lease, **changes)
        self._has_seen_another = False
        self._leader_until = started + self._times.deadline_seconds
        self._renewed_at = started

    def _observe(self, lease: dict[str, Any]) -> str:
        """Record what the Lease says and when it changed; returns the holder."""
        spec = _spec(lease)
        holder: str = spec.get("holderIdentity") or ""
        self._version = _version(lease)
        self._observed_duration = spec.get("leaseDurationSeconds") or self._times.duration_seconds
        self._holder, self._observed_annotations = holder, _split_annotations(lease)[0]
        self._has_seen_another = self._has_seen_another or holder not in {"", self.identity}
        record = (holder, spec.get("renewTime"), spec.get("leaseTransitions"))
        if record != self._last_record:
            if self._last_record:
                self._renewed_at = self._clock()
            self._last_record, self._changed_at = record, self._clock()
        return holder

    def _may_acquire(self, lease: dict[str, Any]) -> bool:
        """Whether the Lease is ours, free or expired."""
        if self._observe(lease) in {"", self.identity}:
            return True
        self._leader_until = _NEVER
        return self._clock() - self._changed_at >= self._observed_duration

    async def _read(self) -> dict[str, Any] | None:
        return await find_as(self._connection, self._path, dict[str, Any])

    async def _write(self, lease: dict[str, Any] | None, **changes: object) -> None:
        """Create or replace the Lease; fails with 409 if another replica was faster."""
        body = lease or {
            "apiVersion": "coordination.k8s.io/v1",
            "kind": "Lease",
            "metadata": self._metadata,
        }
        ours, others = dict(self._annotations), _split_annotations(body)[1]
        metadata = {**body["metadata"], "annotations": {**others, **ours}}
        spec = {**_spec(body), **changes, "renewTime": self._timestamp()}
        body = {**body, "metadata": metadata, "spec": spec}
        method, path = ("PUT", self._path) if lease else ("POST", self._collection)
        answer = await self._connection.write(
            method, path, msgspec.json.encode(body), content_type="application/json"
        )
        written: dict[str, Any] = msgspec.json.decode(answer)
        self._written, self._version = written, _version(written)
        self._holder, self._observed_annotations = spec["holderIdentity"], ours

    def _timestamp(self) -> str:
        return f"{self._now().astimezone(UTC):%Y-%m-%dT%H:%M:%S.%fZ}"

    def _attempt_seconds(self) -> float:
        longest = self._times.attempt_seconds
        return min(longest, self._leader_until - self._clock()) if self.is_leader else longest

    def _pause(self) -> float:
        times = self._times
        is_renewed = self.is_leader and not self._failure
        pause = times.renew_seconds if is_renewed else times.retry_seconds
        pause *= random.uniform(1 - _JITTER, 1 + _JITTER)  # noqa: S311 - spreads load, guards nothing
        return min(pause, self._leader_until - self._clock()) if self.is_leader else pause

    async def _assign(self, duties: Sequence[Duty]) -> None:
        """Start the duties that do not run, or end them all if this replica does not lead."""
        if not self.is_leader:
            await self._end_duties()
            return
        for duty in duties:
            if duty not in self._tasks or self._tasks[duty].done():
                self._tasks[duty] = asyncio.ensure_future(_logged(duty))

    async def _end_duties(self) -> None:
        ending = list(self._tasks.values())
        self._tasks.clear()
        for task in ending:
            task.cancel()
        await asyncio.gather(*ending, return_exceptions=True)


async def _logged(duty: Duty) -> None:
    try:
        await duty()
    except Exception:  # noqa: BLE001 - it is started again while this replica leads
        _log.exception("a task of the leader failed")


def _spec(lease: dict[str, Any]) -> dict[str, Any]:
    return lease.get("spec") or {}


def _split_annotations(lease: dict[str, Any]) -> tuple[dict[str, str], dict[str, str]]:
    """Return the annotations of a Lease that its holder has written, and all others."""
    annotations: dict[str, str] = (lease.get("metadata") or {}).get("annotations") or {}
    ours = {key: value for key, value in annotations.items() if key.startswith(_DOMAIN)}
    return ours, {key: value for key, value in annotations.items() if key not in ours}


def _version(lease: dict[str, Any]) -> int:
    """Return the resourceVersion, 0 where there is none: of two versions the later is greater."""
    text = str((lease.get("metadata") or {}).get("resourceVersion") or "")
    return int(text) if text.isdecimal() else 0
