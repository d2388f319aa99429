"""Evictions by the Eviction API, and what is told of them: outcomes, Events, metrics.

Each eviction names the pod by its uid, so that it never meets another one of that name. With a dry
run the API server checks everything, budgets included, and evicts nothing. A pod whose budget gives
way is deleted, as nothing else ends it.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass
from datetime import UTC, datetime
from enum import Enum
from typing import Final, Literal, NamedTuple, Protocol

import msgspec
from prometheus_client import CollectorRegistry, Counter, Gauge

from engine.eviction import Victim
from engine.model.elastic_quota import QuotaKey
from engine.release import WriteFailure
from webhook.cluster.client.connection import ApiError, Connection, Query, find_as
from webhook.cluster.object_event import ObjectEvent, ObjectReference, pod_reference
from webhook.controllers.release.pod_writer import PacedConnection, UnclearError, WriteError


class EvictionOutcome(Enum):
    """The ends of a reclaim, as metrics name them."""

    BOUND = "bound"  # its pod runs
    REVOKED = "revoked"  # its victims are gone; nobody waits for their room
    LOST = "lost"  # its pod was not released, or not bound, in time
    NO_ROOM = "no-room"  # the victims are gone, and somebody else took their room
    STILL_ENDING = "still-ending"  # victims take more than ten minutes to end
    BLOCKED = "blocked"  # a PodDisruptionBudget stands against an eviction
    REFUSED = "refused"  # somebody's admission, or a right that we lack, stands against a write
    UNREACHABLE = "unreachable"  # the API server was out of reach before anything was evicted
    NEEDLESS = "needless"  # nothing had to be evicted after all
    CHANGED = "changed"  # the cluster has changed, and no plan is left
    ABANDONED = "abandoned"  # its pod is gone, or was released by somebody else
    REPORTED = "reported"  # the mode is DryRun: the plan was told, and nothing done


_JSON: Final = "application/json"
_DRY_RUN: Final[Query] = (("dryRun", "All"),)


class EvictionResult(Enum):
    """The result of an eviction."""

    EVICTED = "evicted"  # the pod is being ended, or would be, where it was a dry run
    DELETED = "deleted"  # the same, against its PodDisruptionBudget
    GONE = "gone"  # it does not exist any more, or another pod has its name
    BLOCKED = "blocked"  # a PodDisruptionBudget stands against it
    REFUSED = "refused"  # somebody's admission, or a right that we lack, stands against it
    # there was no answer, or the API server is too busy. Maybe it was evicted
    UNREACHABLE = "unreachable"
    NOT_LEADING = "not-leading"  # this replica no longer leads; nothing was sent


_RESULTS: Final = {
    WriteFailure.GONE: EvictionResult.GONE,
    WriteFailure.BLOCKED: EvictionResult.BLOCKED,
    WriteFailure.UNREACHABLE: EvictionResult.UNREACHABLE,
    WriteFailure.NOT_LEADING: EvictionResult.NOT_LEADING,
}


class Eviction(msgspec.Struct, frozen=True):
    result: EvictionResult
    message: str = ""  # of who stands against it, "" where nobody does


class _Metadata(msgspec.Struct, rename="camel"):
    uid: str = ""
    resource_version: str = ""


class _Stored(msgspec.Struct):
    metadata: _Metadata


_MOST_TRIES: Final = 3
"""Of a deletion of a pod that changes meanwhile."""


@dataclass(eq=False)
class EvictionWriter:
    """Evicts pods; one at a time, or some."""

    connection: Connection  # to the API server
    _: KW_ONLY
    may_write: Callable[[], bool]  # whether this replica leads at this very moment
    clock: Callable[[], float] = time.monotonic  # seconds that only go forward
    # called with the result of each eviction that is no dry run
    count: Callable[[EvictionResult], None] = lambda _result: None

    def __post_init__(self) -> None:
        self._paced = PacedConnection(self.connection, may_write=self.may_write, clock=self.clock)

    @property
    def pause_seconds(self) -> float:
        """Seconds to wait before the next one; 0 unless the API server was out of reach."""
        return self._paced.pause_seconds

    async def evict(
        self, namespace: str, name: str, uid: str, *, is_dry_run: bool = False
    ) -> Eviction:
        """Evict a pod, with the grace period that it asks for; may be repeated."""
        body = {
            "apiVersion": "policy/v1",
            "kind": "Eviction",
            "metadata": {"namespace": namespace, "name": name},
            "deleteOptions": {"preconditions": {"uid": uid}},
        }
        path = f"/api/v1/namespaces/{namespace}/pods/{name}/eviction"
        eviction = Eviction(EvictionResult.EVICTED)
        try:
            await self._send("POST", path, body, _DRY_RUN if is_dry_run else ())
        except WriteError as error:
            eviction = _eviction_of(error)
        except UnclearError as error:
            # A 409 is of the uid: another pod has its name.
            result = EvictionResult.GONE if _is_conflict(error) else EvictionResult.REFUSED
            eviction = Eviction(result, error.message)
        if not is_dry_run:
            self.count(eviction.result)
        return eviction

    async def delete(
        self, namespace: str, name: str, uid: str, *, is_dry_run: bool = False
    ) -> Eviction:
        """Delete a pod against its budgets, with the grace period that it asks for.

        It is deleted as it was read right before, or not at all.
        """
        path = f"/api/v1/namespaces/{namespace}/pods/{name}"
        for _ in range(_MOST_TRIES):
            eviction = await self._delete_as_read(path, uid, is_dry_run=is_dry_run)
            if eviction is not None:
                break
        else:
            message = "it changes faster than it can be deleted"
            eviction = Eviction(EvictionResult.REFUSED, message)
        if not is_dry_run:
            self.count(eviction.result)
        return eviction

    async def _delete_as_read(self, path: str, uid: str, *, is_dry_run: bool) -> Eviction | None:
        """Delete a pod unless it changes meanwhile; return None where it does."""
        try:
            stored = await find_as(self.connection, path, _Stored)
            if stored is None or stored.metadata.uid != uid:
                return Eviction(EvictionResult.GONE)
            options = {
                "apiVersion": "v1",
                "kind": "DeleteOptions",
                "preconditions": {"uid": uid, "resourceVersion": stored.metadata.resource_version},
                # The API server reads no query where there is a body.
                "dryRun": ["All"] if is_dry_run else [],
            }
            await self._send("DELETE", path, options)
        except WriteError as error:
            return _eviction_of(error)
        except UnclearError as error:
            if _is_conflict(error):
                return None
            return Eviction(EvictionResult.REFUSED, error.message)
        except ApiError as error:
            return Eviction(EvictionResult.UNREACHABLE, error.message)
        return Eviction(EvictionResult.DELETED)

    async def _send(
        self, method: str, path: str, body: Mapping[str, object], query: Query = ()
    ) -> None:
        encoded = msgspec.json.encode(body)
        await self._paced.request(method, path, encoded, _JSON, is_large=False, query=query)


def _eviction_of(error: WriteError) -> Eviction:
    return Eviction(_RESULTS.get(error.failure, EvictionResult.REFUSED), error.message)


def _is_conflict(error: UnclearError) -> bool:
    return error.failure_where_it_applies is WriteFailure.CHANGED


_MOST_NAMED: Final = 5


class EventReasons(NamedTuple):
    """The reasons of Events, such as `WouldReclaim`, `Reclaiming` and `Reclaimed`."""

    would_evict: str  # on the pod that waits, in mode DryRun
    evicting: str  # on the pod that waits
    evicted: str  # on each victim


class Evicting(Protocol):
    """A plan, as far as it is told."""

    @property
    def victims(self) -> Sequence[Victim]:
        """Who is evicted."""

    @property
    def message(self) -> str:
        """Why, in one line."""


@dataclass(eq=False)
class EvictionEvents:
    """Writes Events; one that cannot be written is left out."""

    connection: Connection
    _: KW_ONLY
    identity: str
    now: Callable[[], datetime] = lambda: datetime.now(UTC)

    async def would_evict(
        self, about: ObjectReference, plan: Evicting, reasons: EventReasons
    ) -> None:
        """Say what mode On would do for a pod or a quota."""
        message = f"would evict {victims_text(plan.victims)} (DryRun): {plan.message}"
        await self._write(about, "Normal", reasons.would_evict, message)

    async def evicting(self, about: ObjectReference, plan: Evicting, reasons: EventReasons) -> None:
        """Say on a pod or a quota who is evicted for it."""
        message = f"evicts {victims_text(plan.victims)}: {plan.message}"
        await self._write(about, "Normal", reasons.evicting, message)

    async def evicted(self, victim: Victim, message: str, reasons: EventReasons) -> None:
        """Say on a pod that was evicted for whom, and why."""
        namespace, _, name = victim.key.partition("/")
        reference = pod_reference(namespace, name, victim.uid)
        await self._write(reference, "Warning", reasons.evicted, message)

    async def _write(
        self,
        about: ObjectReference,
        kind: Literal["Normal", "Warning"],
        reason: str,
        message: str,
    ) -> None:
        now = self.now()
        event = ObjectEvent(
            about=about,
            type=kind,
            reason=reason,
            action="Evict",
            message=message,
            since=now,
            until=now,
        )
        await event.write(self.connection, self.identity)


def victims_text(victims: Sequence[Victim]) -> str:
    """Return the names of some victims; of many the first and how many more there are."""
    names = [f"`{victim.key}`" for victim in victims]
    more = len(names) - _MOST_NAMED
    return ", ".join(names[:_MOST_NAMED]) + (f" and {more} more" if more > 0 else "")


_MOST_QUOTAS: Final = 500
"""As many as other metrics of quotas have; evictions of pods of further ones are not counted."""


class EvictionMetrics:
    """Metrics of evictions; they stand still on replicas that do not lead."""

    def __init__(self, registry: CollectorRegistry, is_paused: Callable[[], bool]) -> None:
        self._reclaims = Counter(
            "stowplan_reclaims",
            "Evictions of others for a pod, by why it may (source) and how they ended.",
            ["source", "outcome"],
            registry=registry,
        )
        self._evictions = Counter(
            "stowplan_evictions",
            "Evictions of pods that borrow, by what became of them.",
            ["result"],
            registry=registry,
        )
        self._quotas: set[QuotaKey] = set()
        self._evicted_pods = Counter(
            "stowplan_quota_evicted_pods",
            "Pods of a quota that were evicted, for others or above its runtime.",
            ["quota_namespace", "quota"],
            registry=registry,
        )
        paused = Gauge(
            "stowplan_reclaim_paused",
            "1 while the leader evicts nobody for some namespace, since too many reclaims for it"
            " did not end in a binding.",
            registry=registry,
        )
        paused.set_function(lambda: float(is_paused()))

    def ended(self, source: str, outcome: EvictionOutcome) -> None:
        """Count one reclaim of a source of plans."""
        self._reclaims.labels(source, outcome.value).inc()

    def evicted(self, result: EvictionResult) -> None:
        """Count one eviction that was sent."""
        self._evictions.labels(result.value).inc()

    def evicted_pod(self, quota: QuotaKey | None) -> None:
        """Count a pod that was evicted, by the quota that it counts for."""
        if quota is None or (quota not in self._quotas and len(self._quotas) >= _MOST_QUOTAS):
            return
        self._quotas.add(quota)
        namespace, _, name = quota
        self._evicted_pods.labels(namespace, name).inc()
