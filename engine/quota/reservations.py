"""Reservations of an ElasticQuota: shares of admitted pods that may not be observed yet.

They live in an annotation of the object itself, so that every writer knows all others: the API
server refuses a write made from an older version of the object.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Annotated

import msgspec

from engine.model.quantity import INT64_MAX
from engine.model.resources import Amounts, greater
from engine.quota.bounds import sum_of

MOST_BYTES = 192 * 1024
"""Of the annotation; all annotations of an object together may have 256 KiB."""

DEFAULT_RESERVATION_SECONDS = 75
"""More than the API server gives a request, which is 60 s unless configured."""

_SETTLED_SECONDS = 10.0  # most watches lag less, so few replicas wait for `seen_up_to`
_LONGEST_READ = 1024 * 1024
_UNREADABLE = (msgspec.DecodeError, UnicodeError, RecursionError)

_Natural = Annotated[int, msgspec.Meta(ge=0, le=INT64_MAX)]


@dataclass(frozen=True, slots=True, kw_only=True)
class ReservationTimeouts:
    """Lifetime of reservations, in seconds by the clock of each replica.

    Attributes:
        settled_seconds: on the object after their pod was observed, for the sake of slower watches.
        unseen_seconds: before the API server is asked whether the pod exists; must be longer than
            a request may take there.
    """

    settled_seconds: float = _SETTLED_SECONDS
    unseen_seconds: float = DEFAULT_RESERVATION_SECONDS


class Reservation(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """The share of an admitted pod; each request to resize the pod adds one with the difference.

    A queued pod has none until it stops to be queued: that request is reserved the whole share.

    Attributes:
        uid: of the pod.
        name: of the pod.
        amounts: base units.
        after: the reservation has ended once the pod is observed at a newer resourceVersion: 0 for
            a new pod, for a change that of the object it is made from, since it can be made from
            no other. That version may be of a queued pod: then the request had no effect, or
            another has queued the pod again.
        request: uid of the request to change the pod, empty for its creation.
        whole: whether a change is reserved all that the pod requests, not what it adds.
        surge: the Deployment whose rollout it is admitted beyond `max` for, "" for none.
        replaces: the name of the pod of that Deployment that it is to replace.
    """

    uid: str
    name: str
    amounts: dict[str, _Natural]
    after: _Natural = 0
    request: str = ""
    whole: bool = False
    surge: str = ""
    replaces: str = ""

    @property
    def key(self) -> str:
        """Unique identifier: a request that is repeated is reserved once."""
        return self.request or self.uid

    @property
    def holds_named_pod(self) -> bool:
        """Whether it is all that a pod requests whose name is known."""
        return bool(self.name) and (self.whole or not self.request)

    @property
    def size(self) -> int:
        """Bytes in the annotation."""
        return len(_encode(self)) + 1


def split_by_name(
    reservations: Iterable[Reservation],
) -> tuple[dict[str, dict[str, int]], list[Amounts]]:
    """Return the greatest amounts of the pods of each name, and amounts that add up.

    Of the pods of a name only one can be stored, so their amounts do not add up: a creation that
    fails because its name is taken takes no share.
    """
    greatest: dict[str, dict[str, int]] = {}
    additive: list[Amounts] = []
    for reservation in reservations:
        if reservation.holds_named_pod:
            name = reservation.name
            greatest[name] = greater(greatest.get(name, {}), reservation.amounts)
        else:
            additive.append(reservation.amounts)
    return greatest, additive


def held_together(reservations: Iterable[Reservation]) -> dict[str, int]:
    """Return the most that the pods of some reservations can hold at any time."""
    named, additive = split_by_name(reservations)
    return sum_of([*named.values(), *additive])


class Allowance(msgspec.Struct, frozen=True, gc=False):
    """A share that a replica has reserved for pods to come; see `engine.quota.reservations`.

    Attributes:
        replica: its owner, unique for each process that ever ran.
        serial: a new one with each write.
        amounts: base units, pods that were drawn from it included.
    """

    replica: str
    serial: _Natural
    amounts: dict[str, _Natural]

    @property
    def identity(self) -> tuple[str, int]:
        """Distinguishes it from what its replica has written before and after."""
        return self.replica, self.serial


@dataclass(frozen=True, slots=True)
class Reservations:
    """The content of the annotation.

    Attributes:
        seen_up_to: resourceVersion up to which a replica must have observed all pods to know those
            whose reservations were removed because they were observed.
        by_key: the reservations.
        allowances: beyond those, by replica.
    """

    seen_up_to: int = 0
    by_key: Mapping[str, Reservation] = field(default_factory=dict)
    allowances: Mapping[str, Allowance] = field(default_factory=dict)

    @property
    def size(self) -> int:
        """Number of reservations and allowances."""
        return len(self.by_key) + len(self.allowances)


class _Annotation(msgspec.Struct, rename="camel", omit_defaults=True, gc=False):
    """The annotation on the wire; `quota` is the uid of the object that it belongs to."""

    quota: str
    seen_up_to: _Natural
    reserved: list[Reservation]
    allowances: list[Allowance] = []


_encode = msgspec.json.Encoder(order="deterministic").encode
_decode = msgspec.json.Decoder(_Annotation).decode


def encode(reservations: Reservations, quota_uid: str) -> str:
    """Return the annotation of a quota."""
    annotation = _Annotation(
        quota_uid,
        reservations.seen_up_to,
        list(reservations.by_key.values()),
        list(reservations.allowances.values()),
    )
    return _encode(annotation).decode()


def decode(text: str, quota_uid: str) -> Reservations | None:
    """Return the reservations in the annotation of a quota, None where it is unreadable.

    An annotation copied from another object counts as empty: its versions may be those of another
    cluster.
    """
    if not text:
        return Reservations()
    try:
        annotation = _decode(text) if len(text) <= _LONGEST_READ else None
    except _UNREADABLE:
        annotation = None
    if annotation is None:
        return None
    if annotation.quota != quota_uid:
        return Reservations()
    return Reservations(
        annotation.seen_up_to,
        {reservation.key: reservation for reservation in annotation.reserved},
        {allowance.replica: allowance for allowance in annotation.allowances},
    )


# Quota that a replica reserves ahead in one write, so that most of its pods need no write.
#
# An allowance stands on the object beside the reservations and names no pods: every other replica
# counts all of it. Its own replica admits pods from it without a request to the API server. This is
# the escrow method (O'Neil, "The Escrow Transactional Method", 1986).
#
# INVARIANT: pods drawn since an allowance was last written, and those it was written for, never
# hold more at any time than the allowance on the object. So while a write of it is in flight, a pod
# must fit the remainder before the write and after it. Pods are drawn only for `seconds` after the
# last write began: an allowance that has not changed for longer yields no more pods.


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
        """Admit a pod from the allowance; False, without effect, where it does not fit."""
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
        """Amounts to reserve ahead; none where the quota is scarce."""
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


class OtherAllowances:
    """What one replica knows of the allowances of all others; moments are seconds of its clock."""

    def __init__(self, replica: str, seconds: float, *, unseen_seconds: float) -> None:
        self._replica = replica
        self._seconds = seconds
        self._unseen_seconds = unseen_seconds
        self._allowances: tuple[Allowance, ...] = ()
        self._unchanged_since: dict[tuple[str, int], float] = {}
        self._drained: dict[tuple[str, int], int] = {}  # no pod of it is newer than that version
        self._observed_version = 0

    def update(self, allowances: Iterable[Allowance], now: float) -> None:
        """Adopt the allowances of another version of the object."""
        self._allowances = tuple(each for each in allowances if each.replica != self._replica)
        others = [allowance.identity for allowance in self._allowances]
        self._unchanged_since = {key: self._unchanged_since.get(key, now) for key in others}
        self._drained = {key: self._drained[key] for key in others if key in self._drained}

    def observe(self, version: int) -> None:
        """Note that all pods have been observed up to a version."""
        self._observed_version = max(version, self._observed_version)

    def counted(self) -> list[Amounts]:
        """Return the amounts of those whose pods are not all in the view by now."""
        observed = self._observed_version
        return [
            each.amounts
            for each in self._allowances
            if self._drained.get(each.identity, observed + 1) > observed
        ]

    def recallable(self, now: float) -> dict[str, int]:
        """Amounts in allowances of live replicas, which return them where the quota is scarce."""
        since = now - self._seconds
        return sum_of(
            each.amounts
            for each in self._allowances
            if self._unchanged_since[each.identity] > since
        )

    def abandoned(self, now: float) -> list[Allowance]:
        """Allowances whose replica is gone, and every request it admitted has ended."""
        since = now - (self._seconds + self._unseen_seconds)
        return [
            each
            for each in self._allowances
            if self._unchanged_since[each.identity] <= since and each.identity not in self._drained
        ]

    def mark_drained(self, abandoned: Allowance, version: int) -> None:
        """Record that all pods drawn from it that still exist have at most that version."""
        self._drained[abandoned.identity] = version

    def drained(self) -> dict[str, int]:
        """Return the replicas whose pods are all in the view by now, with the version of these."""
        observed = self._observed_version
        return {
            replica: version
            for (replica, _), version in self._drained.items()
            if version <= observed
        }
