"""Quota that a replica reserves ahead in one write, so that most of its pods need no write.

An allowance stands on the object beside the reservations and names no pods: every other replica
counts all of it. Its own replica admits pods from it without a request to the API server. This is
the escrow method (O'Neil, "The Escrow Transactional Method", 1986).

INVARIANT: pods drawn since an allowance was last written, and those it was written for, never hold
more at any time than the allowance on the object. So while a write of it is in flight, a pod must
fit the remainder before the write and after it. Pods are drawn only for `seconds` after the last
write began: an allowance that has not changed for longer yields no more pods.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from engine.model.quantity import INT64_MAX
from engine.model.resources import Amounts
from engine.quota.bounds import sum_of
from engine.quota.reservations import Allowance, Reservation, held_together

_MOST_DRAWN = 800  # all of them fit in the annotation if they must be listed
_MOST_RECENT = 256
_LEAST_RECENT = 2  # a single pod is no sign of more


@dataclass(frozen=True, slots=True, kw_only=True)
class AllowanceConfig:
    """Conditions and size of an allowance.

    Attributes:
        seconds: for how long pods are drawn after the write began.
        demand_seconds: demand is measured over that time; twice as much is reserved, because
            demand grows.
        least_pods: pods of the usual size that must fit, or nothing is reserved ahead: near the end
            of a quota everything is written pod by pod, so that it can be used to the last one.
        share: an allowance is at most this part of the free amounts, one in so many.
    """

    seconds: float = 15.0
    demand_seconds: float = 4.0
    least_pods: int = 64
    share: int = 16


@dataclass(frozen=True, slots=True)
class _Written:
    """An allowance as it was written, and the pods drawn from it by then."""

    serial: int = 0
    amounts: Amounts = field(default_factory=dict)
    drawn: Mapping[str, Reservation] = field(default_factory=dict)
    maximum: Amounts | None = None  # `max` of the quota at that time
    begun: float = float("-inf")

    def without(self, drawn: Mapping[str, Reservation]) -> dict[str, int]:
        """Amounts that remain beyond some pods."""
        held = held_together(drawn.values())
        return {name: amount - held.get(name, 0) for name, amount in self.amounts.items()}


class LocalAllowance:
    """The allowance of this replica on one quota.

    Args:
        replica: unique for each process that ever ran.
        config: conditions and size.

    Attributes:
        drawn: the pods admitted from it, by key.
    """

    def __init__(self, replica: str, config: AllowanceConfig) -> None:
        self.replica = replica
        self.config = config
        self.drawn: dict[str, Reservation] = {}
        self._on_object = _Written()
        self._sent: _Written | None = None  # may have been written or not
        self._serial = 0  # never used twice: by it others see whether an allowance changed
        self._drawn_since_sent: set[str] = set()
        self._remaining: dict[str, int] = {}
        self._initial: Amounts = {}  # remaining when it was written
        self._demand: deque[tuple[float, Amounts]] = deque(maxlen=_MOST_RECENT)

    # Drawing.

    def draw(self, pod: Reservation, maximum: Amounts | None, now: float) -> bool:
        """Admit a pod from the allowance; False, without effect, where it does not fit.

        Args:
            pod: the reservation to make.
            maximum: the current `max` of the quota.
            now: by the same clock as all moments here.
        """
        if self.is_expired(maximum, now) or len(self.drawn) >= _MOST_DRAWN:
            return False
        remaining = self._remaining
        if any(remaining.get(name, 0) < amount for name, amount in pod.amounts.items()):
            return False
        for name, amount in pod.amounts.items():
            remaining[name] -= amount
        self.drawn[pod.key] = pod
        self._drawn_since_sent.add(pod.key)
        return True

    def is_expired(self, maximum: Amounts | None, now: float) -> bool:
        """Whether nothing can be drawn any more: it is too old, or `max` has changed."""
        written = self._on_object
        return now >= written.begun + self.config.seconds or written.maximum != maximum

    def runs_low(self, now: float) -> bool:
        """Whether it should be renewed soon: half of its amounts, or of its time, is gone."""
        half_life = self._on_object.begun + self.config.seconds / 2
        return now >= half_life or any(
            2 * self._remaining[name] < amount for name, amount in self._initial.items()
        )

    # Size.

    def record_demand(self, amounts: Amounts, now: float) -> None:
        """Count the request of a new pod."""
        self._demand.append((now, amounts))

    def wanted(self, free: Amounts, now: float) -> Amounts:
        """Amounts to reserve ahead; none where the quota is scarce.

        Args:
            free: of each resource that the quota limits.
            now: the moment.
        """
        since = now - self.config.demand_seconds
        recent = [amounts for at, amounts in self._demand if at > since]
        if len(recent) < _LEAST_RECENT:
            return {}
        total = sum_of(recent)
        if _pods_that_fit(free, total, len(recent)) < self.config.least_pods:
            return {}
        wanted = {
            name: min(2 * amount, free[name] // self.config.share) if name in free else 2 * amount
            for name, amount in total.items()
        }
        return wanted if all(wanted.values()) else {}

    def is_scarce(self, free: Amounts) -> bool:
        """Whether so little is free that the remainder should be given back."""
        recent = [amounts for _, amounts in self._demand]
        least = self.config.least_pods // 2
        return bool(recent) and _pods_that_fit(free, sum_of(recent), len(recent)) < least

    # Writing.

    @property
    def is_held(self) -> bool:
        """Whether there is one on the object."""
        return bool(self._on_object.serial)

    def next(self, drawn: Mapping[str, Reservation], ahead: Amounts) -> Allowance:
        """Return the allowance to write for some pods, and for amounts beyond them."""
        self._serial += 1
        total = sum_of([held_together(drawn.values()), ahead])
        amounts = {name: min(amount, INT64_MAX) for name, amount in total.items()}
        return Allowance(self.replica, self._serial, amounts)

    def begin_write(
        self,
        allowance: Allowance | None,
        drawn: Mapping[str, Reservation],
        maximum: Amounts | None,
        now: float,
    ) -> None:
        """Begin a write of an allowance for some pods, or of none: from here it may take effect."""
        if allowance is None:
            self._sent = _Written(drawn=dict(drawn))
        else:
            self._sent = _Written(allowance.serial, allowance.amounts, dict(drawn), maximum, now)
        self._drawn_since_sent.clear()
        after = self._sent.without(drawn)
        self._remaining = {
            name: min(amount, after.get(name, 0)) for name, amount in self._remaining.items()
        }

    def abort_write(self) -> None:
        """End a write that certainly had no effect."""
        self._sent = None
        self._remaining = self._on_object.without(self.drawn)

    def update(self, allowance: Allowance | None) -> None:
        """Adopt the allowance on a newer version of the object; others at most remove it."""
        sent, self._sent = self._sent, None
        serial = 0 if allowance is None else allowance.serial
        if serial != self._on_object.serial or not serial:
            is_ours = sent is not None and serial == sent.serial
            self._on_object = sent if is_ours and sent is not None else _Written()
            since = {key: self.drawn[key] for key in self._drawn_since_sent} if is_ours else {}
            self.drawn = {**self._on_object.drawn, **since}
            self._initial = self._on_object.without(self._on_object.drawn)
        self._remaining = self._on_object.without(self.drawn)


def _pods_that_fit(free: Amounts, total: Amounts, pods: int) -> int:
    """Return how many more pods fit that are like `pods` others, which hold `total`."""
    bounded: Iterable[int] = (
        max(0, free[name]) * pods // amount
        for name, amount in total.items()
        if name in free and amount > 0
    )
    return min(bounded, default=1 << 62)
