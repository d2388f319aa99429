"""The books of one namespace, kept in step with the API server."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import TypeAlias

from engine.model.elastic_quota import ElasticQuota
from engine.model.quantity import INT64_MAX
from engine.quota import LocalAllowance, PendingWrite, QuotaState, Reservation, quotas_of
from webhook.identity import new_identity
from webhook.quota.observed_cluster import ObservedCluster, QuotaTiming
from webhook.quota.store import ConflictError, Store, StoreError, UnreachableError

_MOST_ASKED_AFTER = 16  # pods at a time; there are more only after an outage

_Identity: TypeAlias = tuple[str, str]


class QuotaCache:
    """What a replica knows of the quotas of a namespace, and may have to find out.

    Args:
        namespace: whose.
        sight: what this replica sees.
        store: where quotas are written.
        timing: what time is.
        count_write: told what came of each write.

    Attributes:
        rests_until: who writes again before that takes the turn of others.
    """

    def __init__(
        self,
        namespace: str,
        sight: ObservedCluster,
        store: Store,
        timing: QuotaTiming,
        count_write: Callable[[str], None],
    ) -> None:
        self.rests_until = 0.0
        self._namespace = namespace
        self._sight = sight
        self._store = store
        self._timing = timing
        self._count_write = count_write
        self._books: dict[_Identity, QuotaState] = {}
        self._stale: dict[_Identity, int] = {}  # know more than this version before judging again
        self._gone: dict[_Identity, int] = {}  # deleted at a later version, not heard of yet

    # What was heard.

    def cached(self) -> list[QuotaState] | None:
        """Return the books with the newest versions heard of; None where more is to be done.

        Of pods it is not said what has been seen of them.
        """
        now, quotas = self._timing.clock(), quotas_of(self._sight.view(), self._namespace)
        books = []
        for quota in quotas:
            book = self._books.get(_identity(quota))
            if book is None:
                return None
            book.update(quota, now)
            books.append(book)
        return books

    def sync(self) -> list[QuotaState]:
        """Return the books with all that was heard by now, of pods as well."""
        now, heard = self._timing.clock(), self._sight.observed_version()
        quotas = quotas_of(self._sight.view(), self._namespace)
        shown = {_identity(quota): quota for quota in quotas}
        self._gone = {one: version for one, version in self._gone.items() if one in shown}
        for one in self._books.keys() - shown.keys():
            del self._books[one]
        for one, quota in shown.items():
            if quota.version <= self._gone.get(one, -1):
                continue
            if one in self._books:
                self._books[one].update(quota, now)
            else:
                own = LocalAllowance(new_identity(), self._timing.allowances)
                self._books[one] = QuotaState(quota, now, self._timing.timeouts, own)
        for book in self._books.values():
            book.mark_observed(self._sight.seen.version, heard, now)
        return list(self._books.values())

    def is_current_for(self, books: Sequence[QuotaState]) -> bool:
        """Whether all pods have been heard of that those who wrote these quotas knew."""
        heard = self._sight.observed_version()
        return all(book.may_judge(heard) for book in books)

    # What has to be asked for.

    async def refetch_stale(self) -> bool:
        """Read the quotas of which we may not know enough; False if that fails."""
        for one in self._stale.keys() & {_identity(book.quota) for book in self.sync()}:
            book = self._books[one]
            if book.quota.version > self._stale[one]:
                continue  # by watch
            try:
                async with asyncio.timeout(self._timing.call_seconds):
                    quota = await self._store.read(book.quota)
            except (UnreachableError, TimeoutError):
                return False
            self._update(book, quota)
        self._stale.clear()
        return True

    async def confirm_overdue(self) -> None:
        """Ask the API server for the pods that should have been seen by now."""
        now = self._timing.clock()
        overdue = [(book, one) for book in self.sync() for one in book.overdue(now)]
        if overdue:
            await asyncio.gather(
                *(self._confirm(book, one) for book, one in overdue[:_MOST_ASKED_AFTER])
            )

    async def _confirm(self, book: QuotaState, one: Reservation) -> None:
        try:
            async with asyncio.timeout(self._timing.call_seconds):
                pod = await self._store.pod(self._namespace, one.name)
        except (StoreError, TimeoutError):
            return  # it counts on
        if pod is None or pod.uid != one.uid or not pod.holds:
            book.is_missing(one.key)
        else:
            self._sight.seen.observe(self._namespace, pod.uid, pod.version)
            book.exists(one.key, pod.version, self._timing.clock())

    async def confirm_abandoned(self) -> None:
        """Learn the newest pod that can have come of an allowance that a replica left behind."""
        for book in self.sync():
            for one in book.abandoned(self._timing.clock()):
                try:
                    async with asyncio.timeout(self._timing.call_seconds):
                        book.is_drained(one, await self._store.newest(self._namespace))
                except (StoreError, TimeoutError):
                    return  # they count on

    # What is written.

    async def write(self, book: QuotaState, draft: PendingWrite) -> bool:
        """Write a draft; returns whether that was done for certain.

        Raises:
            StoreError: it was refused, and will be again.
        """
        one, started = _identity(book.quota), self._timing.clock()
        self._stale[one] = INT64_MAX  # until we know what came of it, only reading helps
        try:
            async with asyncio.timeout(self._timing.call_seconds):
                quota = await self._store.write(book.quota, book.sending(draft, started))
        except ConflictError:
            self._count_write("conflict")
            self._stale[one] = book.quota.version
            book.allowance.not_sent()
            return False
        except (UnreachableError, TimeoutError):
            self._count_write("unknown")
            return False
        except StoreError:
            self._count_write("refused")
            book.allowance.not_sent()
            raise
        del self._stale[one]
        self._update(book, quota)
        self._back_off(self._timing.clock() - started)
        self._count_write("gone" if quota is None else "written")
        return quota is not None

    def _back_off(self, seconds: float) -> None:
        """Leave others the time to read and write, which takes twice as long as a write did.

        Who has just written knows the newest version, so without rest it would win every race.
        """
        self.rests_until = self._timing.clock() + 2 * seconds * (0.5 + self._timing.jitter())

    def _update(self, book: QuotaState, quota: ElasticQuota | None) -> None:
        """Take what the API server says of a quota: a version, or that it is gone."""
        if quota is not None:
            book.update(quota, self._timing.clock())
        else:
            one = _identity(book.quota)
            self._gone[one] = book.quota.version
            self._books.pop(one, None)


def _identity(quota: ElasticQuota) -> _Identity:
    return quota.group, quota.name
