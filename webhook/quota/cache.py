"""The states of the quotas of one namespace, synchronised with the API server."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence

from engine.model.elastic_quota import ElasticQuota, QuotaKey
from engine.model.quantity import INT64_MAX
from engine.quota import PendingWrite, QuotaState, Reservation, quotas_of
from webhook.identity import new_identity
from webhook.quota.config import QuotaConfig
from webhook.quota.observed import ObservedCluster
from webhook.quota.store import ConflictError, Store, StoreError, UnreachableError

_MOST_CONFIRMED = 16  # pods at a time; there are more only after an outage


class QuotaCache:
    """The quotas of a namespace as this replica knows them.

    Args:
        namespace: of the quotas.
        observed: the cluster as this replica observes it.
        store: the API server.
        config: clock, timeouts and allowances.
        count_write: called with the outcome of each write.

    Attributes:
        backs_off_until: an earlier write would take the turn of other replicas.
    """

    def __init__(
        self,
        namespace: str,
        observed: ObservedCluster,
        store: Store,
        config: QuotaConfig,
        count_write: Callable[[str], None],
    ) -> None:
        self.backs_off_until = 0.0
        self._namespace = namespace
        self._observed = observed
        self._store = store
        self._config = config
        self._clock = config.clock
        self._count_write = count_write
        self._states: dict[QuotaKey, QuotaState] = {}
        self._stale: dict[QuotaKey, int] = {}  # a version newer than that is needed to judge again
        self._gone: dict[QuotaKey, int] = {}  # deleted after that version, not observed yet

    # By watch.

    def cached(self) -> list[QuotaState] | None:
        """Return the states at the newest versions observed, None where `sync` is needed.

        Observed pods are not marked.
        """
        now, quotas = self._clock.now(), quotas_of(self._observed.view(), self._namespace)
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
        now, observed_version = self._clock.now(), self._observed.observed_version()
        quotas = quotas_of(self._observed.view(), self._namespace)
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
                    timeouts=self._config.timeouts,
                    allowances=self._config.allowances,
                )
        for state in self._states.values():
            state.mark_observed(self._observed.pods.version, observed_version, now)
        return list(self._states.values())

    def is_current_for(self, states: Sequence[QuotaState]) -> bool:
        """Whether all pods have been observed that the writers of these versions had observed."""
        observed_version = self._observed.observed_version()
        return all(state.is_current(observed_version) for state in states)

    # By request to the API server.

    async def refetch_stale(self) -> bool:
        """Read the quotas whose newest version may be unknown; False if that fails."""
        for key in self._stale.keys() & {state.quota.key for state in self.sync()}:
            state = self._states[key]
            if state.quota.version > self._stale[key]:
                continue  # by watch
            try:
                async with asyncio.timeout(self._config.call_seconds):
                    quota = await self._store.read(state.quota)
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
            async with asyncio.timeout(self._config.call_seconds):
                pod = await self._store.pod(self._namespace, reservation.name)
        except (StoreError, TimeoutError):
            return  # it still counts
        if pod is None or pod.uid != reservation.uid or not pod.is_active:
            state.mark_missing(reservation.key)
        else:
            self._observed.pods.observe(self._namespace, pod.uid, pod.version)
            state.confirm(reservation.key, pod.version, self._clock.now())

    async def confirm_abandoned(self) -> None:
        """Read the newest version that a pod of an abandoned allowance can have."""
        for state in self.sync():
            for allowance in state.others.abandoned(self._clock.now()):
                try:
                    async with asyncio.timeout(self._config.call_seconds):
                        newest = await self._store.newest_pod_version(self._namespace)
                except (StoreError, TimeoutError):
                    return  # they still count
                state.others.mark_drained(allowance, newest)

    async def list_replaceable(self) -> None:
        """List the pods that others may replace, once for a quota that lets Deployments surge."""
        namespace, deployments = self._namespace, self._observed.deployments
        if deployments.is_listed(namespace):
            return
        try:
            async with asyncio.timeout(self._config.call_seconds):
                deployments.add_listed(namespace, await self._store.pods(namespace))
        except (StoreError, TimeoutError):
            return  # a surge waits

    async def write(self, state: QuotaState, pending: PendingWrite) -> bool:
        """Write a quota; return whether that certainly succeeded.

        Raises:
            StoreError: it was refused, and will be again.
        """
        key, started = state.quota.key, self._clock.now()
        self._stale[key] = INT64_MAX  # until the outcome is known, only reading helps
        try:
            async with asyncio.timeout(self._config.call_seconds):
                quota = await self._store.write(state.quota, state.begin_write(pending, started))
        except ConflictError:
            self._count_write("conflict")
            self._stale[key] = state.quota.version
            state.abort_write()
            return False
        except (UnreachableError, TimeoutError):
            self._count_write("unknown")
            return False
        except StoreError:
            self._count_write("refused")
            state.abort_write()
            raise
        del self._stale[key]
        self._update(state, quota)
        self._back_off(self._clock.now() - started)
        self._count_write("gone" if quota is None else "written")
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
