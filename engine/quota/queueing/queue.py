"""Which of the pods that wait for quota may be released: one total order over all quotas.

INVARIANT: within a cycle usage only grows. So a pod that does not fit is not looked at again, and
neither is another of its quota that requests the same.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from heapq import heapify, heappop, heapreplace
from typing import Final, TypeAlias

from engine.model.elastic_quota import QuotaKey
from engine.model.queued_condition import QueuedReason
from engine.model.resources import Amounts
from engine.model.time import SECOND, Micros
from engine.quota.queueing.cohort import Cohort
from engine.quota.queueing.queued_pod import Bound, QueuedPod, QueueQuota
from engine.quota.queueing.share import is_within_min, weighted_share
from engine.quota.queueing.wait import Borrower, Lack, QueueDecision, QuotaRelease, QuotaWait

AGED_MICROS: Final = Micros(300 * SECOND)
"""After which nothing of its quota overtakes a pod that does not fit."""

_MOST_BORROWERS: Final = 3
_NOTHING: Final[Amounts] = {}
_UNKNOWN: Final = (QueuedReason.WAITING_FOR_QUOTA, ())

_Used: TypeAlias = dict[str, int]
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
    cycle = _Cycle(quotas, usage, cohort, now)
    # 1. The pods of each quota, in order.
    lines = cycle.lines(queued)

    # 2. The first of each that fits: the heads.
    heads = [(rank, line) for line in lines if (rank := cycle.next_head(line))]
    heapify(heads)

    # 3. Release the least head, and put the next of its quota in its place.
    released = []
    while heads:
        line = heads[0][1]
        if cycle.still_fits(line):
            released.append(cycle.release(line))
        rank = cycle.next_head(line)
        if rank is None:
            heappop(heads)
        else:
            heapreplace(heads, (rank, line))

    # 4. Say why the others wait.
    return QueueDecision(tuple(released), cycle.waits(lines))


@dataclass(slots=True, eq=False)
class _Waiting:
    """A pod that does not fit."""

    pod: QueuedPod
    lacks: tuple[Lack, ...]
    is_within_min: bool
    behind: str = ""


@dataclass(slots=True, eq=False)
class _Line:
    """The pods of one quota in a cycle.

    Attributes:
        pods: with their places in the queue order.
        bounds: each with the usage that it limits.
        used: by the quota.
        tallies: the usages that a pod of the quota adds to, each once.
        next: the index of the head.
        head_is_within_min: of the head.
        waiting: the pods that do not fit, in order.
        unfitting: by the id of the requests, what they lacked.
        keeps: whether room is kept for a pod that waits.
        behind: the pod that nothing overtakes.
    """

    quota: QueueQuota
    bounds: list[tuple[Bound, _Used]]
    used: _Used
    tallies: list[_Used]
    pods: list[tuple[int, QueuedPod]] = field(default_factory=list)
    next: int = 0
    head_is_within_min: bool = False
    waiting: list[_Waiting] = field(default_factory=list)
    unfitting: dict[int, tuple[Lack, ...]] = field(default_factory=dict)
    keeps: bool = False
    behind: str = ""

    def __lt__(self, other: _Line) -> bool:
        """Never needed for ranks differ in the place; heaps compare pairs as a whole."""
        return self.quota.key < other.quota.key


class _Cycle:
    """Usage while pods are released one after the other."""

    def __init__(
        self,
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
        self._now = now
        self._tallies: dict[QuotaKey, _Used] = {}
        self._borrowers: dict[str, list[Borrower]] = {}
        self._lendable_of: dict[str, int] = {}

    def lines(self, queued: Sequence[QueuedPod]) -> list[_Line]:
        """Return the pods of each quota."""
        lines: dict[QuotaKey, _Line] = {}
        for place, pod in enumerate(queued):
            line = lines.get(pod.quota)
            if line is None:
                line = lines[pod.quota] = self._line(self._quotas[pod.quota])
            line.pods.append((place, pod))
        return list(lines.values())

    def _line(self, quota: QueueQuota) -> _Line:
        keys = dict.fromkeys((quota.key, *(bound.key for bound in quota.bounds)))
        tallies = {key: self._tally(key) for key in keys}
        bounds = [(bound, tallies[bound.key]) for bound in quota.bounds]
        return _Line(quota, bounds, tallies[quota.key], list(tallies.values()))

    def _tally(self, key: QuotaKey) -> _Used:
        tally = self._tallies.get(key)
        if tally is None:
            tally = self._tallies[key] = dict(self._usage.get(key, _NOTHING))
        return tally

    def next_head(self, line: _Line) -> _Rank | None:
        """Go on to the next pod of a quota that fits; return its rank, None if there is none."""
        while line.next < len(line.pods):
            place, pod = line.pods[line.next]
            line.head_is_within_min = is_within_min(pod.requests, line.used, line.quota.guaranteed)
            if self.still_fits(line):
                quota = line.quota
                share = weighted_share(
                    line.used, pod.requests, quota.guaranteed, self._capacity, quota.weight
                )
                return not line.head_is_within_min, share, place
        return None

    def still_fits(self, line: _Line) -> bool:
        """Return whether the head fits; if not, it waits, and the next pod is the head."""
        pod = line.pods[line.next][1]
        if line.behind or pod.refusal:
            self._wait(line, pod, ())
            return False
        requests = pod.requests
        lacks = line.unfitting.get(id(requests))
        if lacks is None:
            lacks = self._lacks(line, requests)
            if not lacks:
                return True
            line.unfitting[id(requests)] = lacks
        self._wait(line, pod, lacks)
        return False

    def release(self, line: _Line) -> QuotaRelease:
        """Count the head as released; the next pod is the head."""
        pod = line.pods[line.next][1]
        line.next += 1
        for tally in (*line.tallies, self._cohort_used):
            for name, amount in pod.requests.items():
                tally[name] = tally.get(name, 0) + amount
        return QuotaRelease(pod.key, pod.quota, line.head_is_within_min)

    def _lacks(self, line: _Line, requests: Amounts) -> tuple[Lack, ...]:
        """Return what of some requests does not fit: within the bounds, or else in the cohort."""
        lacks = [
            Lack(name, amount, bound.limit[name] - used.get(name, 0), bound.key)
            for bound, used in line.bounds
            for name, amount in requests.items()
            if amount > 0 and name in bound.limit and used.get(name, 0) + amount > bound.limit[name]
        ]
        if lacks or not line.quota.is_in_cohort:
            return tuple(lacks)
        guaranteed, used = line.quota.guaranteed, line.used
        capacity, cohort_used = self._capacity, self._cohort_used
        return tuple(
            Lack(name, amount, capacity.get(name, 0) - cohort_used.get(name, 0), None)
            for name, amount in requests.items()
            if amount > 0
            and used.get(name, 0) + amount > guaranteed.get(name, 0)
            and cohort_used.get(name, 0) + amount > capacity.get(name, 0)
        )

    def _wait(self, line: _Line, pod: QueuedPod, lacks: tuple[Lack, ...]) -> None:
        """Let a pod wait that does not fit, and keep what it needs of the cohort's room."""
        line.next += 1
        is_within = line.head_is_within_min
        line.waiting.append(_Waiting(pod, lacks, is_within, line.behind))
        if line.behind:
            return
        is_of_cohort = bool(lacks) and lacks[0].bound is None
        if is_within and is_of_cohort and not line.keeps:
            line.keeps = True
            for name, amount in pod.requests.items():
                if amount > 0 and name in line.quota.guaranteed:
                    self._cohort_used[name] = self._cohort_used.get(name, 0) + amount
        if self._now - pod.since >= AGED_MICROS and self._may_ever_fit(line, pod.requests):
            line.behind = pod.key

    def _may_ever_fit(self, line: _Line, requests: Amounts) -> bool:
        """Return whether a pod would fit if the quotas used nothing."""
        guaranteed = line.quota.guaranteed
        return not _exceeds_a_bound(line, requests) and all(
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
            capacity = self._cohort.capacity.get(resource, 0)
            found = self._lendable_of[resource] = capacity - outside
        return found

    def _used_of(self, key: QuotaKey) -> Amounts:
        tally = self._tallies.get(key)
        return self._usage.get(key, _NOTHING) if tally is None else tally

    def waits(self, lines: Sequence[_Line]) -> dict[str, QuotaWait]:
        """Return why the pods wait that were not released."""
        waits = {}
        for line in lines:
            reasons: dict[int, tuple[QueuedReason, tuple[Borrower, ...]]] = {}  # by id of requests
            for position, waiting in enumerate(line.waiting, 1):
                pod, lacks = waiting.pod, waiting.lacks
                known = reasons.get(id(pod.requests)) if lacks else _UNKNOWN
                if known is None:
                    known = reasons[id(pod.requests)] = self._reason(line, pod.requests, lacks)
                reason, blocked_by = known
                waits[pod.key] = QuotaWait(
                    reason=reason,
                    quota=pod.quota,
                    position=position,
                    of=len(line.waiting),
                    is_within_min=waiting.is_within_min,
                    since=pod.since,
                    lacks=lacks,
                    blocked_by=blocked_by,
                    behind=waiting.behind,
                    refusal=pod.refusal,
                )
        return waits

    def _reason(
        self, line: _Line, requests: Amounts, lacks: tuple[Lack, ...]
    ) -> tuple[QueuedReason, tuple[Borrower, ...]]:
        if _exceeds_a_bound(line, requests):
            return QueuedReason.EXCEEDS_MAX, ()
        of_cohort = (lack.resource for lack in lacks if lack.bound is None)
        blocked_by = tuple(each for name in of_cohort for each in self._borrowers_of(name, line))
        return QueuedReason.WAITING_FOR_QUOTA, blocked_by

    def _borrowers_of(self, resource: str, line: _Line) -> list[Borrower]:
        """Return the other quotas that borrow most of a resource."""
        found = self._borrowers.get(resource)
        if found is None:
            above = (
                Borrower(key, resource, used - max(quota.guaranteed.get(resource, 0), 0))
                for key, quota in self._members.items()
                if (used := self._used_of(key).get(resource, 0)) > 0
            )
            found = self._borrowers[resource] = sorted(
                (each for each in above if each.amount > 0),
                key=lambda each: (-each.amount, each.quota),
            )[: _MOST_BORROWERS + 1]
        return [each for each in found if each.quota != line.quota.key][:_MOST_BORROWERS]


def _exceeds_a_bound(line: _Line, requests: Amounts) -> bool:
    """Return whether a pod would not fit a bound that nobody used anything of."""
    return any(
        amount > bound.limit.get(name, amount)
        for bound, _ in line.bounds
        for name, amount in requests.items()
        if amount > 0
    )
