"""Many requests of one namespace judged in order, each as if those before it were stored."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from engine.model.resources import Amounts
from engine.quota.bounds import CohortUsage, effective_max, limited, sum_of
from engine.quota.reservations import MOST_BYTES, Reservation, Reservations
from engine.quota.rules import RESOURCE_QUOTA_RULES, QuotaRules
from engine.quota.state import PendingWrite, QuotaState
from engine.quota.verdict import QuotaVerdict, judge, judge_borrowing

_MOST_NAMES = 8  # a pod can name thousands of resources


@dataclass(frozen=True, slots=True)
class QuotaRequest:
    """A share that is asked for.

    Attributes:
        reservation: what it will be; its amounts are all that the pod requests.
        dry_run: whether it is only a question.
    """

    reservation: Reservation
    dry_run: bool = False


@dataclass(frozen=True, slots=True)
class BatchResult:
    """What comes of a batch.

    Attributes:
        verdicts: in the order of the requests; None where nobody can say: there is no room among
            the reservations, or the request comes so late that its own was given up.
        writes: what must be on quotas before any verdict is told.
        held_up: for each request, whether it would fit but for what other replicas have taken
            ahead, which they give back when they hear that there is so little left.
    """

    verdicts: tuple[QuotaVerdict | None, ...]
    writes: tuple[tuple[QuotaState, PendingWrite], ...]
    held_up: tuple[bool, ...]


@dataclass(slots=True)
class _Page:
    """A quota while a batch is judged."""

    book: QuotaState
    used: dict[str, int]
    lent: Amounts
    size: int
    added: list[Reservation] = field(default_factory=list)

    def free(self, rules: QuotaRules) -> Amounts:
        """Return what is free of each resource that the quota limits; below 0 where it is over."""
        bounds = effective_max(self.book.quota, rules)
        return {name: bound - self.used.get(name, 0) for name, bound in bounds.items()}


def judge_batch(
    batch: Iterable[QuotaRequest],
    used: Amounts,
    books: Sequence[QuotaState],
    now: float,
    rules: QuotaRules = RESOURCE_QUOTA_RULES,
    pool: CohortUsage | None = None,
) -> BatchResult:
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
    verdicts, held_up = [], []
    for asked in batch:
        verdict = _judged(asked, pages, rules, pool)
        verdicts.append(verdict)
        held_up.append(
            verdict is not None and not verdict.allowed and _is_lent(asked, pages, rules)
        )
        if pool is not None and verdict is not None and verdict.allowed and not asked.dry_run:
            pool = pool.with_more(asked.reservation.amounts)
    # Where there is more to look at than one quota, nothing is taken ahead of any.
    takes_ahead = pool is None and len(pages) == 1
    drafts = ((page.book, _draft(page, rules, now, takes_ahead=takes_ahead)) for page in pages)
    writes = tuple((book, draft) for book, draft in drafts if draft is not None)
    return BatchResult(tuple(verdicts), writes, tuple(held_up))


def expect(asked: QuotaRequest, books: Sequence[QuotaState], rules: QuotaRules, now: float) -> None:
    """Take note of a request that is new: more like it may come."""
    if not asked.dry_run:
        for book in books:
            book.allowance.record_demand(_entry_on(book, asked.reservation, rules).amounts, now)


def draw(asked: QuotaRequest, books: Sequence[QuotaState], rules: QuotaRules, now: float) -> bool:
    """Admit a request out of what was taken ahead; False where that cannot be."""
    if asked.dry_run or len(books) != 1:
        return False
    (book,) = books
    wanted = asked.reservation
    if book.covers(wanted.key):
        return not book.gave_up(wanted.key)
    return book.draw(_entry_on(book, wanted, rules), now)


def _page(book: QuotaState, used: Amounts, now: float) -> _Page:
    total = sum_of((used, book.counted()))
    kept = book.pruned(now)
    listed = {**kept.by_key, **book.allowance.drawn}
    size = len(book.annotation(Reservations(kept.seen_up_to, listed, kept.allowances)))
    return _Page(book, total, book.recallable(now), size)


def _draft(page: _Page, rules: QuotaRules, now: float, *, takes_ahead: bool) -> PendingWrite | None:
    """Return what to write on a quota, None if there is nothing."""
    book, free = page.book, page.free(rules)
    if not page.added and not book.needs_rewriting(free, now):
        return None
    return book.draft(page.added, book.allowance.wanted(free, now) if takes_ahead else {}, now)


def _is_lent(asked: QuotaRequest, pages: Sequence[_Page], rules: QuotaRules) -> bool:
    """Whether a request that does not fit would, had nobody else taken anything ahead."""
    amounts = asked.reservation.amounts
    return any(page.lent for page in pages) and all(
        judge(amounts, _less(page.used, page.lent), [page.book.quota], rules).allowed
        for page in pages
    )


def _less(amounts: Amounts, others: Amounts) -> Amounts:
    return {name: amount - others.get(name, 0) for name, amount in amounts.items()}


def _judged(
    asked: QuotaRequest, pages: Sequence[_Page], rules: QuotaRules, pool: CohortUsage | None
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


def _entry_on(book: QuotaState, wanted: Reservation, rules: QuotaRules) -> Reservation:
    return _entry(wanted, limited(wanted.amounts, book.quota, rules))


def _entry(wanted: Reservation, held: dict[str, int]) -> Reservation:
    """Return what a quota must remember: also what it does not limit, for its max may change."""
    positive = {name: amount for name, amount in wanted.amounts.items() if amount > 0}
    amounts = positive if len(positive) <= _MOST_NAMES else held
    return Reservation(wanted.uid, wanted.name, amounts, wanted.after, wanted.request)
