"""The states of the quotas of one namespace, synchronised with the API server."""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from msgspec import Raw

from engine.model.elastic_quota import ElasticQuota, QuotaKey
from engine.model.pod import DeploymentPod, Pod, deployment_pod_of
from engine.model.quantity import INT64_MAX
from engine.model.resources import Amounts
from engine.quota import (
    AllowanceConfig,
    PendingWrite,
    QuotaState,
    Reservation,
    ReservationTimeouts,
    quotas_of,
)
from engine.view import ClusterState, ClusterView
from webhook.cluster.timing import MonotonicClock
from webhook.cluster.watch.source_status import SourceStatus
from webhook.identity import new_identity
from webhook.quota.store import ConflictError, Store, StoreError, UnreachableError


@dataclass(frozen=True, slots=True, kw_only=True)
class QuotaConfig:
    """Configuration of everything that reads and writes quotas."""

    clock: MonotonicClock = field(default_factory=MonotonicClock)  # of all moments of the ledger
    call_seconds: float = 3.0  # timeout of a request to the API server
    # lifetime of reservations
    timeouts: ReservationTimeouts = field(default_factory=ReservationTimeouts)
    # conditions and size of allowances
    allowances: AllowanceConfig = field(default_factory=AllowanceConfig)


class DeploymentPods:
    """An observer of the pods that a pod of a newer revision may replace.

    Only namespaces are kept whose quota allows surges. What was there before it did is listed once.
    """

    def __init__(self) -> None:
        # whether a quota of a namespace allows surges; called for each event
        self.is_tracked: Callable[[str], bool] = lambda _: False
        self._pods: dict[str, dict[str, DeploymentPod]] = {}  # by namespace and name
        self._listed: set[str] = set()

    def pod_changed(self, pod: Pod, version: int, raw: bytes | Raw) -> None:  # noqa: ARG002 - of the protocol
        """Keep a pod that may be replaced; forget it once it ends."""
        namespace = pod.namespace
        if not self.is_tracked(namespace):
            self._pods.pop(namespace, None)
            self._listed.discard(namespace)
            return
        of = replaceable(pod)
        if of is not None:
            self._pods.setdefault(namespace, {})[pod.name] = of
        elif namespace in self._pods:
            self._pods[namespace].pop(pod.name, None)

    def pod_deleted(self, namespace: str, name: str) -> None:
        """Forget a pod."""
        if namespace in self._pods:
            self._pods[namespace].pop(name, None)

    def is_listed(self, namespace: str) -> bool:
        """Return whether all pods of a namespace are known that may be replaced."""
        return namespace in self._listed or not self.is_tracked(namespace)

    def add_listed(self, namespace: str, pods: Iterable[Pod]) -> None:
        """Add the pods of a namespace that were there before it was kept.

        What has been observed meanwhile is as new, and stays.
        """
        known = self._pods.setdefault(namespace, {})
        for pod in pods:
            of = replaceable(pod)
            if of is not None:
                known.setdefault(pod.name, of)
        self._listed.add(namespace)

    def replaced_by(self, namespace: str, new: DeploymentPod) -> Iterator[str]:
        """Yield the names of the pods of other revisions that a pod may replace."""
        for name, known in self._pods.get(namespace, {}).items():
            if known.deployment == new.deployment and known.revision != new.revision:
                yield name


def replaceable(pod: Pod) -> DeploymentPod | None:
    """Return of which Deployment a pod is that holds quota and is not about to end."""
    if pod.deleting or pod.is_terminal or pod.is_queued:
        return None
    return deployment_pod_of(pod.generate_name, pod.labels, pod.owner_kinds)


_MOST_PODS = 32_768  # some 8 MiB; one that is evicted counts twice until the API server is asked


@dataclass(kw_only=True, eq=False)
class ObservedPods:
    """Versions of the pods observed last where reservations may be, deleted ones included."""

    most: int = _MOST_PODS  # pods remembered

    def __post_init__(self) -> None:
        # whether pods of a namespace may have reservations; called for each event
        self.is_tracked: Callable[[str], bool] = lambda _: True
        self._versions: OrderedDict[str, int] = OrderedDict()  # by uid, oldest first

    def pod_changed(self, pod: Pod, version: int, raw: bytes | Raw) -> None:  # noqa: ARG002 - of the protocol
        """Record a pod of a watch event."""
        self.observe(pod.namespace, pod.uid, version)

    def pod_deleted(self, namespace: str, name: str) -> None:
        """Keep the version of a deleted pod: its reservation may outlive it."""

    def observe(self, namespace: str, uid: str, version: int) -> None:
        """Record a pod at a resourceVersion."""
        if not self.is_tracked(namespace):
            return
        self._versions[uid] = max(version, self._versions.get(uid, 0))
        self._versions.move_to_end(uid)
        if len(self._versions) > self.most:
            self._versions.popitem(last=False)

    def version(self, uid: str) -> int:
        """Return the newest version at which a pod was observed, 0 if it was not."""
        return self._versions.get(uid, 0)


@dataclass(frozen=True, slots=True, kw_only=True)
class ObservedCluster:
    """The cluster as a replica observes it; no part of it may lag behind `observed_version`."""

    view: Callable[[], ClusterView]  # pods and quotas
    # versions of the pods delivered by watch
    pods: ObservedPods = field(default_factory=ObservedPods)
    # the pods that others may replace
    deployments: DeploymentPods = field(default_factory=DeploymentPods)
    # the resourceVersion up to which all pods have been observed, 0 before the first list
    observed_version: Callable[[], int] = lambda: INT64_MAX
    # whether a namespace without a quota in the view has none
    quotas_synced: Callable[[], bool] = lambda: True
    # what a pod, by `namespace/name`, adds to the view's requests of its namespace, or to those of
    # scheduled pods alone; nothing if it is unknown
    requests: Callable[[str, bool], Amounts] = lambda _key, _scheduled: {}


def observe_cluster(
    state: ClusterState,
    sources: Mapping[str, SourceStatus],
    pods: ObservedPods,
    deployments: DeploymentPods,
) -> ObservedCluster:
    """Return a live cluster.

    Args:
        state: kept by the sources.
        sources: of pods and of ElasticQuotas among others, by name.
        pods: an observer of the pods of the same cluster.
        deployments: another one.
    """
    pod_source = sources["pods"]
    quota_sources = [
        source for name, source in sources.items() if name.startswith("elasticquotas.")
    ]

    def quotas_synced() -> bool:
        return all_synced(quota_sources)

    # Until the quotas are synced, any pod may have a reservation; a label may name any quota.
    pods.is_tracked = lambda namespace: (
        state.has_quota(namespace) or state.has_quota_tree or not quotas_synced()
    )
    deployments.is_tracked = state.allows_surge
    return ObservedCluster(
        view=state.view,
        pods=pods,
        deployments=deployments,
        observed_version=lambda: pod_source.version,
        quotas_synced=quotas_synced,
        requests=lambda key, scheduled: state.requests(key, scheduled=scheduled),
    )


def all_synced(sources: Iterable[SourceStatus]) -> bool:
    """Whether each source was listed in full, or is known not to exist."""
    return all(
        source.synced or (source.last_contact is not None and not source.present)
        for source in sources
    )


_MOST_CONFIRMED = 16  # pods at a time; there are more only after an outage


@dataclass(eq=False)
class QuotaCache:
    """The quotas of a namespace as this replica knows them."""

    namespace: str
    observed: ObservedCluster
    store: Store
    config: QuotaConfig
    count_write: Callable[[str], None]

    def __post_init__(self) -> None:
        self.backs_off_until = 0.0  # an earlier write would take the turn of other replicas
        self._clock = self.config.clock
        self._states: dict[QuotaKey, QuotaState] = {}
        self._stale: dict[QuotaKey, int] = {}  # a version newer than that is needed to judge again
        self._gone: dict[QuotaKey, int] = {}  # deleted after that version, not observed yet

    # By watch.

    def cached(self) -> list[QuotaState] | None:
        """Return the states at the newest versions observed, None where `sync` is needed.

        Observed pods are not marked.
        """
        now, quotas = self._clock.now(), quotas_of(self.observed.view(), self.namespace)
        states = []
        for quota in quotas:
            state = self._states.get(quota.key)
            if state is None:
                return None
            state.update(quota, now)
            states.append(state)
        return states

    def sync(self) -> list[QuotaState]:
        """Return the states with everything observed by now, pods included."""
        now, observed_version = self._clock.now(), self.observed.observed_version()
        quotas = quotas_of(self.observed.view(), self.namespace)
        in_view = {quota.key: quota for quota in quotas}
        self._gone = {key: version for key, version in self._gone.items() if key in in_view}
        for key in self._states.keys() - in_view.keys():
            del self._states[key]
        for key, quota in in_view.items():
            if quota.version <= self._gone.get(key, -1):
                continue
            if key in self._states:
                self._states[key].update(quota, now)
            else:
                self._states[key] = QuotaState(
                    quota,
                    now,
                    replica=new_identity(),
                    timeouts=self.config.timeouts,
                    allowances=self.config.allowances,
                )
        for state in self._states.values():
            state.mark_observed(self.observed.pods.version, observed_version, now)
        return list(self._states.values())

    def is_current_for(self, states: Sequence[QuotaState]) -> bool:
        """Whether all pods have been observed that the writers of these versions had observed."""
        observed_version = self.observed.observed_version()
        return all(state.is_current(observed_version) for state in states)

    # By request to the API server.

    async def refetch_stale(self) -> bool:
        """Read the quotas whose newest version may be unknown; False if that fails."""
        for key in self._stale.keys() & {state.quota.key for state in self.sync()}:
            state = self._states[key]
            if state.quota.version > self._stale[key]:
                continue  # by watch
            try:
                async with asyncio.timeout(self.config.call_seconds):
                    quota = await self.store.read(state.quota)
            except (UnreachableError, TimeoutError):
                return False
            self._update(state, quota)
        self._stale.clear()
        return True

    async def confirm_overdue(self) -> None:
        """Read the pods that should have been observed by now, to keep or end reservations."""
        now = self._clock.now()
        overdue = [(state, pod) for state in self.sync() for pod in state.overdue(now)]
        if overdue:
            await asyncio.gather(
                *(self._confirm(state, pod) for state, pod in overdue[:_MOST_CONFIRMED])
            )

    async def _confirm(self, state: QuotaState, reservation: Reservation) -> None:
        try:
            async with asyncio.timeout(self.config.call_seconds):
                pod = await self.store.pod(self.namespace, reservation.name)
        except (StoreError, TimeoutError):
            return  # it still counts
        if pod is None or pod.uid != reservation.uid or not pod.is_active:
            state.mark_missing(reservation.key)
        else:
            self.observed.pods.observe(self.namespace, pod.uid, pod.version)
            state.confirm(reservation.key, pod.version, self._clock.now())

    async def confirm_abandoned(self) -> None:
        """Read the newest version that a pod of an abandoned allowance can have."""
        for state in self.sync():
            for allowance in state.others.abandoned(self._clock.now()):
                try:
                    async with asyncio.timeout(self.config.call_seconds):
                        newest = await self.store.newest_pod_version(self.namespace)
                except (StoreError, TimeoutError):
                    return  # they still count
                state.others.mark_drained(allowance, newest)

    async def list_replaceable(self) -> None:
        """List the pods that others may replace, once for a quota that lets Deployments surge."""
        namespace, deployments = self.namespace, self.observed.deployments
        if deployments.is_listed(namespace):
            return
        try:
            async with asyncio.timeout(self.config.call_seconds):
                deployments.add_listed(namespace, await self.store.pods(namespace))
        except (StoreError, TimeoutError):
            return  # a surge waits

    async def write(self, state: QuotaState, pending: PendingWrite) -> bool:
        """Write a quota; return whether that certainly succeeded."""
        key, started = state.quota.key, self._clock.now()
        self._stale[key] = INT64_MAX  # until the outcome is known, only reading helps
        try:
            async with asyncio.timeout(self.config.call_seconds):
                quota = await self.store.write(state.quota, state.begin_write(pending, started))
        except ConflictError:
            self.count_write("conflict")
            self._stale[key] = state.quota.version
            state.abort_write()
            return False
        except (UnreachableError, TimeoutError):
            self.count_write("unknown")
            return False
        except StoreError:
            self.count_write("refused")
            state.abort_write()
            raise
        del self._stale[key]
        self._update(state, quota)
        self._back_off(self._clock.now() - started)
        self.count_write("gone" if quota is None else "written")
        return quota is not None

    def _back_off(self, seconds: float) -> None:
        """Leave other replicas time to read and write, twice as long as a write took.

        The last writer holds the newest version, so without a pause it would win every race.
        """
        self.backs_off_until = self._clock.now() + 2 * seconds * (0.5 + self._clock.jitter())

    def _update(self, state: QuotaState, quota: ElasticQuota | None) -> None:
        """Adopt the answer of the API server: a version, or None where the quota is gone."""
        if quota is not None:
            state.update(quota, self._clock.now())
        else:
            key = state.quota.key
            self._gone[key] = state.quota.version
            self._states.pop(key, None)
