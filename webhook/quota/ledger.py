"""Reservations of quota on all replicas: a batcher for each namespace that is limited."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from contextlib import suppress
from functools import partial

from engine.errors import QuotaUndecidedError
from engine.model.elastic_quota import ElasticQuota
from engine.quota import (
    RESOURCE_QUOTA_RULES,
    QuotaRequest,
    QuotaRules,
    QuotaVerdict,
    limited,
    quotas_of,
)
from engine.quota.queueing import CohortLending
from webhook.quota.cache import ObservedCluster, QuotaConfig
from webhook.quota.namespace_batcher import NamespaceBatcher
from webhook.quota.store import Store, StoreError

_REFRESH_SECONDS = 0.1  # soon enough for requests that wait for a recall; sends no request

_log = logging.getLogger(__name__)


class QuotaLedger:
    """Admits pods against the ElasticQuotas of their namespace, each exactly once.

    INVARIANT: pods that were admitted here, or by other replicas with the same store, and are
    stored never hold more than `max`, as long as `max` is not lowered and all pods pass this way.

    Args:
        observed: the cluster as this replica observes it.
        store: where reservations are kept.
        config: clock, timeouts and allowances.
        rules: what is compared.
        lending: judges the pods that have no turn; None where no pod waits for one.
        count_write: called with the outcome of each write: written, conflict, unknown, refused,
            gone.
    """

    def __init__(
        self,
        observed: ObservedCluster,
        store: Store,
        config: QuotaConfig | None = None,
        *,
        rules: QuotaRules = RESOURCE_QUOTA_RULES,
        lending: CohortLending | None = None,
        count_write: Callable[[str], None] = lambda _: None,
    ) -> None:
        self._observed = observed
        self._store = store
        self._config = config or QuotaConfig()
        self._rules = rules
        self._lending = lending
        self._count_write = count_write
        self._batchers: dict[str, NamespaceBatcher] = {}

    def has_quota(self, namespace: str) -> bool:
        """Return whether the pods of a namespace are limited.

        Raises:
            QuotaUndecidedError: the quotas are not known yet.
        """
        return bool(self._quotas(namespace))

    async def admit(self, namespace: str, request: QuotaRequest) -> QuotaVerdict:
        """Return whether a pod fits every quota of its namespace; if so, its share is reserved.

        A request that is repeated is reserved once. May be cancelled: a reservation made by then
        ends after its timeout.

        Raises:
            QuotaUndecidedError: there is no verdict; as far as is known, nothing was reserved.
        """
        quotas, rules = self._quotas(namespace), self._rules
        amounts = request.reservation.amounts
        is_limited = (
            rules.compares_every_pod
            or (request.has_no_turn and self._lending is not None)
            or any(limited(amounts, quota, rules) for quota in quotas)
        )
        if not (quotas and is_limited):
            return QuotaVerdict()
        return await self._batcher(namespace).admit(request)

    async def prune_reservations(self) -> None:
        """Remove ended reservations from all quotas; a periodic task of the leader."""
        quotas = self._observed.view().namespaces.quotas
        for namespace, batcher in list(self._batchers.items()):
            if namespace not in quotas and batcher.is_idle:
                del self._batchers[namespace]
        for namespace, listed in list(quotas.items()):
            if any(quota.reservations or quota.allows_surge for quota in listed):
                try:
                    await self._batcher(namespace).prune_reservations()
                except StoreError as error:
                    _log.warning("reservations on quotas of `%s` not pruned: %s", namespace, error)

    async def run(self) -> None:
        """Refresh allowances until cancelled."""
        while True:
            await self._config.clock.sleep(_REFRESH_SECONDS)
            self.refresh_allowances()

    def refresh_allowances(self) -> None:
        """Begin to renew, or to give back, the allowances for which it is time."""
        for batcher in self._batchers.values():
            batcher.refresh_allowances()

    async def close(self) -> None:
        """End; waiting requests get no verdict, and allowances are given back."""
        with suppress(TimeoutError):
            async with asyncio.timeout(self._config.call_seconds):
                await asyncio.gather(*(batcher.close() for batcher in self._batchers.values()))

    def _quotas(self, namespace: str) -> tuple[ElasticQuota, ...]:
        if not self._observed.quotas_synced():
            raise QuotaUndecidedError("the quotas are not known yet")
        return quotas_of(self._observed.view(), namespace)

    def _batcher(self, namespace: str) -> NamespaceBatcher:
        batcher = self._batchers.get(namespace)
        if batcher is None:
            batcher = self._batchers[namespace] = NamespaceBatcher(
                namespace,
                self._observed,
                self._store,
                self._config,
                self._count_write,
                self._rules,
                lends=None if self._lending is None else partial(self._lending.judge, namespace),
            )
        return batcher
