"""The requests of one namespace: all that wait are judged and written together.

A verdict is told after the reservations it rests on have been written on the version of the quota
it was judged by; so whoever wins a race has counted everybody before, on any replica. The rest of
the proof is with `engine.quota.QuotaBook`.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from engine.errors import QuotaUndecidedError
from engine.model.elastic_quota import ElasticQuota
from engine.model.quantity import INT64_MAX
from engine.quota import (
    Asked,
    QuotaBook,
    QuotaRules,
    QuotaVerdict,
    Reservation,
    Reservations,
    judge_batch,
    pool_of,
    quotas_of,
    used_by_namespace,
)
from webhook.quota.sight import Sight, Timing
from webhook.quota.store import ConflictError, Store, StoreError, UnreachableError

_MOST_AT_A_TIME = 256
_MOST_ATTEMPTS = 12  # the least lucky of three that never stop loses so often once in 130 times
_FIRST_WAIT_SECONDS = 0.002
_LONGEST_WAIT_SECONDS = 0.1
_LOOK_AGAIN_SECONDS = 0.02
_MOST_ASKED_AFTER = 16  # pods at a time; there are more only after an outage

_Identity: TypeAlias = tuple[str, str]

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, eq=False)
class _Waiter:
    asked: Asked
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


class Desk:
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
        sight: Sight,
        store: Store,
        timing: Timing,
        count_write: Callable[[str], None],
        rules: QuotaRules,
    ) -> None:
        self._namespace = namespace
        self._sight = sight
        self._store = store
        self._timing = timing
        self._count_write = count_write
        self._rules = rules
        self._books: dict[_Identity, QuotaBook] = {}
        self._stale: dict[_Identity, int] = {}  # know more than this version before judging again
        self._gone: dict[_Identity, int] = {}  # deleted at a later version, not heard of yet
        self._rests_until = 0.0
        self._waiting: list[_Waiter] = []
        self._at_work = asyncio.Lock()
        self._worker: asyncio.Task[None] | None = None

    @property
    def is_idle(self) -> bool:
        """Whether nobody waits, and nothing is being done."""
        return self._worker is None and not self._at_work.locked()

    async def ask(self, asked: Asked) -> QuotaVerdict:
        """Return the verdict on a request; if it is admitted, its share is reserved.

        Raises:
            QuotaUndecidedError: there is none.
        """
        waiter = _Waiter(asked, asyncio.get_running_loop().create_future())
        self._waiting.append(waiter)
        if self._worker is None:
            self._worker = asyncio.create_task(self._work(), name=f"quotas of {self._namespace}")
        return await waiter.answer

    async def tidy(self) -> None:
        """Take reservations that are over off the quotas; what fails is left for the next time.

        Raises:
            StoreError: the API server refuses.
        """
        async with self._at_work:
            if not await self._reread():
                return
            await self._ask_after_overdue()
            for book in self._look():
                kept = book.pruned(self._timing.clock())
                if len(kept.by_key) < len(book.reservations.by_key):
                    await self._write(book, kept)

    async def close(self) -> None:
        """End; whoever waits gets no verdict."""
        if self._worker is not None:
            self._worker.cancel()
            await asyncio.gather(self._worker, return_exceptions=True)

    # Batches.

    async def _work(self) -> None:
        try:
            while self._waiting:
                await self._timing.sleep(max(0.0, self._rests_until - self._timing.clock()))
                batch = self._waiting[:_MOST_AT_A_TIME]
                del self._waiting[:_MOST_AT_A_TIME]
                async with self._at_work:
                    await self._serve(batch)
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
        for _ in range(_MOST_ATTEMPTS):
            there = [waiter for waiter in batch if not waiter.answer.done()]
            if not there or await self._answered(there):
                break
            # Who lost the race waits before it reads again, so that it judges fresh versions.
            await self._timing.sleep(wait * self._timing.jitter())
            wait = min(2 * wait, _LONGEST_WAIT_SECONDS)
        return "the quota could not be written: others were faster, or the API server is away"

    async def _answered(self, batch: Sequence[_Waiter]) -> bool:
        """Judge a batch, write, and answer; returns False to try again."""
        # 1. Know as much of the quotas as there is to know.
        if not await self._reread():
            return False
        await self._ask_after_overdue()

        # 2. See as much of the pods as whoever wrote them.
        while not self._sees_enough(books := self._look()):
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
            None if rules.borrowing == "Off" else pool_of(view.quotas, used),
        )

        # 4. Write, if that is still the newest version; only then tell.
        for book, reservations in judgement.writes:
            if not await self._write(book, reservations):
                return False
        for waiter, verdict in zip(batch, judgement.verdicts, strict=True):
            waiter.tell(verdict)
        return True

    # What is known.

    def _look(self) -> list[QuotaBook]:
        """Return the books of the namespace with all that was heard by now."""
        now, heard = self._timing.clock(), self._sight.heard()
        quotas = quotas_of(self._sight.view(), self._namespace)
        shown = {_identity(quota): quota for quota in quotas}
        self._gone = {one: version for one, version in self._gone.items() if one in shown}
        for one in self._books.keys() - shown.keys():
            del self._books[one]
        for one, quota in shown.items():
            if quota.version <= self._gone.get(one, -1):
                continue
            if one in self._books:
                self._books[one].take(quota, now)
            else:
                self._books[one] = QuotaBook(quota, now, self._timing.patience)
        for book in self._books.values():
            book.settle(self._sight.seen.version, heard, now)
        return list(self._books.values())

    def _sees_enough(self, books: Sequence[QuotaBook]) -> bool:
        heard = self._sight.heard()
        return all(book.may_judge(heard) for book in books)

    async def _reread(self) -> bool:
        """Read the quotas of which we may not know enough; False if that fails."""
        for one in self._stale.keys() & {_identity(book.quota) for book in self._look()}:
            book = self._books[one]
            if book.quota.version > self._stale[one]:
                continue  # by watch
            try:
                async with asyncio.timeout(self._timing.call_seconds):
                    quota = await self._store.read(book.quota)
            except (UnreachableError, TimeoutError):
                return False
            self._take(book, quota)
        self._stale.clear()
        return True

    async def _ask_after_overdue(self) -> None:
        """Ask the API server for the pods that should have been seen by now."""
        now = self._timing.clock()
        overdue = [(book, one) for book in self._look() for one in book.overdue(now)]
        if overdue:
            await asyncio.gather(
                *(self._ask_after(book, one) for book, one in overdue[:_MOST_ASKED_AFTER])
            )

    async def _ask_after(self, book: QuotaBook, one: Reservation) -> None:
        try:
            async with asyncio.timeout(self._timing.call_seconds):
                pod = await self._store.pod(self._namespace, one.name)
        except (StoreError, TimeoutError):
            return  # it counts on
        if pod is None or pod.uid != one.uid or not pod.holds:
            book.is_missing(one.key)
        else:
            self._sight.seen.note(self._namespace, pod.uid, pod.version)
            book.exists(one.key, pod.version, self._timing.clock())

    async def _write(self, book: QuotaBook, reservations: Reservations) -> bool:
        """Write reservations; returns whether they were written for certain.

        Raises:
            StoreError: it was refused, and will be again.
        """
        one, started = _identity(book.quota), self._timing.clock()
        self._stale[one] = INT64_MAX  # until we know what came of it, only reading helps
        try:
            async with asyncio.timeout(self._timing.call_seconds):
                quota = await self._store.write(book.quota, book.annotation(reservations))
        except ConflictError:
            self._count_write("conflict")
            self._stale[one] = book.quota.version
            return False
        except (UnreachableError, TimeoutError):
            self._count_write("unknown")
            return False
        except StoreError:
            self._count_write("refused")
            raise
        del self._stale[one]
        self._take(book, quota)
        self._rest(self._timing.clock() - started)
        self._count_write("gone" if quota is None else "written")
        return quota is not None

    def _rest(self, seconds: float) -> None:
        """Leave others the time to read and write, which takes twice as long as a write did.

        Who has just written knows the newest version, so without rest it would win every race.
        """
        self._rests_until = self._timing.clock() + 2 * seconds * (0.5 + self._timing.jitter())

    def _take(self, book: QuotaBook, quota: ElasticQuota | None) -> None:
        """Take what the API server says of a quota: a version, or that it is gone."""
        if quota is not None:
            book.take(quota, self._timing.clock())
        else:
            one = _identity(book.quota)
            self._gone[one] = book.quota.version
            self._books.pop(one, None)


def _identity(quota: ElasticQuota) -> _Identity:
    return quota.group, quota.name
