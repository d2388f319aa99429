"""Reservations of quota on all replicas: all waiting requests of a namespace are judged together.

A verdict is returned after the reservations it rests on have been written on the version of the
quota it was judged by; so the winner of a race has counted everybody before, on any replica. Most
requests need no write: they are drawn from the allowance. The rest of the proof is with
`engine.quota.QuotaState` and `engine.quota.reservations`.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import KW_ONLY, dataclass, field
from functools import partial

from engine.errors import QuotaUndecidedError
from engine.model.elastic_quota import ElasticQuota
from engine.model.resources import Amounts
from engine.quota import (
    RESOURCE_QUOTA_RULES,
    Lends,
    QuotaRequest,
    QuotaRules,
    QuotaVerdict,
    cohort_usage,
    draw,
    end_surges,
    judge_batch,
    limited,
    quotas_of,
    record_demand,
    used_by_namespace,
)
from engine.quota.queueing import CohortLending
from webhook.quota.cache import ObservedCluster, QuotaCache, QuotaConfig
from webhook.quota.store import Store, StoreError

_MOST_AT_A_TIME = 256
_MOST_ATTEMPTS = 12  # the least lucky of three that never stop loses so often once in 130 times
_FIRST_WAIT_SECONDS = 0.002
_LONGEST_WAIT_SECONDS = 0.1
_SYNC_SECONDS = 0.02

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, eq=False)
class _Waiter:
    request: QuotaRequest
    answer: asyncio.Future[QuotaVerdict]

    def resolve(self, verdict: QuotaVerdict | None) -> None:
        """Answer, None without a verdict; no effect after an answer or a cancellation."""
        if verdict is None:
            self.fail("too many admitted pods have not been seen yet")
        elif not self.answer.done():
            self.answer.set_result(verdict)

    def fail(self, reason: str) -> None:
        """Answer that there is no verdict; no effect after an answer or a cancellation."""
        if not self.answer.done():
            self.answer.set_exception(QuotaUndecidedError(reason))


@dataclass(eq=False)
class NamespaceBatcher:
    """Judges the requests of a namespace, one batch after the other."""

    namespace: str
    observed: ObservedCluster
    store: Store
    config: QuotaConfig
    count_write: Callable[[str], None]
    rules: QuotaRules
    lends: Lends | None = None

    def __post_init__(self) -> None:
        self._clock = self.config.clock
        self._cache = QuotaCache(
            self.namespace, self.observed, self.store, self.config, self.count_write
        )
        self._judged_versions: list[int] = []  # of the quotas
        self._refresh_due = False
        self._waiting: list[_Waiter] = []
        self._lock = asyncio.Lock()
        self._worker: asyncio.Task[None] | None = None

    @property
    def is_idle(self) -> bool:
        """Whether no request waits, and nothing is being written."""
        return self._worker is None and not self._lock.locked()

    async def admit(self, request: QuotaRequest) -> QuotaVerdict:
        """Return the verdict on a request; if it is admitted, its share is reserved."""
        record_demand(request, self._cache.cached() or [], self.rules, self._clock.now())
        if self._draws(request):
            return QuotaVerdict()
        waiter = _Waiter(request, asyncio.get_running_loop().create_future())
        self._waiting.append(waiter)
        self._wake()
        return await waiter.answer

    def refresh_allowances(self) -> None:
        """Renew the allowance, or give it back, where it is time.

        Other replicas may need it, which shows when they write the quota; or requests have stopped.
        """
        if not any(state.holds_allowance for state in self._cache.cached() or ()):
            return
        states, now = self._cache.sync(), self._clock.now()
        others_wrote = [state.quota.version for state in states] != self._judged_versions
        if others_wrote or any(state.allowance_expired(now) for state in states):
            self._refresh()

    async def prune_reservations(self) -> None:
        """Remove ended reservations from the quotas; what fails is left for the next time."""
        async with self._lock:
            if not await self._read():
                return
            states = self._cache.sync()
            if self._cache.is_current_for(states):
                used = used_by_namespace(self.observed.view(), self.rules.count_pods)
                for state in states:
                    of_pods = used.get(self.namespace, {})
                    end_surges(state, of_pods, self._counted, self.rules)
            for state in states:
                pending = state.pruning_write(self._clock.now())
                if pending is not None:
                    await self._cache.write(state, pending)

    async def close(self) -> None:
        """End; waiting requests get no verdict, and the allowance is given back."""
        if self._worker is not None:
            self._worker.cancel()
            await asyncio.gather(self._worker, return_exceptions=True)
        async with self._lock:
            with suppress(StoreError):
                await self._give_back()

    # Batches.

    def _wake(self) -> None:
        if self._worker is None:
            self._worker = asyncio.create_task(self._work(), name=f"quotas of {self.namespace}")

    async def _work(self) -> None:
        try:
            while self._waiting or self._refresh_due:
                pause = self._cache.backs_off_until - self._clock.now()
                await self._clock.sleep(max(0.0, pause))
                self._refresh_due = False
                batch = self._waiting[:_MOST_AT_A_TIME]
                del self._waiting[:_MOST_AT_A_TIME]
                async with self._lock:
                    await self._answer(batch)
                # The batch may have left an allowance for requests that arrived meanwhile.
                self._waiting = [waiter for waiter in self._waiting if not self._answered(waiter)]
        finally:
            self._worker = None
            for waiter in self._waiting:
                waiter.fail("the webhook is ending")

    async def _answer(self, batch: Sequence[_Waiter]) -> None:
        """Answer a batch, whatever happens."""
        reason = "the webhook is ending"
        try:
            reason = await self._retry(batch)
        except StoreError as error:
            reason = f"the quota cannot be written: {error}"
        except Exception:  # noqa: BLE001 - a bug of ours must not leave others waiting
            _log.exception("no verdict on quotas of `%s`", self.namespace)
            reason = "internal error, see the log"
        finally:
            for waiter in batch:
                waiter.fail(reason)

    async def _retry(self, batch: Sequence[_Waiter]) -> str:
        """Judge a batch until all are answered or cancelled; return the reason for those left."""
        wait = _FIRST_WAIT_SECONDS
        for left in reversed(range(_MOST_ATTEMPTS)):
            waiting = [waiter for waiter in batch if not waiter.answer.done()]
            if await self._attempt(waiting, is_last=not left) or not waiting:
                break
            # The loser of a race waits before it reads again, so that it judges fresh versions.
            await self._clock.sleep(wait * self._clock.jitter())
            wait = min(2 * wait, _LONGEST_WAIT_SECONDS)
        return "the quota could not be written: others were faster, or the API server is away"

    async def _attempt(self, batch: Sequence[_Waiter], *, is_last: bool) -> bool:
        """Judge a batch, write, and answer; return False to try again."""
        # 1. Read what the watch cannot tell, or not yet.
        if not await self._read():
            return False

        # 2. Observe all pods that the writers of the quotas had observed.
        while not self._cache.is_current_for(states := self._cache.sync()):
            if all(waiter.answer.done() for waiter in batch):
                return True
            await self._clock.sleep(_SYNC_SECONDS)

        # 3. Judge the state of this moment: nothing is awaited since `sync`.
        view, rules = self.observed.view(), self.rules
        used = used_by_namespace(view, rules.count_pods)
        result = judge_batch(
            [waiter.request for waiter in batch],
            used.get(self.namespace, {}),
            states,
            self._clock.now(),
            rules,
            None if rules.borrowing == "Off" else cohort_usage(view.namespaces.quotas, used),
            counted=self._counted,
            replaced=partial(self.observed.deployments.replaced_by, self.namespace),
            lends=self.lends,
        )

        # 4. Write, if those are still the newest versions; only then answer.
        for state, pending in result.writes:
            if not await self._cache.write(state, pending):
                return False
        self._judged_versions = [state.quota.version for state in states]
        for waiter, verdict, awaits_recall in zip(
            batch, result.verdicts, result.awaits_recall, strict=True
        ):
            if is_last or not awaits_recall:
                waiter.resolve(verdict)
        return is_last or not any(result.awaits_recall)

    def _counted(self, name: str) -> Amounts:
        scheduled = self.rules.count_pods == "Scheduled"
        return self.observed.requests(f"{self.namespace}/{name}", scheduled)

    async def _read(self) -> bool:
        """Read stale quotas and unconfirmed pods from the API server; False if that fails."""
        if not await self._cache.refetch_stale():
            return False
        await self._cache.list_replaceable()
        await self._cache.confirm_overdue()
        await self._cache.confirm_abandoned()
        return True

    # The allowance.

    def _draws(self, request: QuotaRequest) -> bool:
        """Admit a request from the allowance, if it fits."""
        states, now = self._cache.cached(), self._clock.now()
        if not states or not draw(request, states, self.rules, now):
            return False
        if any(state.allowance_runs_low(now) for state in states):
            self._refresh()
        return True

    def _answered(self, waiter: _Waiter) -> bool:
        """Whether a request needs no batch: it fits the allowance, or was cancelled."""
        if not waiter.answer.done() and self._draws(waiter.request):
            waiter.resolve(QuotaVerdict())
        return waiter.answer.done()

    def _refresh(self) -> None:
        self._refresh_due = True
        self._wake()

    async def _give_back(self) -> None:
        for _ in range(_MOST_ATTEMPTS):
            holding = [state for state in self._cache.sync() if state.holds_allowance]
            if not holding:
                return
            await self._cache.write(holding[0], holding[0].pending_write((), self._clock.now()))
            if not await self._cache.refetch_stale():
                return


_REFRESH_SECONDS = 0.1  # soon enough for requests that wait for a recall; sends no request


@dataclass(eq=False)
class QuotaLedger:
    """Admits pods against the ElasticQuotas of their namespace, each exactly once.

    INVARIANT: pods that were admitted here, or by other replicas with the same store, and are
    stored never hold more than `max`, as long as `max` is not lowered and all pods pass this way.
    """

    observed: ObservedCluster  # the cluster as this replica observes it
    store: Store  # where reservations are kept
    # clock, timeouts and allowances
    config: QuotaConfig = field(default_factory=QuotaConfig)
    _: KW_ONLY
    rules: QuotaRules = RESOURCE_QUOTA_RULES  # what is compared
    # judges the pods that have no turn; None where no pod waits for one
    lending: CohortLending | None = None
    # called with the outcome of each write: written, conflict, unknown, refused, gone
    count_write: Callable[[str], None] = lambda _: None

    def __post_init__(self) -> None:
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
        quotas, rules = self._quotas(namespace), self.rules
        amounts = request.reservation.amounts
        is_limited = (
            rules.compares_every_pod
            or (request.has_no_turn and self.lending is not None)
            or any(limited(amounts, quota, rules) for quota in quotas)
        )
        if not (quotas and is_limited):
            return QuotaVerdict()
        return await self._batcher(namespace).admit(request)

    async def prune_reservations(self) -> None:
        """Remove ended reservations from all quotas; a periodic task of the leader."""
        quotas = self.observed.view().namespaces.quotas
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
            await self.config.clock.sleep(_REFRESH_SECONDS)
            self.refresh_allowances()

    def refresh_allowances(self) -> None:
        """Begin to renew, or to give back, the allowances for which it is time."""
        for batcher in self._batchers.values():
            batcher.refresh_allowances()

    async def close(self) -> None:
        """End; waiting requests get no verdict, and allowances are given back."""
        with suppress(TimeoutError):
            async with asyncio.timeout(self.config.call_seconds):
                await asyncio.gather(*(batcher.close() for batcher in self._batchers.values()))

    def _quotas(self, namespace: str) -> tuple[ElasticQuota, ...]:
        if not self.observed.quotas_synced():
            raise QuotaUndecidedError("the quotas are not known yet")
        return quotas_of(self.observed.view(), namespace)

    def _batcher(self, namespace: str) -> NamespaceBatcher:
        batcher = self._batchers.get(namespace)
        if batcher is None:
            batcher = self._batchers[namespace] = NamespaceBatcher(
                namespace,
                self.observed,
                self.store,
                self.config,
                self.count_write,
                self.rules,
                lends=None if self.lending is None else partial(self.lending.judge, namespace),
            )
        return batcher
