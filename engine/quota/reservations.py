"""Reservations of an ElasticQuota: shares of admitted pods that may not be observed yet.

They live in an annotation of the object itself, so that every writer knows all others: the API
server refuses a write made from an older version of the object.
"""

from __future__ import annotations

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
    """A share that a replica has reserved for pods to come; see `engine.quota.local_allowance`.

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
