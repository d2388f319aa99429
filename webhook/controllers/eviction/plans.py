"""Plans on a cluster that goes on changing while they are made."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Final, TypeAlias

import msgspec

from engine.eviction import (
    Candidate,
    NoPlan,
    NoPlanReason,
    Plan,
    RunningPod,
    Situation,
    Steps,
    completed,
    parts_of,
)
from engine.model.api import ObjectMeta
from engine.model.elastic_quota import NAME_LABEL, QuotaKey
from engine.model.time import SECOND, Micros
from engine.release import HeldPod
from engine.view import ClusterState
from webhook.cluster.client.connection import ApiError, Connection, find_as
from webhook.cluster.objects import UNREADABLE
from webhook.cluster.watch.source_status import SourceStatus
from webhook.controllers.eviction.context import EvictionContext, QuotasOfMoment

Quotas: TypeAlias = tuple[QuotaKey, ...]
Planner: TypeAlias = Callable[[Quotas, Situation], Steps[Plan | NoPlan]]
"""Makes a plan for some pods, by the quotas that they count for."""

Matters: TypeAlias = Callable[[RunningPod, Quotas], bool]
"""Whether a planner must know of a running pod of some quotas."""

_MOST_TRIES: Final = 3
_FORGOTTEN_AT_ONCE: Final = 2000


class PlanMaker:
    """Makes plans for one pod after the other, or for those of one gang after the other.

    A plan is made in slices, on what was seen when it was begun. What has changed since may matter
    to it: so it is made once more in the end, at once and on what is seen then, with its victims
    for the only ones that may be evicted. Where that fails it is made again.
    """

    def __init__(self, context: EvictionContext) -> None:
        self._context = context

    async def plan(
        self, pods: Sequence[HeldPod], planner: Planner, matters: Matters
    ) -> Plan | NoPlan:
        """Return which pods are to be evicted for held pods, wherever they are nominated to.

        A plan is right for the moment at which it is returned.
        """
        scheduler = self._context.scheduler
        async with scheduler.lock:
            for _ in range(_MOST_TRIES):
                candidates = self._candidates(pods, matters)
                await scheduler.complete(candidates.add(list(self._context.running)))
                yields = scheduler.yields
                plan = await scheduler.complete(
                    self._steps(pods, planner, candidates, self._context.running)
                )
                await scheduler.complete(candidates.forget())
                if isinstance(plan, NoPlan) or scheduler.yields == yields:
                    return plan
                again = completed(
                    self._steps(pods, planner, candidates, self._concerned(pods, plan))
                )
                if isinstance(again, Plan) or again.reason is NoPlanReason.NOT_NEEDED:
                    return again
        text = "the cluster changes faster than plans are made"
        return NoPlan(reason=NoPlanReason.STALE, message=text)

    def _candidates(self, pods: Sequence[HeldPod], matters: Matters) -> _Candidates:
        return _Candidates(self._context.state, self._quotas(pods).quotas_of, matters)

    def _quotas(self, pods: Sequence[HeldPod]) -> QuotasOfMoment:
        with self._context.nominations.set_aside(pods):
            return self._context.standing(pods)

    def _steps(
        self,
        pods: Sequence[HeldPod],
        planner: Planner,
        candidates: _Candidates,
        running: Iterable[RunningPod],
    ) -> Steps[Plan | NoPlan]:
        """Return the steps of a plan for the cluster as it is now."""
        with self._context.nominations.set_aside(pods):
            quotas = self._context.standing(pods)
            situation = self._context.situation(pods, quotas.standing, candidates.of(running))
        own = dict.fromkeys(
            quota
            for held in pods
            for quota in quotas.quotas_of(held.pod.namespace, held.pod.labels)
        )
        return planner(tuple(own), situation)

    def _concerned(self, pods: Sequence[HeldPod], plan: Plan) -> list[RunningPod]:
        """Return the victims of a plan that still run, their gangs, and the pods that leave."""
        running = self._context.running
        keys = [
            victim.key
            for victim in (*plan.victims, *self._context.planned.victims_of_others(pods[0].pod.uid))
        ]
        named = [pod for key in keys if (pod := running.get(key)) is not None]
        gangs = {pod.gang for pod in named if pod.gang is not None}
        members = [pod for pod in running if pod.gang in gangs] if gangs else []
        concerned = (*named, *members, *running.deleting)
        return list({pod.key: pod for pod in concerned}.values())


class _Candidates:
    """Running pods as planners see them; each is looked at once as long as it is the same."""

    def __init__(
        self,
        state: ClusterState,
        quotas_of: Callable[..., Quotas],
        matters: Matters,
    ) -> None:
        self._state = state
        self._quotas_of = quotas_of
        self._matters = matters
        self._quotas: dict[tuple[str, str | None], Quotas] = {}
        # By id of the pod, which its entry keeps alive: there is another one after each event.
        self._known: dict[int, tuple[RunningPod, Candidate | None]] = {}

    def add(self, running: Sequence[RunningPod]) -> Steps[None]:
        """Look at pods."""
        for part in parts_of(running):
            self._known |= {id(pod): (pod, self._candidate(pod)) for pod in part}
            yield

    def forget(self) -> Steps[None]:
        """Forget all pods."""
        while self._known:
            for _ in range(min(len(self._known), _FORGOTTEN_AT_ONCE)):
                self._known.popitem()
            yield

    def of(self, running: Iterable[RunningPod]) -> list[Candidate]:
        """Return those of some pods that matter, as they are now."""
        known = self._known
        found = (
            entry[1] if (entry := known.get(id(pod))) is not None else self._candidate(pod)
            for pod in running
        )
        return [candidate for candidate in found if candidate is not None]

    def _candidate(self, pod: RunningPod) -> Candidate | None:
        kind = pod.namespace, pod.labels.get(NAME_LABEL)  # many pods, of few quotas
        quotas = self._quotas.get(kind)
        if quotas is None:
            quotas = self._quotas[kind] = self._quotas_of(pod.namespace, pod.labels)
        if not self._matters(pod, quotas):
            return None
        entry = self._state.entry(pod.key)
        if entry is None or entry.is_overdue:
            return None
        return Candidate(pod=pod, entry=entry, quotas=quotas)


_PATIENCE: Final = 60 * SECOND
_SAY_AGAIN: Final = 600 * SECOND

_log = logging.getLogger(__name__)


@dataclass(eq=False)
class PlanInputs:
    """What plans are made from; says in the log what is missing for long, as a right may be."""

    is_known: Callable[[], bool]  # whether the cluster and the policies are
    sources: Iterable[SourceStatus]  # what is read for plans alone
    now: Callable[[], Micros]  # the time of day

    def __post_init__(self) -> None:
        self._sources = tuple(self.sources)
        self._say_at: int | None = None

    def are_ready(self) -> bool:
        """Return whether plans may be made."""
        missing = [source for source in self._sources if not source.synced]
        if self.is_known() and not missing:
            self._say_at = None
            return True
        now = self.now()
        if self._say_at is None:
            self._say_at = now + _PATIENCE
        elif now >= self._say_at:
            self._say_at = now + _SAY_AGAIN
            for source in missing:
                why = source.last_error or "not read yet"
                _log.warning(
                    "nobody is evicted for pods that wait: %s cannot be read: %s", source.name, why
                )
        return False


MOST_CLAIMS: Final = 8
"""Claims of one pod that are read; whoever creates a pod may name any number of them."""

_STORAGE_CLASSES: Final = "/apis/storage.k8s.io/v1/storageclasses"
_WAITS: Final = "WaitForFirstConsumer"
_SELECTED_NODE: Final = "volume.kubernetes.io/selected-node"
"""Of a claim for which a volume is made where the scheduler wanted it."""


class _Claim(msgspec.Struct, rename="camel"):
    claim_name: str = ""


class _Volume(msgspec.Struct, rename="camel"):
    persistent_volume_claim: _Claim | None = None


class _PodSpec(msgspec.Struct):
    volumes: list[_Volume] | None = None


class _Pod(msgspec.Struct):
    spec: _PodSpec


class _ClaimSpec(msgspec.Struct, rename="camel"):
    storage_class_name: str = ""


class _ClaimStatus(msgspec.Struct):
    phase: str = ""


class _VolumeClaim(msgspec.Struct):
    metadata: ObjectMeta
    spec: _ClaimSpec = msgspec.field(default_factory=_ClaimSpec)
    status: _ClaimStatus = msgspec.field(default_factory=_ClaimStatus)


class _StorageClass(msgspec.Struct, rename="camel"):
    volume_binding_mode: str = ""


async def unbound_claim(connection: Connection, held: HeldPod) -> str:
    """Return the first claim of a pod that no scheduler can help, "" for none.

    Claims are read when a plan is due, as few pods that wait have any; nothing watches them. One
    whose StorageClass waits for the first consumer is bound when the pod is scheduled. What cannot
    be read counts as bound, and so do claims beyond MOST_CLAIMS: the plan may fail then.
    """
    if b'"persistentVolumeClaim"' not in held.raw:
        return ""
    try:
        volumes = msgspec.json.decode(held.raw, type=_Pod).spec.volumes or ()
        claims = (volume.persistent_volume_claim for volume in volumes)
        names = dict.fromkeys(claim.claim_name for claim in claims if claim)
        for name in islice(names, MOST_CLAIMS):
            if not await _is_bound_in_time(connection, held.pod.namespace, name):
                return name
    except (ApiError, *UNREADABLE) as error:
        _log.info("volume claims of pod `%s` cannot be read: %s", held.key, error)
    return ""


async def _is_bound_in_time(connection: Connection, namespace: str, name: str) -> bool:
    """Return whether a claim is bound, or will be once its pod is scheduled."""
    path = f"/api/v1/namespaces/{namespace}/persistentvolumeclaims/{name}"
    claim = await find_as(connection, path, _VolumeClaim)
    if claim is None:
        return False
    if claim.status.phase == "Bound" or _SELECTED_NODE in (claim.metadata.annotations or {}):
        return True
    if not claim.spec.storage_class_name:
        return False
    class_path = f"{_STORAGE_CLASSES}/{claim.spec.storage_class_name}"
    storage_class = await find_as(connection, class_path, _StorageClass)
    return storage_class is not None and storage_class.volume_binding_mode == _WAITS
