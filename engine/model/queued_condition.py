"""The pod condition `stowplan.dev/Queued`: why a pod is held, as people and programs read it."""

from __future__ import annotations

from enum import StrEnum
from typing import Final

import msgspec

from engine.model.hold import QUEUED_CONDITION


class QueuedReason(StrEnum):
    """Why a pod is held; the reason of its condition."""

    WAITING_IN_ORDER = "WaitingInOrder"  # others are before it
    WAITING_FOR_BINDINGS = "WaitingForBindings"  # the scheduler has enough to bind
    WAITING_FOR_QUOTA = "WaitingForQuota"  # its quota, or the cohort, has no room for it
    WAITING_FOR_CAPACITY = "WaitingForCapacity"  # no node has room, and reclaim may make some
    WAITING_FOR_GANG = "WaitingForGang"  # members of its gang are missing, or have no room
    WAITING_FOR_RECLAIM = "WaitingForReclaim"  # pods that borrow are being evicted for it
    WAITING_FOR_PREEMPTION = "WaitingForPreemption"  # pods of lower priority are being evicted
    BLOCKED_BY_PDB = "BlockedByPDB"  # they cannot be evicted now
    EXCEEDS_MAX = "ExceedsMax"  # it alone requests more than max: it will never be released
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
