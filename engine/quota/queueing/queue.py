"""Which of the pods that wait for quota may be released: one total order over all quotas.

INVARIANT: within a cycle usage only grows. So a pod that does not fit is not looked at again, and
neither is another of its quota that requests the same.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from heapq import heapify, heappop, heapreplace
from typing import Final, TypeAlias

from engine.model.elastic_quota import QuotaKey
from engine.model.resources import Amounts
from engine.model.time import SECOND, Micros
from engine.quota.queueing.cohort import Cohort
from engine.quota.queueing.line import Line, Used
from engine.quota.queueing.queued_pod import QueuedPod, QueueQuota
from engine.quota.queueing.share import weighted_share
from engine.quota.queueing.wait import QueueDecision, QuotaRelease, QuotaWait
from engine.quota.queueing.waits import CohortUse, QuotaWaits

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
