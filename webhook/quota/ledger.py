"""Who has been promised quota, on all replicas: a desk for each namespace that is limited."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from contextlib import suppress

from engine.errors import QuotaUndecidedError
from engine.quota import (
    RESOURCE_QUOTA_RULES,
    QuotaRequest,
    QuotaRules,
    QuotaVerdict,
    limited,
    quotas_of,
)
from webhook.quota.namespace_batcher import NamespaceBatcher
from webhook.quota.observed_cluster import ObservedCluster, QuotaTiming
from webhook.quota.store import Store, StoreError

_LOOK_SECONDS = 0.1  # soon enough for who waits for room that is lent; nothing is asked for

_log = logging.getLogger(__name__)


class QuotaLedger:
    """Admits pods against the ElasticQuotas of their namespace, each exactly once.

    INVARIANT: pods that were admitted here, or by other replicas with the same store, and are
    stored never hold more than `max`, as long as `max` is not lowered and pods come by nobody else.

    Args:
        sight: what this replica sees.
        store: where reservations are kept.
        timing: what time is.
        rules: what is compared.
        count_write: told what came of each write: written, conflict, unknown, refused, gone.
    """

    def __init__(
        self,
        sight: ObservedCluster,
        store: Store,
        timing: QuotaTiming | None = None,
        *,
        rules: QuotaRules = RESOURCE_QUOTA_RULES,
        count_write: Callable[[str], None] = lambda _: None,
    ) -> None:
        self._sight = sight
        self._store = store
        self._timing = timing or QuotaTiming()
        self._rules = rules
        self._count_write = count_write
        self._desks: dict[str, NamespaceBatcher] = {}

    async def admit(self, namespace: str, asked: QuotaRequest) -> QuotaVerdict:
        """Say whether a pod fits every quota of its namespace, and reserve its share if so.

        A request that comes twice is promised once. May be cancelled: what was promised then is
        given back when its time is up.

        Raises:
            QuotaUndecidedError: nobody can say; nothing was promised, as far as we know.
        """
        if not self._sight.quotas_synced():
            raise QuotaUndecidedError("the quotas are not known yet")
        quotas, rules = quotas_of(self._sight.view(), namespace), self._rules
        amounts = asked.reservation.amounts
        is_held = rules.spares_nobody or any(limited(amounts, one, rules) for one in quotas)
        if not (quotas and is_held):
            return QuotaVerdict()
        return await self._batcher(namespace).admit(asked)

    async def prune_reservations(self) -> None:
        """Take reservations that are over off all quotas; for whoever has the time."""
        quotas = self._sight.view().namespaces.quotas
        for namespace, desk in list(self._desks.items()):
            if namespace not in quotas and desk.is_idle:
                del self._desks[namespace]
        for namespace, some in list(quotas.items()):
            if any(quota.reservations for quota in some):
                try:
                    await self._batcher(namespace).prune_reservations()
                except StoreError as error:
                    _log.warning("quotas of `%s` not tidied: %s", namespace, error)

    async def run(self) -> None:
        """Look after what was taken ahead until cancelled."""
        while True:
            await self._timing.sleep(_LOOK_SECONDS)
            self.refresh_allowances()

    def refresh_allowances(self) -> None:
        """Begin to write anew, or to give back, what was taken ahead and others may need."""
        for desk in self._desks.values():
            desk.refresh_allowances()

    async def close(self) -> None:
        """End; whoever waits gets no verdict, and what was taken ahead is given back."""
        with suppress(TimeoutError):
            async with asyncio.timeout(self._timing.call_seconds):
                await asyncio.gather(*(desk.close() for desk in self._desks.values()))

    def _batcher(self, namespace: str) -> NamespaceBatcher:
        desk = self._desks.get(namespace)
        if desk is None:
            desk = self._desks[namespace] = NamespaceBatcher(
                namespace, self._sight, self._store, self._timing, self._count_write, self._rules
            )
        return desk
