"""The requests of one namespace: all that wait are judged and written together.

A verdict is told after the reservations it rests on have been written on the version of the quota
it was judged by; so whoever wins a race has counted everybody before, on any replica. Most requests
find that done: their room was taken ahead. The rest of the proof is with `engine.quota.QuotaState`
and `engine.quota.LocalAllowance`.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass

from engine.errors import QuotaUndecidedError
from engine.quota import (
    PendingWrite,
    QuotaRequest,
    QuotaRules,
    QuotaVerdict,
    cohort_usage,
    draw,
    expect,
    judge_batch,
    used_by_namespace,
)
from webhook.quota.observed_cluster import ObservedCluster, QuotaTiming
from webhook.quota.quota_cache import QuotaCache
from webhook.quota.store import Store, StoreError

_MOST_AT_A_TIME = 256
_MOST_ATTEMPTS = 12  # the least lucky of three that never stop loses so often once in 130 times
_FIRST_WAIT_SECONDS = 0.002
_LONGEST_WAIT_SECONDS = 0.1
_LOOK_AGAIN_SECONDS = 0.02

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, eq=False)
class _Waiter:
    asked: QuotaRequest
    answer: asyncio.Future[QuotaVerdict]

    def tell(self, verdict: QuotaVerdict | None) -> None:
        """Answer; None is no verdict. Nothing happens if nobody waits any more."""
        if verdict is None:
            self.fail("too many admitted pods have not been seen yet")
        elif not self.answer.done():
            self.answer.set_result(verdict)

    def fail(self, why: str) -> None:
        """Answer that there is no verdict; nothing happens after an answer."""
        if not self.answer.done():
            self.answer.set_exception(QuotaUndecidedError(why))


class NamespaceBatcher:
    """Judges the requests of a namespace, one batch after the other.

    Args:
        namespace: whose.
        sight: what this replica sees.
        store: where quotas are written.
        timing: what time is.
        count_write: told what came of each write.
        rules: what is compared.
    """

    def __init__(
        self,
        namespace: str,
        sight: ObservedCluster,
        store: Store,
        timing: QuotaTiming,
        count_write: Callable[[str], None],
        rules: QuotaRules,
    ) -> None:
        self._namespace = namespace
        self._sight = sight
        self._timing = timing
        self._rules = rules
        self._shelf = QuotaCache(namespace, sight, store, timing, count_write)
        self._judged: list[int] = []  # the versions of the quotas when they were
        self._needs_care = False  # what was taken ahead should be looked at
        self._waiting: list[_Waiter] = []
        self._at_work = asyncio.Lock()
        self._worker: asyncio.Task[None] | None = None

    @property
    def is_idle(self) -> bool:
        """Whether nobody waits, and nothing is being done."""
        return self._worker is None and not self._at_work.locked()

    async def admit(self, asked: QuotaRequest) -> QuotaVerdict:
        """Return the verdict on a request; if it is admitted, its share is reserved.

        Raises:
            QuotaUndecidedError: there is none.
        """
        expect(asked, self._shelf.cached() or [], self._rules, self._timing.clock())
        if self._draws(asked):
            return QuotaVerdict()
        waiter = _Waiter(asked, asyncio.get_running_loop().create_future())
        self._waiting.append(waiter)
        self._wake()
        return await waiter.answer

    def refresh_allowances(self) -> None:
        """Have what was taken ahead written anew, or given back, where it is time.

        Others may need it, which shows when they write the quota; or nobody asks here any more.
        """
        if not any(book.allowance.is_held for book in self._shelf.cached() or ()):
            return
        books, now = self._shelf.sync(), self._timing.clock()
        others_wrote = [book.quota.version for book in books] != self._judged
        if others_wrote or any(book.allowance.is_over(book.quota.max, now) for book in books):
            self._care()

    async def prune_reservations(self) -> None:
        """Take reservations that are over off the quotas; what fails is left for the next time.

        Raises:
            StoreError: the API server refuses.
        """
        async with self._at_work:
            if not await self._shelf.refetch_stale():
                return
            await self._shelf.confirm_overdue()
            await self._shelf.confirm_abandoned()
            for book in self._shelf.sync():
                kept = book.pruned(self._timing.clock())
                if kept.size < book.reservations.size:
                    await self._shelf.write(book, PendingWrite(kept, book.allowance.drawn))

    async def close(self) -> None:
        """End; whoever waits gets no verdict, and what was taken ahead is given back."""
        if self._worker is not None:
            self._worker.cancel()
            await asyncio.gather(self._worker, return_exceptions=True)
        async with self._at_work:
            with suppress(StoreError):
                await self._give_back()

    # Batches.

    def _wake(self) -> None:
        if self._worker is None:
            self._worker = asyncio.create_task(self._work(), name=f"quotas of {self._namespace}")

    async def _work(self) -> None:
        try:
            while self._waiting or self._needs_care:
                await self._timing.sleep(max(0.0, self._shelf.rests_until - self._timing.clock()))
                self._needs_care = False
                batch = self._waiting[:_MOST_AT_A_TIME]
                del self._waiting[:_MOST_AT_A_TIME]
                async with self._at_work:
                    await self._serve(batch)
                # Who came meanwhile finds room taken ahead by now, and needs not wait any longer.
                self._waiting = [waiter for waiter in self._waiting if not self._served(waiter)]
        finally:
            self._worker = None
            for waiter in self._waiting:
                waiter.fail("the webhook is ending")

    async def _serve(self, batch: Sequence[_Waiter]) -> None:
        """Answer a batch, whatever happens."""
        why = "the webhook is ending"
        try:
            why = await self._tried(batch)
        except StoreError as error:
            why = f"the quota cannot be written: {error}"
        except Exception:  # noqa: BLE001 - a mistake of ours must not leave others waiting
            _log.exception("no verdict on quotas of `%s`", self._namespace)
            why = "internal error, see the log"
        finally:
            for waiter in batch:
                waiter.fail(why)

    async def _tried(self, batch: Sequence[_Waiter]) -> str:
        """Try to answer a batch until all have been or have left; return why not in the end."""
        wait = _FIRST_WAIT_SECONDS
        for left in reversed(range(_MOST_ATTEMPTS)):
            there = [waiter for waiter in batch if not waiter.answer.done()]
            if await self._answered(there, is_last=not left) or not there:
                break
            # Who lost the race waits before it reads again, so that it judges fresh versions.
            await self._timing.sleep(wait * self._timing.jitter())
            wait = min(2 * wait, _LONGEST_WAIT_SECONDS)
        return "the quota could not be written: others were faster, or the API server is away"

    async def _answered(self, batch: Sequence[_Waiter], *, is_last: bool) -> bool:
        """Judge a batch, write, and answer; returns False to try again."""
        # 1. Know as much of the quotas as there is to know.
        if not await self._shelf.refetch_stale():
            return False
        await self._shelf.confirm_overdue()
        await self._shelf.confirm_abandoned()

        # 2. See as much of the pods as whoever wrote them.
        while not self._shelf.is_current_for(books := self._shelf.sync()):
            if all(waiter.answer.done() for waiter in batch):
                return True
            await self._timing.sleep(_LOOK_AGAIN_SECONDS)

        # 3. Judge what is known at this moment: nothing is awaited since we looked.
        view, rules = self._sight.view(), self._rules
        used = used_by_namespace(view, rules.count_pods)
        judgement = judge_batch(
            [waiter.asked for waiter in batch],
            used.get(self._namespace, {}),
            books,
            self._timing.clock(),
            rules,
            None if rules.borrowing == "Off" else cohort_usage(view.namespaces.quotas, used),
        )

        # 4. Write, if that is still the newest version; only then tell.
        for book, draft in judgement.writes:
            if not await self._shelf.write(book, draft):
                return False
        self._judged = [book.quota.version for book in books]
        told = zip(batch, judgement.verdicts, judgement.held_up, strict=True)
        for waiter, verdict, held_up in told:
            if is_last or not held_up:
                waiter.tell(verdict)
        return is_last or not any(judgement.held_up)

    # What was taken ahead.

    def _draws(self, asked: QuotaRequest) -> bool:
        """Admit a request at once, if its room was taken ahead."""
        books, now = self._shelf.cached(), self._timing.clock()
        if not books or not draw(asked, books, self._rules, now):
            return False
        if any(book.allowance.runs_low(now) for book in books):
            self._care()
        return True

    def _served(self, waiter: _Waiter) -> bool:
        """Whether somebody has an answer, or has left."""
        if not waiter.answer.done() and self._draws(waiter.asked):
            waiter.tell(QuotaVerdict())
        return waiter.answer.done()

    def _care(self) -> None:
        self._needs_care = True
        self._wake()

    async def _give_back(self) -> None:
        for _ in range(_MOST_ATTEMPTS):
            held = [book for book in self._shelf.sync() if book.allowance.is_held]
            if not held:
                return
            await self._shelf.write(held[0], held[0].draft((), {}, self._timing.clock()))
            if not await self._shelf.refetch_stale():
                return
