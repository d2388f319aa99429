"""`maxUnavailable` of the Deployments and StatefulSets of victims: evictions wait for their turn.

A workload is read by its name when its pods are to be evicted, and for a while not again; nothing
watches workloads. Pods that wait for quota or for a node do not count as missing: what was taken
back from a workload would keep the rest from being taken back, for as long as it borrows.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from itertools import islice
from typing import Final

import msgspec

from engine.eviction import DEPLOYMENT, RunningPod, Victim, WorkloadKey, most_unavailable
from webhook.cluster.client.connection import ApiError, Connection, find
from webhook.cluster.objects import UNREADABLE
from webhook.controllers.eviction.guards import RunningPods

MOST_READ: Final = 32
"""Workloads of the victims of one plan that are read; whoever creates pods may name many."""

_KNOWN_SECONDS: Final = 60.0
_MOST_KNOWN: Final = 2000

_SEEN_SECONDS: Final = 15.0
"""For which an eviction counts that the watch does not show."""

_log = logging.getLogger(__name__)


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
    """What a workload says.

    Attributes:
        most_unavailable: None where it says nothing, or cannot be read.
        until: when it is to be read again.
    """

    most_unavailable: int | None
    until: float


@dataclass(frozen=True, slots=True)
class _Sent:
    """An eviction that was sent.

    Attributes:
        key: `namespace/name` of the pod.
        until: when it counts no longer, whatever the watch shows.
    """

    key: str
    workload: WorkloadKey
    until: float


class WorkloadTurns:
    """Lets evictions through as fast as the workloads of the pods allow.

    Args:
        connection: to the API server.
        running: the pods that are bound.
        is_overdue: whether a pod by `namespace/name` should be gone by now: its node may be dead.
        clock: seconds that only go forward.
    """

    def __init__(
        self,
        connection: Connection,
        running: RunningPods,
        is_overdue: Callable[[str], bool],
        clock: Callable[[], float],
    ) -> None:
        self._connection = connection
        self._running = running
        self._is_overdue = is_overdue
        self._clock = clock
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
            self._known[workload] = _Known(most, self._clock() + _KNOWN_SECONDS)
        for workload in list(self._known)[:-_MOST_KNOWN]:
            del self._known[workload]

    def exhausted(self) -> frozenset[WorkloadKey]:
        """Return the known workloads that miss too many pods, though nobody evicts any of them."""
        overdue = Counter(
            pod.workload for pod in self._running.deleting if self._is_overdue(pod.key)
        )
        return frozenset(
            workload
            for workload, known in self._known.items()
            if known.most_unavailable is not None
            and self._running.unready_of(workload) + overdue[workload] >= known.most_unavailable
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
            missing = self._running.unavailable_of(pod.workload)
            missing += sum(each.workload == pod.workload for each in self._sent_unseen())
            if missing >= known.most_unavailable:
                return False
        self._sent[pod.uid] = _Sent(pod.key, pod.workload, self._clock() + _SEEN_SECONDS)
        return True

    def give_back(self, victim: Victim) -> None:
        """Note that a pod was not evicted after all."""
        self._sent.pop(victim.uid, None)

    def _is_known(self, workload: WorkloadKey) -> bool:
        known = self._known.get(workload)
        return known is not None and self._clock() < known.until

    def _pod(self, victim: Victim) -> RunningPod | None:
        pod = self._running.get(victim.key)
        return pod if pod is not None and pod.uid == victim.uid else None

    def _is_available(self, pod: RunningPod) -> bool:
        """Return whether a workload misses a further pod without this one."""
        return pod.is_ready and not pod.deleting and pod.uid not in self._sent

    def _sent_unseen(self) -> Iterator[_Sent]:
        """Yield the evictions of ready pods that the watch does not show yet."""
        now = self._clock()
        for uid, sent in list(self._sent.items()):
            pod = self._running.get(sent.key)
            if now >= sent.until or pod is None or pod.uid != uid or pod.deleting:
                del self._sent[uid]
            elif pod.is_ready:
                yield sent

    async def _read(self, workload: WorkloadKey) -> int | None:
        """Return how many pods of a workload may be missing, as it says now."""
        plural = f"{workload.kind.lower()}s"
        path = f"/apis/apps/v1/namespaces/{workload.namespace}/{plural}/{workload.name}"
        try:
            body = await find(self._connection, path)
            if body is None:
                return None
            spec = msgspec.json.decode(body, type=_Workload).spec
        except (ApiError, *UNREADABLE) as error:
            _log.info("`maxUnavailable` of %s is not known: %s", path, error)
            return None
        is_deployment = workload.kind == DEPLOYMENT
        rolling = (spec.strategy if is_deployment else spec.update_strategy).rolling_update
        return most_unavailable(rolling.max_unavailable if rolling else None, spec.replicas)
