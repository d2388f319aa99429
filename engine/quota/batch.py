"""Many requests of one namespace judged in order, each as if those before it were stored."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from engine.model.resources import Amounts
from engine.quota.book import QuotaBook
from engine.quota.bounds import Pool, limited
from engine.quota.reservations import MOST_BYTES, Reservation, Reservations
from engine.quota.rules import RESOURCE_QUOTA_RULES, QuotaRules
from engine.quota.verdict import QuotaVerdict, judge, judge_borrowing

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


def judge_batch(
    batch: Iterable[Asked],
    used: Amounts,
    books: Sequence[QuotaBook],
    now: float,
    rules: QuotaRules = RESOURCE_QUOTA_RULES,
    pool: Pool | None = None,
) -> Judgement:
    """Judge requests; each must fit every quota of the namespace.

    Args:
        batch: in order of arrival.
        used: what the pods hold that are seen.
        books: the namespace's quotas.
        now: by the clock of the books.
        rules: what is compared.
        pool: what all namespaces share, of the pods that are seen; None where nobody borrows.
    """
    pages = [_page(book, used, now) for book in books]
    if pool is not None and books:
        pool = pool.with_more(books[0].counted())
    verdicts = []
    for asked in batch:
        verdict = _judged(asked, pages, rules, pool)
        verdicts.append(verdict)
        if pool is not None and verdict is not None and verdict.allowed and not asked.dry_run:
            pool = pool.with_more(asked.reservation.amounts)
    writes = tuple((page.book, page.kept.adding(page.added)) for page in pages if page.added)
    return Judgement(tuple(verdicts), writes)


def _page(book: QuotaBook, used: Amounts, now: float) -> _Page:
    kept, counted = book.pruned(now), book.counted()
    names = used.keys() | counted.keys()
    total = {name: used.get(name, 0) + counted.get(name, 0) for name in names}
    return _Page(book, kept, total, len(book.annotation(kept)))


def _judged(
    asked: Asked, pages: Sequence[_Page], rules: QuotaRules, pool: Pool | None
) -> QuotaVerdict | None:
    """Return the verdict on one request; if it is admitted, the next one finds it counted."""
    wanted = asked.reservation
    if any(page.book.gave_up(wanted.key) for page in pages):
        return None
    open_pages = [
        (page, held)
        for page in pages
        if not page.book.covers(wanted.key)
        and ((held := limited(wanted.amounts, page.book.quota, rules)) or rules.spares_nobody)
    ]
    verdicts = [
        judge(wanted.amounts, page.used, [page.book.quota], rules) for page, _ in open_pages
    ]
    if pool is not None and open_pages:
        verdicts.append(judge_borrowing(wanted.amounts, pool))
    if not all(verdict.allowed for verdict in verdicts):
        misfits = [verdict for verdict in verdicts if not verdict.allowed]
        return QuotaVerdict(
            tuple(name for verdict in misfits for name in verdict.exceeded),
            "; ".join(verdict.message for verdict in misfits),
        )
    if asked.dry_run:
        return QuotaVerdict()
    entries = [(page, _entry(wanted, held)) for page, held in open_pages]
    if any(page.size + entry.size > MOST_BYTES for page, entry in entries):
        return None
    for page, entry in entries:
        page.added.append(entry)
        page.size += entry.size
        for name, amount in entry.amounts.items():
            page.used[name] = page.used.get(name, 0) + amount
    return QuotaVerdict()


def _entry(wanted: Reservation, held: dict[str, int]) -> Reservation:
    """Return what a quota must remember: also what it does not limit, for its max may change."""
    positive = {name: amount for name, amount in wanted.amounts.items() if amount > 0}
    amounts = positive if len(positive) <= _MOST_NAMES else held
    return Reservation(wanted.uid, wanted.name, amounts, wanted.after, wanted.request)
