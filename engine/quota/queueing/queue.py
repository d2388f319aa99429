"""Which of the pods that wait for quota may be released: one total order over all quotas.

INVARIANT: within a cycle usage only grows. So a pod that does not fit is not looked at again, and
neither is another of its quota that requests the same.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from heapq import heapify, heappop, heapreplace
from typing import Final, NamedTuple, TypeAlias

from engine.model.elastic_quota import QuotaKey
from engine.model.hold import QueuedReason
from engine.model.quantity import amount_text
from engine.model.resources import Amounts
from engine.model.time import SECOND, Micros
from engine.quota.queueing.cohort import (
    Bound,
    Cohort,
    QueuedPod,
    QueueQuota,
    is_within_min,
    weighted_share,
)

_NEVER: Final = "it alone requests more than max: it is released once max allows it"


class Lack(NamedTuple):
    """A resource of which a pod cannot have enough now.

    Attributes:
        resource: its name.
        needed: by the pod, base units.
        free: what is left; below 0 where more is used than there is.
        bound: the quota whose bound it is, None for the cohort.
    """

    resource: str
    needed: int
    free: int
    bound: QuotaKey | None


class BorrowingQuota(NamedTuple):
    """A quota that uses more of a resource than its min; `amount` is what is above, base units."""

    quota: QuotaKey
    resource: str
    amount: int


class QuotaWait(NamedTuple):
    """Why a pod waits for its quota.

    Attributes:
        reason: for its condition.
        quota: whose queue it is in.
        position: its place among those of the quota that wait, from 1, in the queue order.
        of: how many of the quota wait.
        is_within_min: whether all that it requests of what min names is within min.
        since: when it began to wait.
        lacks: of what there is not enough; of bounds, or else of the cohort.
        blocked_by: who borrows what the cohort lacks, the most first; at most 3 of each resource.
        behind: the pod of its quota that nothing overtakes, as it has waited for long; "" for none.
        refusal: why its release was refused although it fits by what is known; "" if it was not.
    """

    reason: QueuedReason
    quota: QuotaKey
    position: int
    of: int
    is_within_min: bool
    since: Micros
    lacks: tuple[Lack, ...] = ()
    blocked_by: tuple[BorrowingQuota, ...] = ()
    behind: str = ""
    refusal: str = ""

    @property
    def message(self) -> str:
        """What the pod waits for, such as `needs cpu 2, 1 free; batch borrows cpu 12`."""
        if self.behind:
            return f"pod `{self.behind}` has waited for long and goes first"
        if self.refusal:
            return self.refusal
        never = [_NEVER] if self.reason is QueuedReason.EXCEEDS_MAX else []
        clauses = [*map(_lack_text, self.lacks), *map(_borrower_text, self.blocked_by)]
        return "; ".join([*never, *clauses])


class QuotaRelease(NamedTuple):
    """A pod that its quota lets go.

    Attributes:
        key: `namespace/name`.
        quota: whose queue it was in.
        is_within_min: whether it is within min; else it borrows.
    """

    key: str
    quota: QuotaKey
    is_within_min: bool


@dataclass(frozen=True, slots=True)
class QueueDecision:
    """Which of the queued pods may be released now.

    Attributes:
        released: in the order of their release.
        waits: of all others, by key.
    """

    released: tuple[QuotaRelease, ...]
    waits: Mapping[str, QuotaWait]


def _lack_text(lack: Lack) -> str:
    needed, free = (amount_text(lack.resource, max(each, 0)) for each in (lack.needed, lack.free))
    return f"needs {lack.resource} {needed}, {free} free"


def _borrower_text(borrower: BorrowingQuota) -> str:
    namespace, _, name = borrower.quota
    amount = amount_text(borrower.resource, borrower.amount)
    return f"{namespace}/{name} borrows {borrower.resource} {amount}"


Used: TypeAlias = dict[str, int]


@dataclass(slots=True, eq=False)
class Line:
    """The pods of one quota in a cycle."""

    quota: QueueQuota  # their quota
    bounds: list[tuple[Bound, Used]]  # each with the usage that it limits
    used: Used  # by the quota
    tallies: list[Used]  # the usages that a pod of the quota adds to, each once
    pods: list[QueuedPod] = field(default_factory=list)  # in the queue order
    places: list[int] = field(default_factory=list)  # of the pods in the order of all quotas
    next: int = 0  # the index of the head in `pods`
    is_within_min: bool = False  # whether the head is
    checked_at: int = -1  # the moment of the cycle at which the head was last seen to fit
    # the pods that do not fit, and whether each is within min; in order
    waiting: list[tuple[QueuedPod, bool]] = field(default_factory=list)
    # by the id of requests that do not fit, whether they are within min
    unfitting: dict[int, bool] = field(default_factory=dict)
    keeps: bool = False  # whether room is kept for a pod that waits
    behind: str = ""  # the pod that nothing overtakes, "" for none
    behind_from: int = 0  # the index in `waiting` of the first pod behind it

    def holds_within_min(self, requests: Amounts) -> bool:
        """Return whether a pod would be within min."""
        return is_within_min(requests, self.used, self.quota.guaranteed)

    def fits_bounds(self, requests: Amounts) -> bool:
        """Return whether all bounds have room."""
        for bound, used in self.bounds:
            limit = bound.limit
            for name, amount in requests.items():
                if amount > 0 and name in limit and used.get(name, 0) + amount > limit[name]:
                    return False
        return True

    def exceeds_a_bound(self, requests: Amounts) -> bool:
        """Return whether a pod would not fit a bound that nobody used anything of."""
        return any(
            amount > bound.limit.get(name, amount)
            for bound, _ in self.bounds
            for name, amount in requests.items()
            if amount > 0
        )

    def needs_cohort(self, name: str, amount: int) -> bool:
        """Return whether an amount goes beyond min, and so takes of what is shared."""
        used = self.used.get(name, 0)
        return amount > 0 and used + amount > self.quota.guaranteed.get(name, 0)

    def lacks_of_bounds(self, requests: Amounts) -> tuple[Lack, ...]:
        """Return what of some requests does not fit within the bounds."""
        return tuple(
            Lack(name, amount, bound.limit[name] - used.get(name, 0), bound.key)
            for bound, used in self.bounds
            for name, amount in requests.items()
            if amount > 0 and name in bound.limit and used.get(name, 0) + amount > bound.limit[name]
        )

    def wait(self, *, is_within_min: bool) -> QueuedPod:
        """Let the head wait; the next pod is the head. Return the one that waits."""
        pod = self.pods[self.next]
        self.next += 1
        self.waiting.append((pod, is_within_min))
        return pod

    def wait_behind(self, pod: QueuedPod) -> None:
        """Let all others wait behind a pod that waits."""
        self.behind = pod.key
        self.behind_from = len(self.waiting)
        self.waiting.extend([(each, False) for each in self.pods[self.next :]])
        self.next = len(self.pods)


# Why pods wait, each told when it is asked for: thousands wait, and few are asked for in a cycle.
#
# Nothing is to be released any more by the cycle that they come from: what it has counted is read
# when somebody asks.


_MOST_BORROWERS: Final = 3

_Why: TypeAlias = tuple[QueuedReason, tuple[Lack, ...], tuple[BorrowingQuota, ...]]
_BEHIND: Final[_Why] = (QueuedReason.WAITING_FOR_QUOTA, (), ())


@dataclass(frozen=True, slots=True)
class CohortUse:
    """What quotas use of what they share."""

    members: Mapping[QuotaKey, QueueQuota]  # the quotas that share it
    used_of: Callable[[QuotaKey], Amounts]  # what a quota uses
    used: Amounts  # of what all share, room that is kept included
    capacity: Amounts  # what all share


class QuotaWaits(Mapping[str, QuotaWait]):
    """Why each pod waits, by `namespace/name`, in the order of quotas.

    Args:
        others: pods that wait for something else than those of `lines`, and why.
        lines: the pods of each quota.
        cohort: what they share.
    """

    def __init__(
        self,
        others: Mapping[str, QuotaWait] | None = None,
        lines: Iterable[Line] = (),
        cohort: CohortUse | None = None,
    ) -> None:
        self._others = others or {}
        self._lines = [line for line in lines if line.waiting]
        self._cohort = cohort or CohortUse({}, lambda _key: {}, {}, {})
        self._places = {
            pod.key: (line, place)
            for line in self._lines
            for place, (pod, _) in enumerate(line.waiting)
        }
        self._whys: dict[tuple[QuotaKey, int], _Why] = {}  # by quota and id of requests
        self._borrowers: dict[str, list[BorrowingQuota]] = {}

    def __len__(self) -> int:
        """Return how many pods wait."""
        return len(self._places.keys() | self._others.keys())

    def __iter__(self) -> Iterator[str]:
        """Iterate over the keys of the pods."""
        yield from self._places
        yield from (key for key in self._others if key not in self._places)

    def __contains__(self, key: object) -> bool:
        """Return whether a pod waits."""
        return key in self._places or key in self._others

    def __getitem__(self, key: str) -> QuotaWait:
        """Return why a pod waits."""
        if key in self._others:
            return self._others[key]
        line, place = self._places[key]
        return self._wait(line, place)

    @property
    def quotas(self) -> set[QuotaKey]:
        """The quotas whose pods wait."""
        quotas = {line.quota.key for line in self._lines}
        return quotas.union(wait.quota for wait in self._others.values())

    def firsts(self) -> dict[QuotaKey, QuotaWait]:
        """Return why the first pod of each quota waits."""
        others = {wait.quota: wait for wait in self._others.values() if wait.position == 1}
        return others | {line.quota.key: self._wait(line, 0) for line in self._lines}

    def _wait(self, line: Line, place: int) -> QuotaWait:
        pod, is_within_min = line.waiting[place]
        is_behind = bool(line.behind) and place >= line.behind_from
        reason, lacks, blocked_by = (
            _BEHIND if is_behind or pod.refusal else self._why(line, pod.requests)
        )
        return QuotaWait(
            reason,
            pod.quota,
            place + 1,
            len(line.waiting),
            is_within_min,
            pod.since,
            lacks,
            blocked_by,
            line.behind if is_behind else "",
            pod.refusal,
        )

    def _why(self, line: Line, requests: Amounts) -> _Why:
        """Return what requests that do not fit lack of the bounds, or else of the cohort."""
        known = line.quota.key, id(requests)
        why = self._whys.get(known)
        if why is None:
            lacks = line.lacks_of_bounds(requests)
            why = self._whys[known] = (
                self._lacks_cohort(line, requests)
                if not lacks
                else (QueuedReason.EXCEEDS_MAX, lacks, ())
                if line.exceeds_a_bound(requests)
                else (QueuedReason.WAITING_FOR_QUOTA, lacks, ())
            )
        return why

    def _lacks_cohort(self, line: Line, requests: Amounts) -> _Why:
        capacity, used = self._cohort.capacity, self._cohort.used
        lacks = tuple(
            Lack(name, amount, capacity.get(name, 0) - used.get(name, 0), None)
            for name, amount in requests.items()
            if line.needs_cohort(name, amount)
            and used.get(name, 0) + amount > capacity.get(name, 0)
        )
        blocked_by = tuple(
            each for lack in lacks for each in self._borrowers_of(lack.resource, line)
        )
        return QueuedReason.WAITING_FOR_QUOTA, lacks, blocked_by

    def _borrowers_of(self, resource: str, line: Line) -> list[BorrowingQuota]:
        """Return the other quotas that borrow most of a resource."""
        found = self._borrowers.get(resource)
        if found is None:
            above = (
                BorrowingQuota(key, resource, used - max(quota.guaranteed.get(resource, 0), 0))
                for key, quota in self._cohort.members.items()
                if (used := self._cohort.used_of(key).get(resource, 0)) > 0
            )
            found = self._borrowers[resource] = sorted(
                (each for each in above if each.amount > 0),
                key=lambda each: (-each.amount, each.quota),
            )[: _MOST_BORROWERS + 1]
        return [each for each in found if each.quota != line.quota.key][:_MOST_BORROWERS]


AGED_MICROS: Final = Micros(300 * SECOND)
"""After which nothing of its quota overtakes a pod that does not fit."""

_NOTHING: Final[Amounts] = {}

_Rank: TypeAlias = tuple[bool, int, int]
"""Whether a head borrows, the share of its quota with it, and its place in the queue order."""


def next_releases(
    queued: Sequence[QueuedPod],
    quotas: Mapping[QuotaKey, QueueQuota],
    usage: Mapping[QuotaKey, Amounts],
    cohort: Cohort,
    now: Micros,
) -> QueueDecision:
    """Return which pods may be released now, in order, and why the others wait.

    See `QueueCycle`, which says the same one by one.
    """
    cycle = QueueCycle(queued, quotas, usage, cohort, now)
    return QueueDecision(tuple(cycle.releases()), cycle.waits())


class QueueCycle:
    """One look at all queues: which pods may go, and why the others wait.

    A pod may go if it stays within all bounds of its quota and, of each resource, within min or
    within the room of the cohort. Heads within min go first, then those of the lowest weighted
    share, then as in the queue order. In a quota, a pod overtakes another one that does not fit,
    until that has waited for `AGED_MICROS`. What a head within min needs is kept free for it.

    Args:
        queued: in the queue order.
        quotas: of all pods of `queued`, and all that share the cohort.
        usage: by the key of a quota or of a bound, what its pods use, those under way included.
        cohort: its room; `used` counts the same pods, and all others that take of it.
        now: the time of day.
    """

    def __init__(
        self,
        queued: Sequence[QueuedPod],
        quotas: Mapping[QuotaKey, QueueQuota],
        usage: Mapping[QuotaKey, Amounts],
        cohort: Cohort,
        now: Micros,
    ) -> None:
        self._quotas = quotas
        self._members = {key: quota for key, quota in quotas.items() if quota.is_in_cohort}
        self._usage = usage
        self._cohort = cohort
        self._capacity = cohort.capacity
        self._cohort_used = dict(cohort.used)
        self._aged_from = now - AGED_MICROS
        self._moment = 0  # grows with every change of usage
        self._tallies: dict[QuotaKey, Used] = {}
        self._lendable_of: dict[str, int] = {}
        # 1. The pods of each quota, in order.
        self._lines = self._lines_of(queued)

        # 2. The first of each that fits: the heads.
        self._heads = [(rank, line) for line in self._lines if (rank := self._next_head(line))]
        heapify(self._heads)

    def releases(self) -> Iterator[QuotaRelease]:
        """Yield the pods that may go, in order; each counts at once. To be called once."""
        # 3. Release the least head, and put the next of its quota in its place.
        heads = self._heads
        while heads:
            line = heads[0][1]
            if self._still_fits(line):
                yield self._release(line)
            rank = self._next_head(line)
            if rank is None:
                heappop(heads)
            else:
                heapreplace(heads, (rank, line))

    def waiting(self) -> Iterator[tuple[str, bool]]:
        """Yield the key of each pod that does not fit, and whether it is within min.

        While releases are left, some that will not fit either are not among them.
        """
        return ((pod.key, within) for line in self._lines for pod, within in line.waiting)

    def waits(self, others: Mapping[str, QuotaWait] | None = None) -> QuotaWaits:
        """Return why they wait, after all that was released.

        Args:
            others: pods that wait for something else, and why.
        """
        cohort = CohortUse(self._members, self._used_of, self._cohort_used, self._capacity)
        return QuotaWaits(others, self._lines, cohort)

    # The lines.

    def _lines_of(self, queued: Sequence[QueuedPod]) -> list[Line]:
        lines: dict[QuotaKey, Line] = {}
        for place, pod in enumerate(queued):
            line = lines.get(pod.quota)
            if line is None:
                line = lines[pod.quota] = self._line(self._quotas[pod.quota])
            line.pods.append(pod)
            line.places.append(place)
        return list(lines.values())

    def _line(self, quota: QueueQuota) -> Line:
        keys = dict.fromkeys((quota.key, *(bound.key for bound in quota.bounds)))
        tallies = {key: self._tally(key) for key in keys}
        bounds = [(bound, tallies[bound.key]) for bound in quota.bounds]
        return Line(quota, bounds, tallies[quota.key], list(tallies.values()))

    def _tally(self, key: QuotaKey) -> Used:
        tally = self._tallies.get(key)
        if tally is None:
            tally = self._tallies[key] = dict(self._usage.get(key, _NOTHING))
        return tally

    # The heads.

    def _next_head(self, line: Line) -> _Rank | None:
        """Go on to the next pod of a quota that fits; return its rank, None if there is none."""
        pods, unfitting = line.pods, line.unfitting
        while line.next < len(pods):
            requests = pods[line.next].requests
            within = unfitting.get(id(requests))
            if within is None:
                within = line.holds_within_min(requests)
                if not pods[line.next].refusal and self._fits(line, requests):
                    line.is_within_min, line.checked_at = within, self._moment
                    return not within, self._share(line, requests), line.places[line.next]
                if not pods[line.next].refusal:
                    unfitting[id(requests)] = within
            if pods[line.next].since > self._aged_from and (line.keeps or not within):
                line.wait(is_within_min=within)  # nothing is kept for it, and it is overtaken
            else:
                self._wait(line, within=within)
        return None

    def _still_fits(self, line: Line) -> bool:
        """Return whether the head fits after all that was released; if not, it waits."""
        requests = line.pods[line.next].requests
        if line.checked_at == self._moment or self._fits(line, requests):
            return True
        line.unfitting[id(requests)] = line.is_within_min
        self._wait(line, within=line.is_within_min)
        return False

    def _release(self, line: Line) -> QuotaRelease:
        """Count the head as released; the next pod is the head."""
        pod = line.pods[line.next]
        line.next += 1
        for tally in line.tallies:
            _add(tally, pod.requests)
        _add(self._cohort_used, pod.requests)
        self._moment += 1
        return QuotaRelease(pod.key, pod.quota, line.is_within_min)

    def _share(self, line: Line, requests: Amounts) -> int:
        quota = line.quota
        return weighted_share(line.used, requests, quota.guaranteed, self._capacity, quota.weight)

    def _fits(self, line: Line, requests: Amounts) -> bool:
        return line.fits_bounds(requests) and self._fits_cohort(line, requests)

    def _fits_cohort(self, line: Line, requests: Amounts) -> bool:
        if not line.quota.is_in_cohort:
            return True
        used, capacity = self._cohort_used, self._capacity
        for name, amount in requests.items():
            if used.get(name, 0) + amount > capacity.get(name, 0) and line.needs_cohort(
                name, amount
            ):
                return False
        return True

    # Those that wait.

    def _wait(self, line: Line, *, within: bool) -> None:
        """Let the head wait, and keep what it needs of the cohort's room."""
        pod = line.wait(is_within_min=within)
        requests = pod.requests
        if within and not (line.keeps or pod.refusal) and line.fits_bounds(requests):
            line.keeps = True
            guaranteed = line.quota.guaranteed
            kept = {name: amount for name, amount in requests.items() if name in guaranteed}
            _add(self._cohort_used, kept)
            self._moment += 1
        if pod.since <= self._aged_from and self._may_ever_fit(line, requests):
            line.wait_behind(pod)

    def _may_ever_fit(self, line: Line, requests: Amounts) -> bool:
        """Return whether a pod would fit if the quotas used nothing."""
        guaranteed = line.quota.guaranteed
        return not line.exceeds_a_bound(requests) and all(
            amount <= max(guaranteed.get(name, 0), self._lendable(name))
            for name, amount in requests.items()
            if amount > 0 and line.quota.is_in_cohort
        )

    def _lendable(self, resource: str) -> int:
        """Return what the cohort has beyond what others hold than the quotas."""
        found = self._lendable_of.get(resource)
        if found is None:
            held = sum(self._usage.get(key, _NOTHING).get(resource, 0) for key in self._members)
            outside = max(0, self._cohort.used.get(resource, 0) - held)
            capacity = self._capacity.get(resource, 0)
            found = self._lendable_of[resource] = capacity - outside
        return found

    def _used_of(self, key: QuotaKey) -> Amounts:
        tally = self._tallies.get(key)
        return self._usage.get(key, _NOTHING) if tally is None else tally


def _add(tally: Used, amounts: Amounts) -> None:
    for name, amount in amounts.items():
        tally[name] = tally.get(name, 0) + amount
