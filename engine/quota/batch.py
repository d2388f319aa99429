"""Many requests of one namespace judged in order, each as if those before it were stored."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from engine.model.elastic_quota import ElasticQuota
from engine.model.resources import Amounts
from engine.quota.book import QuotaBook
from engine.quota.reservations import MOST_BYTES, Reservation, Reservations
from engine.quota.verdict import QuotaVerdict, judge

_MOST_NAMES = 8  # a pod can name thousands of resources


@dataclass(frozen=True, slots=True)
class Asked:
    """A share that is asked for.

    Attributes:
        reservation: what it will be; its amounts are all that the pod requests.
        dry_run: whether it is only a question.
    """

    reservation: Reservation
    dry_run: bool = False


@dataclass(frozen=True, slots=True)
class Judgement:
    """What comes of a batch.

    Attributes:
        verdicts: in the order of the requests; None where nobody can say: there is no room among
            the reservations, or the request comes so late that its own was given up.
        writes: the reservations that quotas must have before any verdict is told.
    """

    verdicts: tuple[QuotaVerdict | None, ...]
    writes: tuple[tuple[QuotaBook, Reservations], ...]


@dataclass(slots=True)
class _Page:
    """A quota while a batch is judged."""

    book: QuotaBook
    kept: Reservations
    used: dict[str, int]
    size: int
    added: list[Reservation] = field(default_factory=list)


def needs(amounts: Amounts, quota: ElasticQuota) -> dict[str, int]:
    """Return what of some amounts a quota limits."""
    limits = quota.max or {}
    return {name: amount for name, amount in amounts.items() if amount > 0 and name in limits}


def judge_batch(
    batch: Iterable[Asked], used: Amounts, books: Sequence[QuotaBook], now: float
) -> Judgement:
    """Judge requests; each must fit every quota of the namespace.

    Args:
        batch: in order of arrival.
        used: what the pods hold that are seen.
        books: the namespace's quotas.
        now: by the clock of the books.
    """
    pages = [_page(book, used, now) for book in books]
    verdicts = tuple(_judged(asked, pages) for asked in batch)
    writes = tuple((page.book, page.kept.adding(page.added)) for page in pages if page.added)
    return Judgement(verdicts, writes)


def _page(book: QuotaBook, used: Amounts, now: float) -> _Page:
    kept, counted = book.pruned(now), book.counted()
    names = used.keys() | counted.keys()
    total = {name: used.get(name, 0) + counted.get(name, 0) for name in names}
    return _Page(book, kept, total, len(book.annotation(kept)))


def _judged(asked: Asked, pages: Sequence[_Page]) -> QuotaVerdict | None:
    """Return the verdict on one request; if it is admitted, the next one finds it counted."""
    wanted = asked.reservation
    if any(page.book.gave_up(wanted.key) for page in pages):
        return None
    open_pages = [
        (page, limited)
        for page in pages
        if not page.book.covers(wanted.key) and (limited := needs(wanted.amounts, page.book.quota))
    ]
    verdicts = [judge(limited, page.used, [page.book.quota]) for page, limited in open_pages]
    if not all(verdict.allowed for verdict in verdicts):
        misfits = [verdict for verdict in verdicts if not verdict.allowed]
        return QuotaVerdict(
            tuple(name for verdict in misfits for name in verdict.exceeded),
            "; ".join(verdict.message for verdict in misfits),
        )
    if asked.dry_run:
        return QuotaVerdict()
    entries = [(page, _entry(wanted, limited)) for page, limited in open_pages]
    if any(page.size + entry.size > MOST_BYTES for page, entry in entries):
        return None
    for page, entry in entries:
        page.added.append(entry)
        page.size += entry.size
        for name, amount in entry.amounts.items():
            page.used[name] = page.used.get(name, 0) + amount
    return QuotaVerdict()


def _entry(wanted: Reservation, limited: dict[str, int]) -> Reservation:
    """Return what a quota must remember: also what it does not limit, for its max may change."""
    positive = {name: amount for name, amount in wanted.amounts.items() if amount > 0}
    amounts = positive if len(positive) <= _MOST_NAMES else limited
    return Reservation(wanted.uid, wanted.name, amounts, wanted.after, wanted.request)
