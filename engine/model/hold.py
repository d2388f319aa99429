"""Names of what is written on a held pod.

A held pod is admitted with a scheduling gate of ours, and released later.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from enum import StrEnum
from typing import Final

import msgspec

HOLD_GATE: Final = "stowplan.dev/hold"
"""The scheduling gate that keeps the scheduler from a held pod."""

HOLD_REASONS_ANNOTATION: Final = "stowplan.dev/hold-reasons"
"""Why a pod is held, separated by commas."""

HOLD_FOR_ORDER: Final = "order"
"""The reason of a pod whose policy has its pods released in order."""

HOLD_FOR_PREEMPTION: Final = "preemption"
"""The reason of a pod whose policy has others evicted for it where no node takes it."""

HOLD_FOR_QUOTA: Final = "quota"
"""The reason of a pod that waits for its quota: it does not count as used."""

HOLD_FOR_GANG: Final = "gang"
"""The reason of a pod that waits for the other members of its gang."""

RELEASE_BY_ANNOTATION: Final = "stowplan.dev/release-by"
"""The moment by which a held pod is released, whoever does it; RFC 3339."""

RELEASED_ANNOTATION: Final = "stowplan.dev/released"
"""What a pod was released with: the node where room is reserved for it, or why there is none."""

RESERVED_AT_ANNOTATION: Final = "stowplan.dev/reserved-at"
"""When the nomination of a held pod was last confirmed to its scheduler, RFC 3339."""

QUEUED_CONDITION: Final = "stowplan.dev/Queued"
"""The pod condition that says why it is held."""

WAIT_ANNOTATION: Final = "stowplan.dev/wait"
"""The reason and the message of that condition while it is true: `kubectl describe pod` shows those
of no condition, but every annotation."""

RELEASING_ANNOTATION: Final = "stowplan.dev/releasing"
"""On the Lease: "true" while its holder releases held pods."""

REFUSED_IN_ANNOTATION: Final = "stowplan.dev/refused-in"
"""On the Lease: how many held pods of a namespace are refused their release, as `mail=1,shop=3`."""

GANG_RELEASED_ANNOTATION: Final = "stowplan.dev/gang-released"
"""On a released member of a gang: when its gang was released, RFC 3339; the same on all members."""

RECLAIM_PLAN_ANNOTATION: Final = "stowplan.dev/reclaim-plan"
"""On a held pod: for whom other pods are evicted, and which; for people, and never acted upon."""


_MOST_GATES: Final = 16
_LONGEST_REASONS: Final = 64


def is_queued(gates: Collection[str], annotations: Mapping[str, str]) -> bool:
    """Return whether a pod waits for quota: our gate is on it, and quota among the reasons.

    It holds nothing of its quota until then, no matter who wrote the gate and the reason: the
    request that removes either is judged as a creation. A matchCondition of the chart says the same
    of each change of a pod. What that may cost is limited, and a change for which it fails may pass
    without being judged: so a pod with more gates or longer reasons than any of ours is not queued.
    """
    return _is_held_for(HOLD_FOR_QUOTA, gates, annotations)


def is_held_for_gang(gates: Collection[str], annotations: Mapping[str, str]) -> bool:
    """Return whether a pod waits for its gang: our gate is on it, and gang among the reasons."""
    return _is_held_for(HOLD_FOR_GANG, gates, annotations)


def is_held_for_order(gates: Collection[str], annotations: Mapping[str, str]) -> bool:
    """Return whether a pod waits for those before it: our gate, and order among the reasons."""
    return _is_held_for(HOLD_FOR_ORDER, gates, annotations)


def refused_text(refused: Mapping[str, int]) -> str:
    """Return REFUSED_IN_ANNOTATION for how many pods are refused, by namespace."""
    return ",".join(f"{namespace}={count}" for namespace, count in refused.items())


def refused_in(text: str) -> Mapping[str, int]:
    """Return how many pods are refused by namespace; 0 where the number cannot be read."""
    if not text:
        return {}
    named = (each.partition("=") for each in text.split(","))
    return {namespace: int(count) if count.isdecimal() else 0 for namespace, _, count in named}


def _is_held_for(reason: str, gates: Collection[str], annotations: Mapping[str, str]) -> bool:
    if HOLD_GATE not in gates or len(gates) > _MOST_GATES:
        return False
    reasons = annotations.get(HOLD_REASONS_ANNOTATION, "")
    return len(reasons) <= _LONGEST_REASONS and reason in reasons.split(",")


class QueuedReason(StrEnum):
    """Why a pod is held; the reason of its condition."""

    WAITING_IN_ORDER = "WaitingInOrder"  # others are before it
    WAITING_FOR_BINDINGS = "WaitingForBindings"  # the scheduler has enough to bind
    WAITING_FOR_QUOTA = "WaitingForQuota"  # its quota, or the cohort, has no room for it
    WAITING_FOR_CAPACITY = "WaitingForCapacity"  # no node has room, and reclaim may make some
    WAITING_FOR_GANG = "WaitingForGang"  # members of its gang are missing, or have no room
    RESERVING_FOR_GANG = "ReservingForGang"  # its gang reserves room as it comes free
    WAITING_FOR_RECLAIM = "WaitingForReclaim"  # pods that borrow are being evicted for it
    WAITING_FOR_PREEMPTION = "WaitingForPreemption"  # pods of lower priority are being evicted
    BLOCKED_BY_PDB = "BlockedByPDB"  # they cannot be evicted now
    EXCEEDS_MAX = "ExceedsMax"  # it alone requests more than max: it waits until max allows it
    WAITING_FOR_OTHER_GATES = "WaitingForOtherGates"  # ours goes last
    RELEASE_REFUSED = "ReleaseRefused"  # somebody's admission refuses that we remove the gate
    RELEASED = "Released"  # the reason of a condition that is False


class QueuedCondition(msgspec.Struct, frozen=True, rename="camel", gc=False):
    """A condition of a pod; `reason` is any text where others may have written it."""

    type: str = ""
    status: str = ""
    reason: str = ""
    message: str = ""

    @property
    def is_true(self) -> bool:
        """Whether it says that the pod is held."""
        return self.status == "True"


class _Status(msgspec.Struct, frozen=True):
    conditions: tuple[QueuedCondition, ...] | None = None


class _Pod(msgspec.Struct, frozen=True):
    status: _Status = _Status()


_pod_of: Final = msgspec.json.Decoder(_Pod).decode


def queued_condition_in(raw: bytes | msgspec.Raw) -> QueuedCondition | None:
    """Return our condition of a pod as JSON, None if it has none or cannot be read."""
    if QUEUED_CONDITION.encode() not in bytes(raw):
        return None
    try:
        conditions = _pod_of(raw).status.conditions or ()
    except (msgspec.DecodeError, RecursionError):
        return None
    return next((each for each in conditions if each.type == QUEUED_CONDITION), None)
