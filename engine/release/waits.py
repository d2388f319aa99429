"""Why a held pod waits: the first row of one table that holds, whoever asks.

| it waits | reason |
|---|---|
| for gates of others, as ours goes last | WaitingForOtherGates |
| since somebody's admission refuses its release | ReleaseRefused |
| as others are evicted for it, or cannot be | what the leader notes of that |
| for quota: it lacks room, exceeds max, or finds no node within min | what its quota says |
| for its gang, which may reserve room, or behind a gang that does | what that gang says |
| for a node, as pods of lower priority may be evicted for it | WaitingForCapacity |
| for the binding of the pod before it | WaitingForBindings |
| for its turn | WaitingInOrder |

The leader knows all of it and writes it as a condition. Whoever else asks reads that as a note, and
sees for itself only gates and quota.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from engine.model.hold import QueuedReason

EVICTING_REASONS: Final = frozenset(
    {
        QueuedReason.WAITING_FOR_RECLAIM,
        QueuedReason.WAITING_FOR_PREEMPTION,
        QueuedReason.BLOCKED_BY_PDB,
    }
)
"""The reasons of a pod that others are evicted for, or are protected from that."""


GANG_REASONS: Final = frozenset({QueuedReason.WAITING_FOR_GANG, QueuedReason.RESERVING_FOR_GANG})
"""The reasons of a pod that waits for its gang."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WaitFacts:
    """What is known of the wait of a pod, in the order of the table; "" where there is no reason.

    Attributes:
        has_other_gates: whether others keep it, too.
        is_refused: whether its last write was refused.
        noted: the reason that the leader noted.
        quota: why it waits for its quota.
        gang: why it waits for a gang.
        finds_no_node: whether no node takes it, and others may be evicted for it.
        is_behind_binding: whether the pod before it is not bound.
    """

    has_other_gates: bool = False
    is_refused: bool = False
    noted: str = ""
    quota: str = ""
    gang: str = ""
    finds_no_node: bool = False
    is_behind_binding: bool = False


def wait_reason(facts: WaitFacts) -> str:
    """Return why a pod waits; a `QueuedReason`, or what others wrote as that of our condition."""
    if facts.has_other_gates:
        return QueuedReason.WAITING_FOR_OTHER_GATES
    if facts.is_refused:
        return QueuedReason.RELEASE_REFUSED
    said = facts.noted or facts.quota or facts.gang
    if said:
        return said
    if facts.finds_no_node:
        return QueuedReason.WAITING_FOR_CAPACITY
    if facts.is_behind_binding:
        return QueuedReason.WAITING_FOR_BINDINGS
    return QueuedReason.WAITING_IN_ORDER
