"""The reservations of an ElasticQuota: shares that were promised and may not be seen yet.

They live on the object itself, in an annotation, so that whoever writes one knows all others: the
API server refuses a write made from an older version of the object.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated

import msgspec

from engine.model.quantity import INT64_MAX

MOST_BYTES = 192 * 1024
"""Of the annotation; all annotations of an object together may have 256 KiB."""

_LONGEST_READ = 1024 * 1024
_UNREADABLE = (msgspec.DecodeError, UnicodeError, RecursionError)

_Natural = Annotated[int, msgspec.Meta(ge=0, le=INT64_MAX)]


class Reservation(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """A share promised to a pod.

    A pod that is resized has one more for each request to do so, with what is added.

    Attributes:
        uid: the pod's.
        name: the pod's.
        amounts: what is promised, base units.
        after: the promise is kept, or can never be, once the pod is seen at a newer
            resourceVersion: 0 for a new pod, for a resize that of the object it is made from.
        request: tells the resizes of a pod apart, empty for its creation.
    """

    uid: str
    name: str
    amounts: dict[str, _Natural]
    after: _Natural = 0
    request: str = ""

    @property
    def key(self) -> str:
        """What makes it unique: a request that comes twice is promised once."""
        return self.request or self.uid

    @property
    def size(self) -> int:
        """How many bytes it takes in the annotation."""
        return len(_encode(self)) + 1


class Allowance(msgspec.Struct, frozen=True, gc=False):
    """A share that a replica has taken for pods not named yet; see `engine.quota.local_allowance`.

    Attributes:
        replica: whose; of each process that ever ran another.
        serial: another one with each write.
        amounts: what is promised in all, base units.
    """

    replica: str
    serial: _Natural
    amounts: dict[str, _Natural]


@dataclass(frozen=True, slots=True)
class Reservations:
    """What an annotation says.

    Attributes:
        seen_up_to: whoever has heard of all pods up to this resourceVersion knows those whose
            reservations were taken off because they were seen.
        by_key: the reservations.
        allowances: what replicas have taken beyond those, by replica.
    """

    seen_up_to: int = 0
    by_key: Mapping[str, Reservation] = field(default_factory=dict)
    allowances: Mapping[str, Allowance] = field(default_factory=dict)

    @property
    def size(self) -> int:
        """How many promises there are."""
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
    said = _Annotation(
        quota_uid,
        reservations.seen_up_to,
        list(reservations.by_key.values()),
        list(reservations.allowances.values()),
    )
    return _encode(said).decode()


def decode(text: str, quota_uid: str) -> Reservations | None:
    """Return what the annotation of a quota says, None where it makes no sense.

    One that was copied from another object says nothing about this one: its versions may be those
    of another cluster.
    """
    if not text:
        return Reservations()
    try:
        said = _decode(text) if len(text) <= _LONGEST_READ else None
    except _UNREADABLE:
        said = None
    if said is None:
        return None
    if said.quota != quota_uid:
        return Reservations()
    return Reservations(
        said.seen_up_to,
        {one.key: one for one in said.reserved},
        {one.replica: one for one in said.allowances},
    )
