"""Who of several replicas may write: one holder of a Lease at a time.

The Lease is an object of the API server, changed by compare-and-swap on its resourceVersion. No
replica believes the clock of another: those that wait measure, on their own steady clock, how long
they have seen no renewal, and the holder stops acting a while before any of them can lose patience.
"""

from __future__ import annotations

import asyncio
import logging
import random
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, TypeAlias

import msgspec

from webhook.cluster.client.connection import ApiError, Connection

Duty: TypeAlias = Callable[[], Awaitable[None]]
"""What the holder does: begun when it starts to lead, cancelled when it does not any more."""

_NEVER = float("-inf")
_JITTER = 0.2  # part of a pause; replicas that start together should not ask together
_NOT_FOUND = 404
_STEADY_CLOCK = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)  # counts suspended time too

_FAILURES = (ApiError, TimeoutError, msgspec.DecodeError)  # the last: a proxy answered

_log = logging.getLogger(__name__)


def steady_clock() -> float:
    """Return seconds from some moment on, never set back, and running while we are suspended."""
    return time.clock_gettime(_STEADY_CLOCK)


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaseTimes:
    """How patient everyone is; the defaults are those of the control plane's own components.

    Attributes:
        duration_seconds: how long others must have seen no renewal before one takes over.
        deadline_seconds: how long after its last renewal the holder goes on. The gap to
            `duration_seconds` is what two steady clocks may drift apart in that time.
        retry_seconds: the pause between attempts to take or renew.

    Raises:
        ValueError: they are not in the order retry < deadline < duration.
    """

    duration_seconds: int = 15
    deadline_seconds: float = 10
    retry_seconds: float = 2

    def __post_init__(self) -> None:
        if not 0 < self.retry_seconds < self.deadline_seconds < self.duration_seconds:
            raise ValueError("a lease needs: 0 < retry < deadline < duration")


class LeaseElector:
    """One replica's part in choosing who leads.

    INVARIANT: at most one elector `is_leader` at any moment. The holder counts its deadline from
    before it sent a renewal, the others count theirs from after they saw it, and theirs is longer.

    Args:
        connection: to the API server.
        namespace: where the Lease is; it is created if it is missing.
        name: of the Lease.
        identity: of this process, from `new_identity`; no other may ever have the same.
        times: how patient everyone is.
        clock: seconds on a steady clock, for deadlines.
        now: the time of day, which is written for people to read and never compared.
    """

    def __init__(
        self,
        connection: Connection,
        *,
        namespace: str,
        name: str,
        identity: str,
        times: LeaseTimes | None = None,
        clock: Callable[[], float] = steady_clock,
        now: Callable[[], datetime] = lambda: datetime.now(UTC),
    ) -> None:
        self.identity = identity
        self._connection = connection
        self._collection = f"/apis/coordination.k8s.io/v1/namespaces/{namespace}/leases"
        self._path = f"{self._collection}/{name}"
        self._metadata = {"name": name, "namespace": namespace}
        self._times = times or LeaseTimes()
        self._clock = clock
        self._now = now
        self._leader_until = _NEVER
        self._told_leading = False
        self._seen: tuple[object, ...] = ()
        self._seen_at = 0.0
        self._at_work: dict[Duty, asyncio.Future[None]] = {}

    @property
    def is_leader(self) -> bool:
        """Whether this replica may write now; ask again right before every write.

        It turns false by itself when the deadline passes: a process that was frozen for longer
        than its lease knows so before it does anything else.
        """
        return self._clock() < self._leader_until

    async def run(self, *duties: Duty) -> None:
        """Take part until cancelled; then end the duties and, after them, release the Lease.

        Args:
            duties: what to do while leading; one that ends or fails is begun again.
        """
        try:
            while True:
                await self.attempt()
                await self._assign(duties)
                await asyncio.sleep(self._pause())
                await self._assign(duties)
        finally:
            await self._end_duties()
            await self.release()

    async def attempt(self) -> None:
        """Take the Lease if it is free, renew it if it is ours; done within the deadline."""
        try:
            async with asyncio.timeout(self._patience()):
                await self._take_or_renew()
        except _FAILURES as error:
            _log.warning("lease not reached: %s", error or "no answer in time")
        if self._told_leading != self.is_leader:
            self._told_leading = self.is_leader
            _log.info("%s %s", self.identity, "leads" if self.is_leader else "leads no more")

    async def release(self) -> None:
        """Give the Lease up if it is ours, so that another replica need not wait for its end."""
        self._leader_until = _NEVER
        try:
            async with asyncio.timeout(self._patience()):
                lease = await self._read()
                if lease and _spec(lease).get("holderIdentity") == self.identity:
                    await self._write(lease, holderIdentity="", leaseDurationSeconds=1)
        except _FAILURES as error:
            _log.warning("lease not released, it will run out: %s", error or "no answer in time")

    async def _take_or_renew(self) -> None:
        lease = await self._read()
        if lease is not None and not self._may_take(_spec(lease)):
            return
        spec = _spec(lease or {})
        ours = spec.get("holderIdentity") == self.identity
        changes: dict[str, Any] = {
            "holderIdentity": self.identity,
            "leaseDurationSeconds": self._times.duration_seconds,
        }
        if not ours:
            changes["acquireTime"] = self._moment()
            changes["leaseTransitions"] = 0 if lease is None else _transitions(spec) + 1
        started = self._clock()
        await self._write(lease, **changes)
        self._leader_until = started + self._times.deadline_seconds

    def _may_take(self, spec: dict[str, Any]) -> bool:
        """Whether the Lease is ours or free; note when we last saw it change hands or renewed."""
        holder = spec.get("holderIdentity") or ""
        seen = (holder, spec.get("renewTime"), spec.get("leaseTransitions"))
        if seen != self._seen:
            self._seen, self._seen_at = seen, self._clock()
        if holder in {"", self.identity}:
            return True
        self._leader_until = _NEVER
        duration = spec.get("leaseDurationSeconds") or self._times.duration_seconds
        return self._clock() - self._seen_at >= duration

    async def _read(self) -> dict[str, Any] | None:
        try:
            lease: dict[str, Any] = msgspec.json.decode(await self._connection.get(self._path))
        except ApiError as error:
            if error.status == _NOT_FOUND:
                return None
            raise
        return lease

    async def _write(self, lease: dict[str, Any] | None, **changes: object) -> None:
        """Create or replace the Lease; refused with 409 if another was faster."""
        body = lease or {
            "apiVersion": "coordination.k8s.io/v1",
            "kind": "Lease",
            "metadata": self._metadata,
        }
        body = {**body, "spec": {**_spec(body), **changes, "renewTime": self._moment()}}
        method, path = ("PUT", self._path) if lease else ("POST", self._collection)
        await self._connection.write(
            method, path, msgspec.json.encode(body), content_type="application/json"
        )

    def _moment(self) -> str:
        return f"{self._now().astimezone(UTC):%Y-%m-%dT%H:%M:%S.%fZ}"

    def _patience(self) -> float:
        """Return how long an attempt may take: time for a second one, and never past the end."""
        half = self._times.deadline_seconds / 2
        return min(half, self._leader_until - self._clock()) if self.is_leader else half

    def _pause(self) -> float:
        pause = self._times.retry_seconds * random.uniform(1 - _JITTER, 1 + _JITTER)  # noqa: S311 - spreads load, guards nothing
        return min(pause, self._leader_until - self._clock()) if self.is_leader else pause

    async def _assign(self, duties: tuple[Duty, ...]) -> None:
        """Begin what has ended or was never begun, or end everything if we do not lead."""
        if not self.is_leader:
            await self._end_duties()
            return
        for duty in duties:
            if duty not in self._at_work or self._at_work[duty].done():
                self._at_work[duty] = asyncio.ensure_future(_logged(duty))

    async def _end_duties(self) -> None:
        ending = list(self._at_work.values())
        self._at_work.clear()
        for task in ending:
            task.cancel()
        await asyncio.gather(*ending, return_exceptions=True)


async def _logged(duty: Duty) -> None:
    try:
        await duty()
    except Exception:  # noqa: BLE001 - it is begun again, as long as we lead
        _log.exception("a duty of the lease holder failed")


def _spec(lease: dict[str, Any]) -> dict[str, Any]:
    return lease.get("spec") or {}


def _transitions(spec: dict[str, Any]) -> int:
    return int(spec.get("leaseTransitions") or 0)
