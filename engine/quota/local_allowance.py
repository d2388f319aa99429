"""Room that a replica takes for itself in one write, so that most of its pods need none.

An allowance stands on the object beside the reservations and does not say for which pods it is:
everybody else counts all of it. Its replica admits pods out of it without asking anybody. That is
the escrow method (O'Neil, "The Escrow Transactional Method", 1986).

INVARIANT: what was drawn since an allowance was last written, and what it was written for, is never
more than the allowance on the object. So while a write of it is on its way, a pod must fit what is
left of it before as well as after. And pods are drawn for `seconds` only from when the last write
was begun: whoever sees an allowance that stood still for longer knows that no more come of it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from engine.model.quantity import INT64_MAX
from engine.model.resources import Amounts
from engine.quota.bounds import sum_of
from engine.quota.reservations import Allowance, Reservation

_MOST_DRAWN = 800  # all of them fit on the object should it come to that
_MOST_RECENT = 256
_LEAST_RECENT = 2  # a pod that comes alone is no sign of more


@dataclass(frozen=True, slots=True, kw_only=True)
class AllowanceConfig:
    """When room is taken ahead, and how much.

    Attributes:
        seconds: how long can be drawn after the write was begun.
        demand_seconds: twice as much as was asked for within that time is expected: asking grows.
        least_pods: so many pods of the usual size must fit, or nothing is taken ahead: near the end
            of a quota everything is written pod by pod, so that it can be used to the last one.
        share: at most this part of what is free is taken, one in so many.
    """

    seconds: float = 15.0
    demand_seconds: float = 4.0
    least_pods: int = 64
    share: int = 16


@dataclass(frozen=True, slots=True)
class _Written:
    """An allowance as it was written, for the pods drawn from it."""

    serial: int = 0
    amounts: Amounts = field(default_factory=dict)
    drawn: Mapping[str, Reservation] = field(default_factory=dict)
    maximum: Amounts | None = None  # of the quota that it was taken from
    begun: float = float("-inf")

    def ahead_of(self, drawn: Mapping[str, Reservation]) -> dict[str, int]:
        """Return what is left beyond some pods."""
        held = sum_of(one.amounts for one in drawn.values())
        return {name: amount - held.get(name, 0) for name, amount in self.amounts.items()}


class LocalAllowance:
    """What one replica has taken of one quota.

    Args:
        replica: who that is, different for each process there ever was.
        lending: when room is taken, and how much.

    Attributes:
        drawn: the pods that were admitted out of it, by key.
    """

    def __init__(self, replica: str, lending: AllowanceConfig) -> None:
        self.replica = replica
        self.lending = lending
        self.drawn: dict[str, Reservation] = {}
        self._on_object = _Written()
        self._sent: _Written | None = None  # perhaps written, perhaps not
        self._serial = 0  # never used twice: by it others tell whether an allowance stood still
        self._drawn_since: set[str] = set()  # that was sent
        self._left: dict[str, int] = {}
        self._taken: Amounts = {}  # what was left when it was written
        self._recent: deque[tuple[float, Amounts]] = deque(maxlen=_MOST_RECENT)  # asked for, when

    # Drawing.

    def draw(self, one: Reservation, maximum: Amounts | None, now: float) -> bool:
        """Admit a pod out of it; returns False, and does nothing, where that cannot be.

        Args:
            one: what is to be promised.
            maximum: what the quota allows by now.
            now: by the clock of all moments here.
        """
        if self.is_over(maximum, now) or len(self.drawn) >= _MOST_DRAWN:
            return False
        left = self._left
        if any(left.get(name, 0) < amount for name, amount in one.amounts.items()):
            return False
        for name, amount in one.amounts.items():
            left[name] -= amount
        self.drawn[one.key] = one
        self._drawn_since.add(one.key)
        return True

    def is_over(self, maximum: Amounts | None, now: float) -> bool:
        """Whether nothing can be drawn any more: it is old, or was taken from another `max`."""
        written = self._on_object
        return now >= written.begun + self.lending.seconds or written.maximum != maximum

    def runs_low(self, now: float) -> bool:
        """Whether it should be written anew soon: half of it is gone, or of its time."""
        half_its_life = self._on_object.begun + self.lending.seconds / 2
        return now >= half_its_life or any(
            2 * self._left[name] < amount for name, amount in self._taken.items()
        )

    # What should be taken.

    def record_demand(self, amounts: Amounts, now: float) -> None:
        """Take note of a pod that somebody asked for: more may come."""
        self._recent.append((now, amounts))

    def wanted(self, free: Amounts, now: float) -> Amounts:
        """Return what to take ahead of what a quota has free; nothing where that is scarce.

        Args:
            free: of each resource that the quota limits.
            now: the moment.
        """
        recent = self._expected(now)
        if len(recent) < _LEAST_RECENT:
            return {}
        total, lending = sum_of(recent), self.lending
        if _fit(free, total, len(recent)) < lending.least_pods:
            return {}
        wanted = {
            name: min(2 * amount, free[name] // lending.share) if name in free else 2 * amount
            for name, amount in total.items()
        }
        return wanted if all(wanted.values()) else {}

    def is_scarce(self, free: Amounts) -> bool:
        """Whether so little is free that what is left here should be given back."""
        some = [amounts for _, amounts in self._recent]
        return bool(some) and _fit(free, sum_of(some), len(some)) < self.lending.least_pods // 2

    def _expected(self, now: float) -> list[Amounts]:
        since = now - self.lending.demand_seconds
        return [amounts for at, amounts in self._recent if at > since]

    # What is on the object.

    @property
    def is_held(self) -> bool:
        """Whether there is one on the object."""
        return bool(self._on_object.serial)

    def next(self, drawn: Mapping[str, Reservation], ahead: Amounts) -> Allowance:
        """Return what to write for some pods and some room beyond them."""
        self._serial += 1
        total = sum_of([*(one.amounts for one in drawn.values()), ahead])
        amounts = {name: min(amount, INT64_MAX) for name, amount in total.items()}
        return Allowance(self.replica, self._serial, amounts)

    def sending(
        self,
        what: Allowance | None,
        drawn: Mapping[str, Reservation],
        maximum: Amounts | None,
        now: float,
    ) -> None:
        """Take note that a write begins after which the object has this for some pods, or none."""
        if what is None:
            self._sent = _Written(drawn=dict(drawn))
        else:
            self._sent = _Written(what.serial, what.amounts, dict(drawn), maximum, now)
        self._drawn_since.clear()
        after = self._sent.ahead_of(drawn)
        self._left = {name: min(amount, after.get(name, 0)) for name, amount in self._left.items()}

    def not_sent(self) -> None:
        """Take note that the write was refused for certain."""
        self._sent = None
        self._left = self._on_object.ahead_of(self.drawn)

    def found(self, what: Allowance | None) -> None:
        """Take what a newer version of the object has; nobody else writes it but to take it off."""
        sent, self._sent = self._sent, None
        serial = 0 if what is None else what.serial
        if serial != self._on_object.serial or not serial:
            is_ours = sent is not None and serial == sent.serial
            self._on_object = sent if is_ours and sent is not None else _Written()
            since = {key: self.drawn[key] for key in self._drawn_since} if is_ours else {}
            self.drawn = {**self._on_object.drawn, **since}
            self._taken = self._on_object.ahead_of(self._on_object.drawn)
        self._left = self._on_object.ahead_of(self.drawn)


def _fit(free: Amounts, total: Amounts, pods: int) -> int:
    """Return how many more pods fit that are like some, which hold a total."""
    bounded: Iterable[int] = (
        max(0, free[name]) * pods // amount
        for name, amount in total.items()
        if name in free and amount > 0
    )
    return min(bounded, default=1 << 62)
