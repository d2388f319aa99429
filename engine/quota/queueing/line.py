"""The pods of one quota in a cycle: who is the head, and who waits."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TypeAlias

from engine.model.resources import Amounts
from engine.quota.queueing.queued_pod import Bound, QueuedPod, QueueQuota
from engine.quota.queueing.share import is_within_min
from engine.quota.queueing.wait import Lack

Used: TypeAlias = dict[str, int]


@dataclass(slots=True, eq=False)
class Line:
    """The pods of one quota in a cycle.

    Attributes:
        quota: their quota.
        bounds: each with the usage that it limits.
        used: by the quota.
        tallies: the usages that a pod of the quota adds to, each once.
        pods: in the queue order.
        places: of the pods in the order of all quotas.
        next: the index of the head in `pods`.
        is_within_min: whether the head is.
        checked_at: the moment of the cycle at which the head was last seen to fit.
        waiting: the pods that do not fit, and whether each is within min; in order.
        unfitting: by the id of requests that do not fit, whether they are within min.
        keeps: whether room is kept for a pod that waits.
        behind: the pod that nothing overtakes, "" for none.
        behind_from: the index in `waiting` of the first pod behind it.
    """

    quota: QueueQuota
    bounds: list[tuple[Bound, Used]]
    used: Used
    tallies: list[Used]
    pods: list[QueuedPod] = field(default_factory=list)
    places: list[int] = field(default_factory=list)
    next: int = 0
    is_within_min: bool = False
    checked_at: int = -1
    waiting: list[tuple[QueuedPod, bool]] = field(default_factory=list)
    unfitting: dict[int, bool] = field(default_factory=dict)
    keeps: bool = False
    behind: str = ""
    behind_from: int = 0

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
