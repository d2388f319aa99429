"""A slow and plain judge of queues, written from the rules: in fractions, without a heap."""

from __future__ import annotations

from collections import Counter
from fractions import Fraction
from typing import TYPE_CHECKING

from engine.quota.queueing import AGED_MICROS

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from engine.model.elastic_quota import QuotaKey
    from engine.model.resources import Amounts
    from engine.model.time import Micros
    from engine.quota.queueing import Cohort, QueuedPod, QueueQuota


class PlainQueue:
    """All that counts in a cycle.

    Attributes:
        used: by the key of a quota or bound.
        kept: for the first head within min of each quota that waits for the cohort alone.
    """

    def __init__(
        self,
        quotas: Mapping[QuotaKey, QueueQuota],
        usage: Mapping[QuotaKey, Amounts],
        cohort: Cohort,
    ) -> None:
        self.quotas = quotas
        self.used = {key: Counter(used) for key, used in usage.items()}
        self.cohort = cohort
        self.cohort_used = Counter(cohort.used)
        self.kept: dict[QuotaKey, Counter[str]] = {}

    def is_within_min(self, pod: QueuedPod) -> bool:
        """All that min names and the pod requests, and at least one resource."""
        guaranteed, used = self.quotas[pod.quota].guaranteed, self._used(pod.quota)
        named = [name for name, amount in pod.requests.items() if amount > 0 and name in guaranteed]
        return bool(named) and all(
            used[name] + pod.requests[name] <= guaranteed[name] for name in named
        )

    def fits_bounds(self, pod: QueuedPod) -> bool:
        """Usage of each bound, with the pod, is within it."""
        return all(
            self._used(bound.key)[name] + amount <= bound.limit[name]
            for bound in self.quotas[pod.quota].bounds
            for name, amount in pod.requests.items()
            if amount > 0 and name in bound.limit
        )

    def fits_cohort(self, pod: QueuedPod) -> bool:
        """Of each resource the quota stays within min, or the cohort has room that is not kept."""
        guaranteed, used = self.quotas[pod.quota].guaranteed, self._used(pod.quota)
        kept = sum(self.kept.values(), Counter[str]())
        return all(
            used[name] + amount <= guaranteed.get(name, 0)
            or self.cohort_used[name] + kept[name] + amount <= self.cohort.capacity.get(name, 0)
            for name, amount in pod.requests.items()
            if amount > 0
        )

    def fits(self, pod: QueuedPod) -> bool:
        """Whether a pod may go."""
        return self.fits_bounds(pod) and self.fits_cohort(pod)

    def share(self, pod: QueuedPod) -> Fraction:
        """The greatest part of the cohort that its quota would borrow, by weight."""
        quota, used = self.quotas[pod.quota], self._used(pod.quota)
        shares = [
            Fraction(above, capacity * quota.weight)
            for name, capacity in self.cohort.capacity.items()
            if (above := used[name] + pod.requests.get(name, 0) - quota.guaranteed.get(name, 0)) > 0
            and capacity > 0
        ]
        return max(shares, default=Fraction(0))

    def release(self, pod: QueuedPod) -> None:
        """Count a pod: for its quota and each bound once, and for the cohort."""
        keys = {pod.quota, *(bound.key for bound in self.quotas[pod.quota].bounds)}
        for tally in (*(self._used(key) for key in keys), self.cohort_used):
            for name, amount in pod.requests.items():
                tally[name] += amount

    def refuse(self, pod: QueuedPod) -> None:
        """Keep what a pod needs that is within min, if only the cohort lacks room for it."""
        if pod.quota not in self.kept and self.is_within_min(pod) and self.fits_bounds(pod):
            guaranteed = self.quotas[pod.quota].guaranteed
            named = {name: amount for name, amount in pod.requests.items() if name in guaranteed}
            self.kept[pod.quota] = Counter(named)

    def may_ever_fit(self, pod: QueuedPod) -> bool:
        """Whether a pod would fit if no quota used anything."""
        alone = PlainQueue(self.quotas, {}, self.cohort)
        held = sum((self._used(key) for key in self.quotas), Counter[str]())
        names = self.cohort_used.keys() | held.keys()
        alone.cohort_used = Counter(
            {name: max(0, self.cohort_used[name] - held[name]) for name in names}
        )
        return alone.fits(pod)

    def _used(self, key: QuotaKey) -> Counter[str]:
        return self.used.setdefault(key, Counter())


def plain_releases(
    queued: Sequence[QueuedPod],
    quotas: Mapping[QuotaKey, QueueQuota],
    usage: Mapping[QuotaKey, Amounts],
    cohort: Cohort,
    now: Micros,
) -> list[str]:
    """Return the keys of the pods that may go, in order."""
    queue = PlainQueue(quotas, usage, cohort)
    lines: dict[QuotaKey, list[QueuedPod]] = {}
    for pod in queued:
        lines.setdefault(pod.quota, []).append(pod)

    def advance(line: list[QueuedPod]) -> None:
        while line and not queue.fits(line[0]):
            pod = line.pop(0)
            queue.refuse(pod)
            if now - pod.since >= AGED_MICROS and queue.may_ever_fit(pod):
                line.clear()

    def rank(line: list[QueuedPod]) -> tuple[bool, Fraction, int]:
        return not queue.is_within_min(line[0]), queue.share(line[0]), queued.index(line[0])

    for line in lines.values():
        advance(line)
    released = []
    while heads := [line for line in lines.values() if line]:
        line = min(heads, key=rank)
        if queue.fits(line[0]):
            pod = line.pop(0)
            queue.release(pod)
            released.append(pod.key)
        advance(line)
    return released
