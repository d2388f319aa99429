"""Bounds on evictions: the running pods, claims of plans under way, guards, `maxUnavailable`.

A claim ends with its plan: when it is given up, so are its victims. Until then no
other plan takes them, and all count them as leaving. Guards are in a ConfigMap, which is written
before anything is evicted: the next leader knows each eviction that was sent, and maybe some that
were not.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Callable, Collection, Container, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Final, TypeVar

import msgspec

from engine.eviction import (
    DEFAULT_IN_FLIGHT_PERCENT,
    DEPLOYMENT,
    GuardState,
    RunningPod,
    Victim,
    WorkloadKey,
    most_in_flight,
    most_unavailable,
    running_pod_of,
    with_eviction,
    with_outcome,
)
from engine.model.pod import Pod
from engine.model.time import Micros
from webhook.cluster.client.connection import ApiError, Connection, find_as
from webhook.cluster.client.watched_objects import ConfigMapStore
from webhook.cluster.objects import UNREADABLE

_T = TypeVar("_T")


@dataclass(eq=False)
class RunningPods:
    """An observer that keeps what matters of each bound pod, some 300 bytes."""

    excluded_namespaces: Container[str] = ()  # whose pods are never evicted for others

    def __post_init__(self) -> None:
        self._by_key: dict[str, RunningPod] = {}
        self._deleting: dict[str, RunningPod] = {}
        self._count_of = Counter[str]()  # by namespace
        self._leaving_of = Counter[WorkloadKey]()
        self._unready_of = Counter[WorkloadKey]()  # that are not leaving

    def __len__(self) -> int:
        return len(self._by_key)

    def __iter__(self) -> Iterator[RunningPod]:
        """Iterate over those of this moment, in any order."""
        return iter(self._by_key.values())

    @property
    def deleting(self) -> Collection[RunningPod]:
        """Those that are on their way out."""
        return self._deleting.values()

    def count_of(self, namespace: str) -> int:
        """Return how many pods of a namespace are bound and have not finished."""
        return self._count_of[namespace]

    def unready_of(self, workload: WorkloadKey) -> int:
        """Return how many bound pods of a workload are not ready, without those on their way out.

        Pods that wait, for quota or for a node, are not among them.
        """
        return self._unready_of[workload]

    def unavailable_of(self, workload: WorkloadKey) -> int:
        """Return how many bound pods of a workload are not ready, or on their way out."""
        return self._unready_of[workload] + self._leaving_of[workload]

    def get(self, key: str) -> RunningPod | None:
        """Return a pod by `namespace/name`, None if it is not bound."""
        return self._by_key.get(key)

    def runs(self, key: str, uid: str) -> bool:
        """Return whether a pod is bound and has not finished."""
        found = self._by_key.get(key)
        return found is not None and found.uid == uid

    def pod_changed(self, pod: Pod, version: int, raw: bytes | msgspec.Raw) -> None:  # noqa: ARG002 - as every observer
        """Keep a pod if it is bound."""
        running = None if pod.namespace in self.excluded_namespaces else running_pod_of(pod)
        self.pod_deleted(pod.namespace, pod.name)
        if running is not None:
            self._by_key[running.key] = running
            self._count(running, 1)
            if running.deleting:
                self._deleting[running.key] = running

    def pod_deleted(self, namespace: str, name: str) -> None:
        """Forget a pod."""
        key = f"{namespace}/{name}"
        self._deleting.pop(key, None)
        running = self._by_key.pop(key, None)
        if running is not None:
            self._count(running, -1)

    def _count(self, pod: RunningPod, number: int) -> None:
        _add(self._count_of, pod.namespace, number)
        if pod.workload is not None and pod.deleting:
            _add(self._leaving_of, pod.workload, number)
        elif pod.workload is not None and not pod.is_ready:
            _add(self._unready_of, pod.workload, number)


def _add(counts: Counter[_T], key: _T, number: int) -> None:
    counts[key] += number
    if not counts[key]:
        del counts[key]


class PlannedVictims:
    """Who is about to be evicted, for whom."""

    def __init__(self, running: RunningPods, percent: int = DEFAULT_IN_FLIGHT_PERCENT) -> None:
        self._running = running
        self._percent = percent
        self._claimed: dict[str, tuple[Victim, ...]] = {}  # by claimant

    def set(self, claimant: str, victims: Iterable[Victim]) -> None:
        """Count pods as leaving in the plans of others; those claimed before are not any more.

        The claimant is the uid of the pod that they are evicted for, or the key of a quota.
        """
        self._claimed[claimant] = tuple(victims)

    def remove(self, claimant: str) -> None:
        """Forget a plan, which has ended or whose victims are gone."""
        self._claimed.pop(claimant, None)

    def of_others(self, claimant: str) -> frozenset[str]:
        return frozenset(victim.uid for victim in self.victims_of_others(claimant))

    def victims_of_others(self, claimant: str) -> list[Victim]:
        return [
            victim
            for key, victims in self._claimed.items()
            if key != claimant
            for victim in victims
        ]

    def room(self, namespace: str) -> int:
        """Return how many pods of a namespace may be evicted on top of those of plans."""
        return self._room(namespace, self._leaving()[namespace])

    def at_limit(self, claimant: str) -> frozenset[str]:
        """Return the namespaces of which plans evict as many pods as may be at a time.

        None for a plan under way: it has its place.
        """
        if claimant in self._claimed:
            return frozenset()
        leaving = self._leaving().items()
        return frozenset(name for name, count in leaving if self._room(name, count) <= 0)

    def _room(self, namespace: str, leaving: int) -> int:
        return most_in_flight(self._running.count_of(namespace), self._percent) - leaving

    def _leaving(self) -> Counter[str]:
        """Return how many victims of all plans still run, by namespace."""
        return Counter(
            victim.namespace
            for victim in self.victims_of_others("")
            if self._running.runs(victim.key, victim.uid)
        )


_KEY: Final = "guards.json"

_log = logging.getLogger(__name__)


@dataclass(eq=False)
class Guards:
    """What evictions there were so far, as the leader keeps it and its successor finds it."""

    config_map: ConfigMapStore  # outlives the leader
    now: Callable[[], Micros]  # the time of day

    def __post_init__(self) -> None:
        self._writing = asyncio.Lock()
        self.state = GuardState()  # of this moment

    @property
    def is_paused(self) -> bool:
        """Whether no plan is made for pods of some namespace."""
        now = self.now()
        return any(now < until for until in self.state.pauses.values())

    async def load(self) -> None:
        """Take over what an earlier leader has written.

        Raises:
            ApiError: it cannot be read.
        """
        data = (await self.config_map.read()).data
        try:
            self.state = msgspec.json.decode(data.get(_KEY, "{}"), type=GuardState)
        except UNREADABLE as error:
            name = self.config_map.name
            _log.warning("ConfigMap `%s` cannot be read, and is begun anew: %s", name, error)
            self.state = GuardState()

    async def about_to_evict(self, victims: Sequence[Victim]) -> None:
        """Write down evictions, and count them.

        Raises:
            ApiError: they are not written, so nothing may be evicted.
        """
        now = self.now()
        async with self._writing:
            await self._write(_with_evictions(self.state, victims, now))
            self.state = _with_evictions(self.state, victims, now)  # it may have changed since

    async def ended(self, preemptor: str, namespace: str, *, is_bound: bool) -> None:
        """Count how a reclaim for a pod of a namespace ended, and write it down.

        Raises:
            ApiError: it is counted, but not written.
        """
        self.state = with_outcome(self.state, preemptor, namespace, self.now(), bound=is_bound)
        async with self._writing:
            await self._write(self.state)

    async def _write(self, state: GuardState) -> None:
        await self.config_map.write({_KEY: msgspec.json.encode(state).decode()})


def _with_evictions(state: GuardState, victims: Sequence[Victim], now: Micros) -> GuardState:
    for victim in victims:
        state = with_eviction(state, victim.uid, victim.owner, victim.assigned_at, now)
    return state


MOST_READ: Final = 32
"""Workloads of the victims of one plan that are read; whoever creates pods may name many."""

_KNOWN_SECONDS: Final = 60.0
_MOST_KNOWN: Final = 2000

_SEEN_SECONDS: Final = 15.0
"""For which an eviction counts that the watch does not show."""


class _RollingUpdate(msgspec.Struct, rename="camel"):
    max_unavailable: int | str | None = None


class _Strategy(msgspec.Struct, rename="camel"):
    rolling_update: _RollingUpdate | None = None


class _Spec(msgspec.Struct, rename="camel"):
    replicas: int = 1
    strategy: _Strategy = msgspec.field(default_factory=_Strategy)  # of a Deployment
    update_strategy: _Strategy = msgspec.field(default_factory=_Strategy)  # of a StatefulSet


class _Workload(msgspec.Struct):
    spec: _Spec


@dataclass(frozen=True, slots=True)
class _Known:
    """What a workload says."""

    most_unavailable: int | None  # None where it says nothing, or cannot be read
    until: float  # when it is to be read again


@dataclass(frozen=True, slots=True)
class _Sent:
    """An eviction that was sent."""

    key: str  # `namespace/name` of the pod
    workload: WorkloadKey
    until: float  # when it counts no longer, whatever the watch shows


@dataclass(eq=False)
class WorkloadTurns:
    """Lets evictions through as fast as `maxUnavailable` of the workloads of the pods allows.

    A workload is read by its name when its pods are to be evicted, and for a while not again;
    nothing watches workloads. Pods that wait for quota or for a node do not count as missing: what
    was taken back from a workload would keep the rest from being taken back, for as long as it
    borrows.
    """

    connection: Connection  # to the API server
    running: RunningPods  # the pods that are bound
    # whether a pod by `namespace/name` should be gone by now: its node may be dead
    is_overdue: Callable[[str], bool]
    clock: Callable[[], float]  # seconds that only go forward

    def __post_init__(self) -> None:
        self._known: dict[WorkloadKey, _Known] = {}  # the one that was read last is the last
        self._sent: dict[str, _Sent] = {}  # by uid

    async def read(self, victims: Iterable[Victim]) -> None:
        """Read the workloads of victims that are not known; where that fails they say nothing."""
        pods = filter(None, map(self._pod, victims))
        workloads = dict.fromkeys(pod.workload for pod in pods if pod.workload is not None)
        unknown = (each for each in workloads if not self._is_known(each))
        for workload in list(islice(unknown, MOST_READ)):
            most = await self._read(workload)
            self._known.pop(workload, None)
            self._known[workload] = _Known(most, self.clock() + _KNOWN_SECONDS)
        for workload in list(self._known)[:-_MOST_KNOWN]:
            del self._known[workload]

    def exhausted(self) -> frozenset[WorkloadKey]:
        """Return the known workloads that miss too many pods, though nobody evicts any of them."""
        overdue = Counter(pod.workload for pod in self.running.deleting if self.is_overdue(pod.key))
        return frozenset(
            workload
            for workload, known in self._known.items()
            if known.most_unavailable is not None
            and self.running.unready_of(workload) + overdue[workload] >= known.most_unavailable
            and self._is_known(workload)
        )

    def keeps(self, victims: Iterable[Victim]) -> bool:
        """Return whether one of some pods must stay, whoever of its workload ends."""
        exhausted = self.exhausted()
        pods = filter(None, map(self._pod, victims))
        return any(pod.is_ready and pod.workload in exhausted for pod in pods)

    def take(self, victim: Victim) -> bool:
        """Take the turn of a pod to be evicted; False if its workload misses too many pods."""
        pod = self._pod(victim)
        if pod is None or pod.workload is None:
            return True
        known = self._known.get(pod.workload)
        if known is None or known.most_unavailable is None:
            return True
        if self._is_available(pod):
            missing = self.running.unavailable_of(pod.workload)
            missing += sum(each.workload == pod.workload for each in self._sent_unseen())
            if missing >= known.most_unavailable:
                return False
        self._sent[pod.uid] = _Sent(pod.key, pod.workload, self.clock() + _SEEN_SECONDS)
        return True

    def give_back(self, victim: Victim) -> None:
        """Note that a pod was not evicted after all."""
        self._sent.pop(victim.uid, None)

    def _is_known(self, workload: WorkloadKey) -> bool:
        known = self._known.get(workload)
        return known is not None and self.clock() < known.until

    def _pod(self, victim: Victim) -> RunningPod | None:
        pod = self.running.get(victim.key)
        return pod if pod is not None and pod.uid == victim.uid else None

    def _is_available(self, pod: RunningPod) -> bool:
        """Return whether a workload misses a further pod without this one."""
        return pod.is_ready and not pod.deleting and pod.uid not in self._sent

    def _sent_unseen(self) -> Iterator[_Sent]:
        """Yield the evictions of ready pods that the watch does not show yet."""
        now = self.clock()
        for uid, sent in list(self._sent.items()):
            pod = self.running.get(sent.key)
            if now >= sent.until or pod is None or pod.uid != uid or pod.deleting:
                del self._sent[uid]
            elif pod.is_ready:
                yield sent

    async def _read(self, workload: WorkloadKey) -> int | None:
        """Return how many pods of a workload may be missing, as it says now."""
        plural = f"{workload.kind.lower()}s"
        path = f"/apis/apps/v1/namespaces/{workload.namespace}/{plural}/{workload.name}"
        try:
            found = await find_as(self.connection, path, _Workload)
        except (ApiError, *UNREADABLE) as error:
            _log.info("`maxUnavailable` of %s is not known: %s", path, error)
            return None
        if found is None:
            return None
        spec, is_deployment = found.spec, workload.kind == DEPLOYMENT
        rolling = (spec.strategy if is_deployment else spec.update_strategy).rolling_update
        return most_unavailable(rolling.max_unavailable if rolling else None, spec.replicas)
