"""Bounds on evictions: the running pods, the claims of plans under way, and the guards.

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
from typing import Final, TypeVar

import msgspec

from engine.eviction import (
    DEFAULT_IN_FLIGHT_PERCENT,
    GuardState,
    RunningPod,
    Victim,
    WorkloadKey,
    most_in_flight,
    running_pod_of,
    with_eviction,
    with_outcome,
)
from engine.model.pod import Pod
from engine.model.time import Micros
from webhook.cluster.client.watched_objects import ConfigMapStore
from webhook.cluster.objects import UNREADABLE

_T = TypeVar("_T")


class RunningPods:
    """An observer that keeps what matters of each bound pod, some 300 bytes.

    Args:
        excluded_namespaces: whose pods are never evicted for others.
    """

    def __init__(self, excluded_namespaces: Container[str] = ()) -> None:
        self._excluded = excluded_namespaces
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
        running = None if pod.namespace in self._excluded else running_pod_of(pod)
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
        """Return the uids of the victims of all other plans."""
        return frozenset(victim.uid for victim in self.victims_of_others(claimant))

    def victims_of_others(self, claimant: str) -> list[Victim]:
        """Return the victims of all other plans."""
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


class Guards:
    """What evictions there were so far, as the leader keeps it and its successor finds it.

    Args:
        config_map: outlives the leader.
        now: the time of day.

    Attributes:
        state: of this moment.
    """

    def __init__(self, config_map: ConfigMapStore, now: Callable[[], Micros]) -> None:
        self._config_map = config_map
        self._now = now
        self._writing = asyncio.Lock()
        self.state = GuardState()

    @property
    def is_paused(self) -> bool:
        """Whether no plan is made for pods of some namespace."""
        now = self._now()
        return any(now < until for until in self.state.pauses.values())

    async def load(self) -> None:
        """Take over what an earlier leader has written.

        Raises:
            ApiError: it cannot be read.
        """
        data = (await self._config_map.read()).data
        try:
            self.state = msgspec.json.decode(data.get(_KEY, "{}"), type=GuardState)
        except UNREADABLE as error:
            name = self._config_map.name
            _log.warning("ConfigMap `%s` cannot be read, and is begun anew: %s", name, error)
            self.state = GuardState()

    async def about_to_evict(self, victims: Sequence[Victim]) -> None:
        """Write down evictions, and count them.

        Raises:
            ApiError: they are not written, so nothing may be evicted.
        """
        now = self._now()
        async with self._writing:
            await self._write(_with_evictions(self.state, victims, now))
            self.state = _with_evictions(self.state, victims, now)  # it may have changed since

    async def ended(self, preemptor: str, namespace: str, *, is_bound: bool) -> None:
        """Count how a reclaim for a pod of a namespace ended, and write it down.

        Raises:
            ApiError: it is counted, but not written.
        """
        self.state = with_outcome(self.state, preemptor, namespace, self._now(), bound=is_bound)
        async with self._writing:
            await self._write(self.state)

    async def _write(self, state: GuardState) -> None:
        await self._config_map.write({_KEY: msgspec.json.encode(state).decode()})


def _with_evictions(state: GuardState, victims: Sequence[Victim], now: Micros) -> GuardState:
    for victim in victims:
        state = with_eviction(state, victim.uid, victim.owner, victim.assigned_at, now)
    return state
